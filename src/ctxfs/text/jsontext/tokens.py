"""The tokens of a JSON text, and the walk from entry to entry of its containers: every reader is built on this. Pure.

A walk takes ``first``, then by turns the end of the value, which each reader finds as fast as its purpose allows, and
``following``. It goes on in steps of bounded size: no single call holds the interpreter for long, however long a string
is or however many entries there are.
"""

import json
import re
from json import JSONDecodeError

from ctxfs.text.patterns import possessive
from ctxfs.text.steps import checkpoint

SPACE = r"[ \t\r\n]*+"
STRING = r'"[^"\\]*+' + possessive(r'\\.[^"\\]*+', "*") + '"'
"""A string of any length, in one call: bound the text. Needs ``re.DOTALL``."""

_SPACE = re.compile(SPACE)
_STRING_PART = re.compile(possessive(r'[^"\\]++|\\.', "{0,8192}"), re.DOTALL)
_NO_BRACKETS = re.compile(possessive(rf'[^\[\]{{}}"]|{STRING}', "+"), re.DOTALL)
_STEP_CHARS = 4_096
_OPENING = frozenset("[{")
_CLOSING = frozenset("]}")
_TOKEN = re.compile(rf'{STRING}|[\[\]{{}},:]|[^\s"\[\]{{}},:]++', re.DOTALL)


class JsonTokens:
    """Finds tokens in a text, by position.

    Every method raises ``JSONDecodeError`` where the text is not JSON; what stands between two tokens is looked at no
    closer than is needed to find them.

    Args:
        text: the JSON.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._stepped = 0

    def after_space(self, position: int) -> int:
        """Return where the white space ends that starts at ``position``."""
        if self.text[position : position + 1] not in " \t\r\n":  # by far the most frequent
            return position
        match = _SPACE.match(self.text, position)
        return position if match is None else match.end()

    def stepped(self, position: int) -> None:
        """Call ``checkpoint`` if ``position`` is a few thousand characters from where that was last done."""
        if abs(position - self._stepped) >= _STEP_CHARS:
            self._stepped = position
            checkpoint()

    def string_end(self, start: int) -> int:
        """Return where the string that starts at ``start`` ends."""
        if self.text[start : start + 1] != '"':
            raise self.fault("expected a string", start)
        position = start
        after = start + 1
        while after > position:
            self.stepped(after)
            position = after
            match = _STRING_PART.match(self.text, position)
            after = position if match is None else match.end()
            if self.text[after : after + 1] == '"':
                return after + 1
        raise self.fault("the string has no end", start)

    def first(self, start: int) -> int | None:
        """Return where the first entry of the container at ``start`` starts; None if it is empty."""
        position = self.after_space(start + 1)
        return None if self.text[position : position + 1] == _closer(self.text[start]) else position

    def after_key(self, end: int) -> int:
        """Return where the value starts whose key ends at ``end``."""
        position = self.after_space(end)
        if self.text[position : position + 1] != ":":
            raise self.fault("expected :", position)
        return self.after_space(position + 1)

    def following(self, start: int, end: int) -> int | None:
        """Return where the entry after the one that ends at ``end`` starts; None if that was the last.

        ``start`` is where their container does.
        """
        self.stepped(end)
        position = self.after_space(end)
        mark = self.text[position : position + 1]
        if mark == ",":
            return self.after_space(position + 1)
        if mark != _closer(self.text[start]):
            raise self.fault(f"expected , or {_closer(self.text[start])}", position)
        return None

    def after(self, end: int) -> int:
        """Return the position after the bracket that closes the container whose last entry ends at ``end``."""
        return self.after_space(end) + 1

    def fault(self, message: str, position: int) -> JSONDecodeError:
        """Make the error for what stands at ``position``."""
        return JSONDecodeError(message, self.text, position)


def brackets(text: str) -> str:
    """Return the brackets of a text that does not start within a string, in one call: bound the text."""
    return _NO_BRACKETS.sub("", text)


def indented(text: str) -> str:
    """The JSON ``text`` with a line for each value; keys and numbers stay as they are written, equal keys too.

    Only white space between tokens changes, and escaped characters of strings stand as they are, to be found.
    """
    parts: list[str] = []
    depth = 0
    is_open = False  # whether the last piece opened a container
    for found in _TOKEN.finditer(text):
        piece = found[0]
        if "\\u" in piece:
            piece = json.dumps(json.loads(piece), ensure_ascii=False)
        if piece in _CLOSING:
            depth -= 1
            if not is_open:
                parts.append(_line(depth))
            is_open = False
            parts.append(piece)
            continue
        if is_open:
            parts.append(_line(depth))
        is_open = piece in _OPENING
        parts.append(piece)
        if is_open:
            depth += 1
        elif piece == ",":
            parts.append(_line(depth))
        elif piece == ":":
            parts.append(" ")
    return "".join(parts)


def _line(depth: int) -> str:
    return "\n" + " " * depth


def _closer(opening: str) -> str:
    return "]" if opening == "[" else "}"
