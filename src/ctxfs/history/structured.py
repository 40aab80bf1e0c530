"""Replace large texts inside a tool's response that is a structure, such as a command's output and errors."""

from collections.abc import Iterator, Mapping
from typing import Any

from ctxfs.history.history import History
from ctxfs.materialize import Materialize

__all__ = ["Place", "arrived", "large_texts", "with_texts"]

_MEDIA = frozenset({"image", "audio", "document", "resource", "base64"})

Place = tuple[str | int, ...]
"""The path of a text in a tool's response: keys and indexes, outermost first."""


def large_texts(response: Any, limits: Materialize) -> Iterator[tuple[Place, str]]:
    """The texts of a tool's response that are over the limits, with their paths; parts of images are left out."""
    if isinstance(response, str):
        if limits.is_over(response):
            yield (), response
        return
    if isinstance(response, dict):
        if response.get("type") in _MEDIA or response.get("isImage"):
            return
        inner: Iterator[tuple[str | int, Any]] = iter(response.items())
    else:
        inner = iter(enumerate(response) if isinstance(response, list) else ())
    for key, value in inner:
        yield from (((key, *place), text) for place, text in large_texts(value, limits))


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


async def arrived(history: History, response: Any, *, limits: Materialize, tool: str, call_id: str) -> Any:
    """``response`` with a summary in place of each large text, which is stored; None if nothing was replaced.

    ``limits`` are those of the history. Raises what ``History.aarrive`` raises.
    """
    texts: dict[Place, str] = {}
    for number, (place, text) in enumerate(large_texts(response, limits), 1):
        part_id = f"{call_id}{f'.{number}' if number > 1 else ''}"
        summary = await history.aarrive(text, tool=tool, call_id=part_id)
        if summary != text:
            assert isinstance(summary, str)
            texts[place] = summary
    return with_texts(response, texts) if texts else None
