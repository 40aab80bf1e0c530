"""What an exported page does not show. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

from ctxfs.content.visible import visible_text
from ctxfs.errors import ConfigError

__all__ = ["REDACTED", "Redaction"]

REDACTED = "[redacted]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """What is removed from every text before it is shown, and before it is cut.

    Args:
        patterns: RE2 expressions; their matches become ``[redacted]``. They see control characters as escapes.
        contents: whether to remove all that a user, a model or a tool wrote, and paths.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """

    patterns: Sequence[str] = ()
    contents: bool = False
    _compiled: Sequence[Any] = field(init=False, default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "_compiled", tuple(map(_compiled, self.patterns)))

    def shown(self, text: str) -> str:
        """A text of the page: a name, a reason, a figure."""
        text = visible_text(text)
        for pattern in self._compiled:
            text = pattern.sub(REDACTED, text)
        return text

    def content(self, text: str) -> str:
        """A text that a user, a model or a tool wrote, or part of one."""
        return REDACTED if self.contents and text else self.shown(text)


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, ValueError) as error:
        detail = error.args[0] if error.args else error
        said = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise ConfigError(f"--redact {pattern!r}: {said}; write an RE2 expression") from error
