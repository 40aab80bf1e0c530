"""Lines as wide as the terminal, and ids as short as they can be typed. Pure but for ``to_stderr``; quick to import."""

import shutil
import sys
from collections.abc import Iterable
from unicodedata import combining, east_asian_width

from ctxfs.session.content.visible import visible_text as for_terminal

CUT = "…"
"""The end of what was cut; an id that ends with it is typed with it or without it."""
_LEAST_CHARS = 8


def wrapped(text: str, columns: int, *, indent: str = "") -> str:
    """Break a line at its spaces; all lines but the first begin with ``indent``.

    A word that is wider than ``columns`` stays whole on a line of its own: it is a path or a command, to be copied.
    """
    first, *words = text.split(" ")
    lines = [first]
    for word in words:
        longer = f"{lines[-1]} {word}"
        if _cells(longer) <= columns:
            lines[-1] = longer
        else:
            lines[-1] = lines[-1].rstrip()
            lines.append(f"{indent}{word}")
    return "\n".join(lines)


def to_stderr(text: str) -> None:
    """Write untrusted text and a line feed to stderr; a terminal gets it in lines that fit."""
    shown = for_terminal(text)
    if sys.stderr.isatty():
        columns = shutil.get_terminal_size().columns
        encoding = sys.stderr.encoding or "utf-8"
        shown = shown.encode(encoding, "backslashreplace").decode(encoding)  # an escape is wider than its character
        shown = "\n".join(wrapped(line, columns) for line in shown.split("\n"))
    sys.stderr.write(f"{shown}\n")


def short_ids(ids: Iterable[str], *, whole_chars: int) -> dict[str, str]:
    """What a user can type instead of each id: its unique beginning, which ends with an ellipsis.

    An id of up to ``whole_chars`` characters stays whole, since people gave it, and so does one that begins another.
    """
    ordered = sorted(set(ids))
    shown: dict[str, str] = {}
    for number, one in enumerate(ordered):
        beside = [*ordered[max(number - 1, 0) : number], *ordered[number + 1 : number + 2]]
        shared = max((_shared_chars(one, other) for other in beside), default=0)
        unique = one[: max(shared + 1, _LEAST_CHARS)]
        is_whole = len(one) <= whole_chars or len(unique) + len(CUT) >= len(one)
        shown[one] = one if is_whole else f"{unique}{CUT}"
    return shown


def _shared_chars(one: str, other: str) -> int:
    """How many characters two ids have in common at their beginning."""
    for at, (char, beside) in enumerate(zip(one, other, strict=False)):
        if char != beside:
            return at
    return min(len(one), len(other))


def _cells(text: str) -> int:
    """How many columns of a terminal a text takes; rich counts the same, and is slow to import for a line of help."""
    if text.isascii():
        return len(text)
    return sum(0 if combining(char) else 2 if east_asian_width(char) in "WF" else 1 for char in text)
