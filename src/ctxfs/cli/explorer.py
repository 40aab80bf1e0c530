"""The demo's model: a script that explores a directory and decides, as a model would, by what it is shown.

It sees nothing but its requests. It lists directories, reads files, searches, and reads back what has left its context.
"""

import posixpath
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ctxfs.cli.explore import parse_listing
from ctxfs.eviction.placeholder.text import HEADER
from ctxfs.messages.messages import ToolCall

_PATTERNS = (r"TODO|FIXME|XXX|HACK", r"(?i)error|exception|fail|warning", r"(?i)import|include|require|use ")
_LISTED_DIRECTORIES = 12
_SMALLEST_BYTES = 200
_LARGEST_BYTES = 400_000
_BINARY = re.compile(
    r"\.(7z|a|bin|bmp|bz2|class|db|dll|dylib|exe|gif|gz|ico|jar|jpe?g|mo|mp[34]|o|pdf|png|pyc|so|sqlite|tar|tiff?|"
    r"ttf|webp|whl|woff2?|xz|zip|zst)",
    re.IGNORECASE,
)

Step = Sequence[str | ToolCall] | str


class Explorer:
    """Pass ``turn`` to a ``ScriptedModel``, ``max_turns`` times; ``in_time`` says whether there is time to go on."""

    def __init__(self, *, max_turns: int, in_time: Callable[[], bool] = lambda: True) -> None:
        self._max_turns = max_turns
        self._in_time = in_time
        self._turns = 0
        self._directories = deque(["."])
        self._files: list[tuple[int, str]] = []
        self._patterns = deque(_PATTERNS)
        self._read_back: set[str] = set()
        self._listed = self._read = self._searched = 0

    def turn(self, body: dict[str, Any]) -> Step:
        """The next reply to the request ``body`` (the Messages API's)."""
        self._turns += 1
        for call, text in _last_results(body):
            if call["name"] == "list_dir":
                self._take_listing(call["input"].get("path", "."), text)
        if self._turns >= self._max_turns or not self._in_time():
            return self._answer()
        return self._next_step(body) or self._answer()

    def _take_listing(self, directory: str, text: str) -> None:
        directories, files = parse_listing(text)
        join = posixpath.join
        self._directories.extend(_relative(join(directory, d)) for d in directories if not d.startswith("."))
        self._files += [(size, _relative(join(directory, f))) for size, f in files if _worth_reading(size, f)]
        self._files.sort()

    def _next_step(self, body: dict[str, Any]) -> Step | None:
        preferred = {2: self._list_some, 4: self._search, 0: self._read_again}.get(self._turns % 6, self._read_some)
        for step in (preferred, self._read_some, self._list_some, self._search):
            if (reply := step(body)) is not None:
                return reply
        return None

    def _list_some(self, _: dict[str, Any]) -> Step | None:
        room = min(3, len(self._directories), _LISTED_DIRECTORIES - self._listed)
        self._listed += max(0, room)
        return [ToolCall("list_dir", {"path": self._directories.popleft()}) for _ in range(room)] or None

    def _read_some(self, _: dict[str, Any]) -> Step | None:
        batch = [self._files.pop() for _ in range(min(2, len(self._files)))]
        self._read += len(batch)
        return [ToolCall("read_file", {"path": path}) for _, path in batch] or None

    def _search(self, _: dict[str, Any]) -> Step | None:
        if not self._patterns or not self._read:
            return None
        self._searched += 1
        return [ToolCall("search", {"pattern": self._patterns.popleft()})]

    def _read_again(self, body: dict[str, Any]) -> Step | None:
        """Read the oldest result that was evicted and not read back yet, as its placeholder says."""
        for call, text in _results(body["messages"]):
            if call["name"] == "Read" or not text.startswith(HEADER):
                continue
            path = text.split("\n")[1].removeprefix("Path: ")
            if path not in self._read_back:
                self._read_back.add(path)
                return ["I need the beginning of that once more.", ToolCall("Read", {"file_path": path, "limit": 40})]
        return None

    def _answer(self) -> str:
        return (
            f"I listed {_count(self._listed, 'directory', 'directories')}, read {_count(self._read, 'file', 'files')}, "
            f"searched {_count(self._searched, 'time', 'times')}, "
            f"and read back {_count(len(self._read_back), 'result', 'results')} that had left my context."
        )


def _worth_reading(size: int, name: str) -> bool:
    if not _SMALLEST_BYTES <= size <= _LARGEST_BYTES or name.startswith("."):
        return False
    return _BINARY.fullmatch(posixpath.splitext(name)[1]) is None


def _relative(path: str) -> str:
    return posixpath.normpath(path)


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"


def _last_results(body: dict[str, Any]) -> list[tuple[dict[str, Any], str]]:
    """The calls of the last reply, with their results."""
    return list(_results(body["messages"][-2:]))


def _results(messages: Sequence[dict[str, Any]]) -> Iterator[tuple[dict[str, Any], str]]:
    calls: dict[str, dict[str, Any]] = {}
    for message in messages:
        if isinstance(message["content"], str):
            continue
        for block in message["content"]:
            if block["type"] == "tool_use":
                calls[block["id"]] = block
            elif block["type"] == "tool_result" and block["tool_use_id"] in calls:
                yield calls[block["tool_use_id"]], _text(block.get("content", ""))


def _text(content: str | list[dict[str, Any]]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
