"""Replace large texts inside a tool's response that is a structure, such as a command's output and errors."""

import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anyio import to_thread

from ctxfs.context.history.history import History

_MEDIA = frozenset({"image", "audio", "document", "resource", "base64"})

_PATH = "persistedOutputPath"
_SIZE = "persistedOutputSize"
_CUT = "stdout"
"""Claude Code gives a hook 30,000 bytes of what a command printed, at most, and beside them the file with all of it."""

_OF_OTHERS = "mcp__"
"""Tools with such names belong to MCP servers: what their responses name as a file is not Claude Code's word."""

_MOST_BYTES = 64 * 1024 * 1024
"""A larger file is not read into memory; the beginning that the host gives is stored, and says that it is one."""

Place = tuple[str | int, ...]
"""The path of a text in a tool's response: keys and indexes, outermost first."""


@dataclass(frozen=True, slots=True)
class Response:
    """A tool's response, with as much of its output as can be had.

    ``full_bytes``: the size of the whole output, if only its beginning could be had; 0: all of it is there.
    """

    value: Any
    full_bytes: int = 0


def response_of(given: Any, *, tool: str) -> Response:
    """What a hook was given of a tool's response, with the whole output in place of what the host cut.

    The file that the host names is read if it is what the host says: of this size, and with this beginning.
    """
    if not isinstance(given, dict) or tool.startswith(_OF_OTHERS):
        return Response(given)
    path = given.get(_PATH)
    size_bytes = given.get(_SIZE)
    beginning = given.get(_CUT)
    if not isinstance(path, str) or not isinstance(size_bytes, int) or not isinstance(beginning, str):
        return Response(given)
    text = _text_of(path, size_bytes)
    if text is None or not text.startswith(beginning):
        return Response(given, full_bytes=size_bytes)
    rest = {key: value for key, value in given.items() if key not in (_PATH, _SIZE)}
    return Response({**rest, _CUT: text})  # without the keys, or the host would cut the summary as it cut the output


def _text_of(path: str, size_bytes: int) -> str | None:
    """The text of a regular file of that size; None if there is no such file, or it is too large to be held."""
    if not Path(path).is_absolute() or size_bytes > _MOST_BYTES:
        return None
    try:
        with open(path, "rb", opener=_opened) as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size != size_bytes:
                return None
            data = file.read(size_bytes)
    except OSError:  # it is gone, or not ours to read: its beginning is stored, and says so
        return None
    return data.decode("utf-8", "surrogateescape")


def _opened(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe in its place must not hold us up


def large_texts(response: Any, is_large: Callable[[str], bool]) -> Iterator[tuple[Place, str]]:
    """The large texts of a tool's response, with their paths; parts of images are left out."""
    if isinstance(response, str):
        if is_large(response):
            yield (), response
        return
    if isinstance(response, dict):
        if response.get("type") in _MEDIA or response.get("isImage"):
            return
        inner: Iterable[tuple[str | int, Any]] = response.items()
    elif isinstance(response, list):
        inner = enumerate(response)
    else:
        return
    for key, value in inner:
        yield from (((key, *place), text) for place, text in large_texts(value, is_large))


def with_texts(response: Any, texts: Mapping[Place, str]) -> Any:
    """``response`` with other texts in these places."""
    if () in texts:
        return texts[()]
    if isinstance(response, dict):
        return {key: with_texts(value, _inside(texts, key)) for key, value in response.items()}
    if isinstance(response, list):
        return [with_texts(value, _inside(texts, number)) for number, value in enumerate(response)]
    return response


def _inside(texts: Mapping[Place, str], key: str | int) -> dict[Place, str]:
    return {place[1:]: text for place, text in texts.items() if place[0] == key}


async def arrived(history: History, given: Any, *, tool: str, call_id: str) -> Any:
    """A tool's response with a summary in place of each large text, which is stored; None if nothing was replaced.

    Raises what ``History.aarrive`` raises.
    """
    response = await to_thread.run_sync(lambda: response_of(given, tool=tool))
    texts: dict[Place, str] = {}
    for number, (place, text) in enumerate(large_texts(response.value, history.may_be_large), 1):
        part_id = f"{call_id}{f'.{number}' if number > 1 else ''}"
        full_bytes = response.full_bytes if place == (_CUT,) else 0
        summary = await history.aarrive(text, tool=tool, call_id=part_id, full_bytes=full_bytes)
        if summary != text:
            assert isinstance(summary, str)
            texts[place] = summary
    return with_texts(response.value, texts) if texts else None
