r"""The expression of all that a match of an RE2 expression may begin with: what is still open where a text was cut.

``ab[cd]`` becomes ``(?:a(?:b(?:[cd])?)?)?``: every beginning of a match matches it. It may match more than that, never
less.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""(?P<quoted>\\Q(?P<literal>.*?)(?:\\E|\Z))
    | (?P<flags>\(\?[a-zA-Z-]+\))
    | (?P<open>\((?:\?P?<\w+>|\?[a-zA-Z-]*:)?)
    | (?P<close>\))
    | (?P<branch>\|)
    | (?P<repeat>(?:[*+?]|\{(?P<least>\d+)(?P<range>,(?P<most>\d*))?\})\??)
    | (?P<atom>\\(?:[pPx]\{[^}]*\}|[pP].|x..|[0-7]{1,3}|.) | \[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\] | .)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class _Part:
    """A part of an expression: ``whole`` as it is, ``begun`` for its beginnings (None: no more than nothing or all)."""

    whole: str
    begun: str | None = None

    def repeated(self, match: re.Match[str]) -> "_Part":
        """Return the part with a quantifier."""
        quantifier = match["repeat"]
        whole = self.whole + quantifier
        if quantifier[0] == "?":
            return _Part(whole, self.begun)
        if match["least"] is None or (match["range"] and not match["most"]):
            return _Part(whole, f"{self.whole}*{self.begun or ''}")
        most = int(match["most"] or match["least"])
        if not most:
            return _Part(whole)
        fewer = most - 1 if self.begun is not None else most
        return _Part(whole, f"{self.whole}{{0,{fewer}}}{self.begun or ''}")


def prefix_pattern(pattern: str) -> str:
    """Return the expression that every beginning of a match of ``pattern``, a valid one, matches."""
    whole = _group(_TOKEN.finditer(pattern), "(?:")
    assert whole.begun is not None
    return whole.begun


def _group(tokens: Iterator[re.Match[str]], opening: str) -> _Part:
    """The tokens up to the closing parenthesis, as one part."""
    branches: list[list[_Part]] = [[]]
    flags = ""  # they hold to the end of the group, in the branches to come too
    for token in tokens:
        branch = branches[-1]
        if token["close"]:
            break
        if token["branch"]:
            branches.append([_Part(flags)])
        elif token["flags"]:
            flags += token["flags"]
            branch.append(_Part(token["flags"]))
        elif token["open"]:
            named = token["open"].endswith(">") or token["open"] == "("
            branch.append(_group(tokens, "(?:" if named else token["open"]))
        elif token["repeat"]:
            branch.append(branch.pop().repeated(token))
        elif token["quoted"]:
            branch += [_Part(f"\\x{{{ord(char):x}}}") for char in token["literal"]]
        else:
            branch.append(_Part(token["atom"]))
    texts = ["".join(part.whole for part in branch) for branch in branches]
    whole = "|".join(texts)
    begun = "|".join(map(_begun, branches))
    return _Part(f"{opening}{whole})", f"{opening}{begun})")


def _begun(parts: list[_Part]) -> str:
    """The beginnings of one part after the other."""
    rest = ""
    for part in reversed(parts):
        alone = "" if part.begun is None else f"{part.begun}|"
        rest = f"(?:{alone}{part.whole}{rest})?"
    return rest
