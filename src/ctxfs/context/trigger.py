"""When a text is worth moving out, by its size alone: small values that a policy is made of. Pure.

Characters are Unicode code points, bytes those of the UTF-8 form (a lone surrogate counts three).
"""

from dataclasses import dataclass

from ctxfs.checks import require_int

__all__ = ["Always", "AtLeast", "Over", "Trigger", "utf8_size"]

_SLICE = 262_144


def utf8_size(text: str) -> int:
    """Count the bytes of ``text`` in UTF-8, without making them all at once."""
    if text.isascii():
        return len(text)
    return sum(len(text[i : i + _SLICE].encode("utf-8", "surrogatepass")) for i in range(0, len(text), _SLICE))


@dataclass(frozen=True, slots=True)
class Always:
    """Whatever its size: the caller has decided."""

    def fires(self, text: str) -> bool:  # noqa: ARG002 - as every trigger is asked
        """True."""
        return True


@dataclass(frozen=True, slots=True)
class AtLeast:
    """From ``chars`` characters on; 0 means always."""

    chars: int

    def __post_init__(self) -> None:
        require_int("the threshold in characters", self.chars, at_least=0)

    def fires(self, text: str) -> bool:
        """Whether ``text`` reaches the threshold."""
        return len(text) >= self.chars


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """Over ``chars`` characters or over ``size_bytes`` bytes, whichever comes first; 0 means whatever is not empty."""

    chars: int
    size_bytes: int

    def __post_init__(self) -> None:
        require_int("chars", self.chars, at_least=0)
        require_int("size_bytes", self.size_bytes, at_least=0)

    def fires(self, text: str) -> bool:
        """Whether ``text`` passes either limit."""
        return len(text) > min(self.chars, self.size_bytes) or utf8_size(text) > self.size_bytes


Trigger = Always | AtLeast | Over
