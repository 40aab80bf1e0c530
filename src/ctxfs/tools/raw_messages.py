"""Raw messages of the Anthropic Messages API in and out: plain dicts, usable without an agent or a session.

Follows "Tool Direct Offload" (one message) and "Agent 上下文卸载模块" (a list of messages). They differ in which
results are offloaded, in the names of their files and in their placeholders. Characters are Unicode code points.
"""

import copy
import re
import unicodedata
from collections import Counter
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import iscoroutinefunction, signature
from pathlib import Path
from typing import Any, Protocol

from anyio import to_thread
from typing_extensions import override

from ctxfs.errors import ConfigError, NameTaken, TranscriptError, UnsafePath
from ctxfs.errors.base import quoted
from ctxfs.errors.checks import names_settings, require_int, require_text
from ctxfs.storage.base import check_name
from ctxfs.storage.failures import writing
from ctxfs.storage.files import write_file
from ctxfs.storage.threads import run_in_steps, run_to_completion
from ctxfs.text.jsontext.codec import stringify


def plain_name(raw: str, what: str) -> str:
    """Return ``raw``, which is ``what``, if it is one plain file name, as it is.

    Raises ``UnsafePath`` for a separator, "..", NUL, the empty name, a lone surrogate and more than 255 bytes.
    """
    try:
        parts = check_name(raw)
    except UnsafePath as error:
        raise UnsafePath(raw, f"as {what} {error.reason}") from None
    if len(parts) != 1:
        raise UnsafePath(raw, f"as {what} cannot name one file: use an id without '/'")
    return raw


def direct_file_name(session_id: str, tool_use_id: str) -> str:
    """Name the file of one tool result, "Tool Direct Offload", F-002. Raises ``UnsafePath``."""
    return f"{plain_name(session_id, 'session_id')}/{_md_name('', tool_use_id, '')}"


def listed_file_name(tool_use_id: str, repeat: int = 0) -> str:
    """Name the file of a result in a list, "Agent 上下文卸载模块", F-001; ``repeat`` counts later ones of the id.

    Raises ``UnsafePath``.
    """
    suffix = f"-{repeat}" if repeat else ""
    return _md_name("tool-result-", tool_use_id, suffix)


def _md_name(prefix: str, tool_use_id: str, suffix: str) -> str:
    what = "tool_use_id"
    return plain_name(f"{prefix}{plain_name(tool_use_id, what)}{suffix}.md", what)


def render_direct(path: str) -> str:
    """The placeholder of "Tool Direct Offload", F-001, for content stored at ``path`` (absolute)."""
    return f"[Tool result offloaded to file: {path}]"


def render_listed(name: str) -> str:
    """The placeholder of "Agent 上下文卸载模块", F-003; ``name`` is relative to the output directory."""
    return f"[Content offloaded to: ./{name}]"


DEFAULT_THRESHOLD_CHARS = 100

RawMessage = Mapping[str, Any]
"""A message of the Messages API as a plain dict, as its SDK takes it; ``ctxfs.messages.Message`` is one of ours."""

_Place = tuple[int, int]
"""Where a result stands: the message's number, and the block's number in it."""


class FileWriter(Protocol):
    """Where offloaded content is written. ``write`` may be a plain function too: it is called in a worker thread."""

    def write(self, path: Path, text: str, *, overwrite: bool) -> Awaitable[None] | None:
        """Make ``text`` durable in ``path`` (absolute), and the directories above it where they are missing.

        ``overwrite=False`` must not change what is there: raise ``NameTaken``, unless it is the same text.
        Raises OSError or ``WriteFailed`` when it cannot be written.
        """


class DiskFileWriter(FileWriter):
    """Files on the local disk, written under a temporary name, synced, and only then given their own; in UTF-8."""

    @override
    async def write(self, path: Path, text: str, *, overwrite: bool) -> None:
        await run_to_completion(
            lambda: write_file(path, text.encode("utf-8", "surrogatepass"), overwrite=overwrite),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadResult:
    """One offloaded result.

    ``message`` is a new message, ``freed_chars`` the content's length less its placeholder's (negative when that is
    longer), ``file`` the absolute path.
    """

    message: dict[str, Any]
    freed_chars: int
    file: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OffloadedMessages:
    """The offloaded results of a list.

    ``messages``: an unchanged message is the same object as in the input. ``freed_chars`` adds up the lengths of
    what was offloaded. ``files`` are absolute paths, in order.
    """

    messages: list[RawMessage]
    offloaded_count: int
    freed_chars: int
    files: list[str]


@names_settings()
async def offload_tool_result(
    message: RawMessage,
    *,
    session_id: str,
    output_dir: str | Path,
    writer: FileWriter | None = None,
    tool_use_id: str | None = None,
) -> OffloadResult:
    """Write the tool result of ``message`` to ``<output_dir>/<session_id>/<tool_use_id>.md`` and refer to it.

    There is no threshold: the caller has decided. The same ids overwrite the file, but a message that refers to
    it already leaves it as it is. The input is not changed. Follows "Tool Direct Offload".

    Args:
        message: a message of the Messages API.
        session_id: the directory's name.
        output_dir: the directory of sessions.
        writer: None writes to the local disk.
        tool_use_id: which result, where the message has those of several calls; None: its only one.

    Raises:
        TranscriptError: there is no such tool result in the message, or more than one, or it cannot be written as JSON.
        UnsafePath: an id is not one plain file name.
        WriteFailed: the file could not be written; the reason is the ``__cause__``.
        ConfigError: ``session_id`` is not text, ``output_dir`` is not a path, or ``writer`` has the wrong signature.

    """
    require_text("session_id", session_id)
    root = await _absolute(output_dir)
    writer = _checked(writer)
    place = _the_one_place([message], tool_use_id)
    block = _block_at([message], place)
    text = await _text_of(block.get("content"))
    file = root / direct_file_name(session_id, _id_of(block))
    placeholder = render_direct(str(file))
    copied = _copied(message)
    refers_to_it = text == placeholder  # then the file is the only place where the content still is
    try:
        await _write(writer, file, text, overwrite=not refers_to_it)
    except NameTaken:
        if not refers_to_it:
            raise
    _block_at([copied], place)["content"] = placeholder
    return OffloadResult(message=dict(copied), freed_chars=len(text) - len(placeholder), file=str(file))


@names_settings()
async def offload_tool_results(
    messages: Sequence[RawMessage],
    *,
    output_dir: str | Path,
    threshold_chars: int = DEFAULT_THRESHOLD_CHARS,
    writer: FileWriter | None = None,
) -> OffloadedMessages:
    """Write every tool result of at least ``threshold_chars`` characters to ``output_dir`` and refer to it there.

    The file is ``tool-result-{id}.md``; for a repeated id ``-1``, ``-2`` and so on. A name that another id of this
    call has, or a file with other content, is skipped; a file with the same content is used again. A placeholder that
    stands there already stays, however long it is. The input is not changed. ``writer``: None writes to the local disk.
    Follows "Agent 上下文卸载模块".

    Raises:
        TranscriptError: ``messages`` is not a sequence of dicts, a result is neither text nor a list of JSON blocks, or
            a result to be offloaded has no id; nothing was written.
        UnsafePath: an id of a result to be offloaded is not one plain file name; nothing was written, unless it is only
            the number after a file with other content that makes the name too long.
        WriteFailed: a file could not be written; the reason is the ``__cause__``. Files before it stay.
        ConfigError: the threshold is not a whole number of at least 0, ``output_dir`` is not a path, or ``writer`` is
            not a writer.

    """
    require_int("the threshold in characters", threshold_chars, at_least=0)
    root = await _absolute(output_dir)
    writer = _checked(writer)
    # What can be refused is refused here, before anything is written.
    due: list[tuple[_Place, str, str]] = []
    expected = _ListedNames()
    for place in _places(messages):
        block = _block_at(messages, place)
        text = await _text_of(block.get("content"))
        if len(text) >= threshold_chars:
            tool_use_id = _id_of(block)
            if not _is_listed(tool_use_id, text):
                expected.take(expected.next(tool_use_id))  # the number of a repeated id may make it too long
                due.append((place, tool_use_id, text))
    changed = list(messages)
    for number in {place[0] for place, _, _ in due}:
        changed[number] = _copied(messages[number])

    names = _ListedNames()
    files: list[str] = []
    for place, tool_use_id, text in due:
        name = names.next(tool_use_id)
        while not await _is_written(writer, root / name, text):
            name = names.next(tool_use_id)
        names.take(name)
        _block_at(changed, place)["content"] = render_listed(name)
        files.append(str(root / name))
    return OffloadedMessages(
        messages=changed,
        offloaded_count=len(due),
        freed_chars=sum(len(text) for _, _, text in due),
        files=files,
    )


def _check_messages(messages: object) -> None:
    """Raise ``TranscriptError`` unless it is a sequence of dicts."""
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes | bytearray | memoryview):
        raise TranscriptError([f"messages is a {type(messages).__name__}: it must be a list of messages"])
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            raise TranscriptError([f"message {number} is a {type(message).__name__}: it must be a dict"])


def _places(messages: Sequence[RawMessage]) -> list[_Place]:
    """The places of all results."""
    _check_messages(messages)
    places: list[_Place] = []
    for number, message in enumerate(messages):
        content = message.get("content")
        if isinstance(content, list | tuple):
            for position, block in enumerate(content):
                if isinstance(block, Mapping) and block.get("type") == "tool_result":
                    places.append((number, position))
    return places


def _the_one_place(messages: Sequence[RawMessage], tool_use_id: str | None) -> _Place:
    """The place of the result of this call; None: of the only one. Raises ``TranscriptError`` if it is not one."""
    places = _places(messages)
    if tool_use_id is not None:
        places = [place for place in places if _block_at(messages, place).get("tool_use_id") == tool_use_id]
    if len(places) != 1:
        if tool_use_id is not None:
            more = f" of call {quoted(tool_use_id)}"
        elif places:
            more = ": say which one with tool_use_id"
        else:
            more = ": it must have one"
        raise TranscriptError([f"the message has {len(places)} tool results{more}"])
    return places[0]


def _block_at(messages: Sequence[RawMessage], place: _Place) -> Any:
    number, position = place
    return messages[number]["content"][position]


def _is_listed(tool_use_id: str, text: str) -> bool:
    """Whether ``text`` is what a list gets in the place of this call's result, whatever number its file has."""
    begin, end = map(re.escape, render_listed(listed_file_name(tool_use_id)).rsplit(".md", 1))
    return re.fullmatch(rf"{begin}(-[1-9][0-9]*)?\.md{end}", text) is not None


class _ListedNames:
    """The names of one list's files: no two results share one, even where case does not count."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._asked: Counter[str] = Counter()

    def next(self, tool_use_id: str) -> str:
        """The next name for a result of the call that no other result has."""
        while True:
            name = listed_file_name(tool_use_id, self._asked[tool_use_id])
            self._asked[tool_use_id] += 1
            if _folded(name) not in self._taken:
                return name

    def take(self, name: str) -> None:
        """Give the name to no other result."""
        self._taken.add(_folded(name))


def _folded(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold()


async def _write(writer: FileWriter, file: Path, text: str, *, overwrite: bool) -> None:
    def call() -> Awaitable[None] | None:
        return writer.write(file, text, overwrite=overwrite)

    with writing(str(file)):
        plain = not iscoroutinefunction(writer.write)
        written = await run_to_completion(call) if plain else call()
        if written is not None:
            await written


async def _is_written(writer: FileWriter, file: Path, text: str) -> bool:
    """Write a file of the list; False: there is one with other content."""
    try:
        await _write(writer, file, text, overwrite=False)
    except NameTaken:
        return False
    return True


def _checked(writer: FileWriter | None) -> FileWriter:
    """The writer; None: one for the local disk. Raises ``ConfigError`` for one that cannot be called."""
    if writer is None:
        return DiskFileWriter()
    wanted = "write(path, text, *, overwrite)"
    try:
        signature(writer.write).bind(Path(), "", overwrite=True)
    except (AttributeError, TypeError) as error:
        raise ConfigError(f"writer is {writer!r}: it must have a method {wanted} ({error})") from error
    return writer


def _copied(message: RawMessage) -> Any:
    try:
        return copy.deepcopy(message)
    except (TypeError, RecursionError) as error:
        raise TranscriptError([f"a message cannot be copied ({error}): it must be plain JSON-like data"]) from error


async def _absolute(output_dir: str | Path) -> Path:
    if output_dir == "":
        raise ConfigError("output_dir is '': use '.' for the working directory")
    try:
        path = Path(output_dir)
        if path.is_absolute():
            return path
        return await to_thread.run_sync(lambda: path.expanduser().absolute())
    except (TypeError, RuntimeError) as error:  # no path, or nobody's home
        raise ConfigError(f"output_dir is {output_dir!r}: it must be the path of a directory ({error})") from error


def _id_of(block: Mapping[str, Any]) -> str:
    tool_use_id = block.get("tool_use_id")
    if not isinstance(tool_use_id, str):
        raise TranscriptError([f"a tool result's tool_use_id is {quoted(tool_use_id)}: it must be text"])
    return tool_use_id


async def _text_of(content: object) -> str:
    """A result's content as the text that is written: itself, or its blocks as compact JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list | tuple):
        raise TranscriptError([f"a tool result's content is a {type(content).__name__}: it must be text or blocks"])
    try:
        return await run_in_steps(partial(stringify, content))
    except (TypeError, ValueError, RecursionError) as error:
        raise TranscriptError([f"a tool result cannot be JSON ({error}): it must be text or content blocks"]) from error
