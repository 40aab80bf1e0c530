"""What takes the place of contents that must not be seen: of what patterns match, and of what was erased. Pure.

The one home of this rule. ``AgentConfig(redact=Redaction(...))`` applies it before a result is stored, ``ctxfs view
--export --redact`` before a page is written, and ``ctxfs.session.erase`` to what was stored already.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import re2

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings
from ctxfs.messages.messages import Content, ToolCall
from ctxfs.session.content.visible import visible_text

REDACTED = "[redacted]"
_ERASED = "[erased]"
_SURROGATE = re.compile("[\ud800-\udfff]")


@names_settings()
@dataclass(frozen=True, slots=True, kw_only=True)
class Redaction:
    """Removes what patterns match. Can be used as ``AgentConfig(redact=Redaction(patterns=[...]))``.

    A text is searched as a whole: what is cut before it is redacted may show a part of a match.

    Args:
        patterns: RE2 expressions; their matches become ``[redacted]``. Each pattern sees the original text, and
            matches that overlap become one, so that none is left in part. Matches of nothing are ignored.
        contents: whether to remove all that a user, a model or a tool wrote, and paths.

    Raises:
        ConfigError: a pattern is not a regular expression.
    """

    patterns: Sequence[str] = ()
    contents: bool = False
    _compiled: Sequence[Any] = field(init=False, default=())

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str):
            raise ConfigError("patterns is a text: use a list of RE2 expressions")
        object.__setattr__(self, "_compiled", tuple(map(_compiled, self.patterns)))

    def __call__(self, _: ToolCall, content: Content) -> Content:
        """A tool's result without what the patterns match; see ``AgentConfig.redact``."""
        if self.contents:
            return REDACTED
        return cast("Content", self.value(content))

    def text(self, text: str) -> str:
        """A text without what the patterns match."""
        searched = _SURROGATE.sub("\ufffd", text)  # RE2 takes UTF-8, which has no lone surrogates
        spans: list[tuple[int, int]] = []
        for pattern in self._compiled:
            spans += _spans(pattern, searched)
        pieces: list[str] = []
        end = 0
        for start, stop in sorted(spans):
            if start >= end:
                pieces += [text[end:start], REDACTED]
            end = max(end, stop)
        pieces.append(text[end:])
        return "".join(pieces)

    def value(self, value: Any) -> Any:
        """JSON data, such as arguments or content blocks, without what the patterns match in its texts.

        The bytes of images and documents stay as they are: a match in their base64 text would be chance.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            if value.get("type") == "base64":
                return value
            return {name: one if name == "type" else self.value(one) for name, one in value.items()}
        if isinstance(value, list | tuple):
            return type(value)(map(self.value, value))
        return value

    def shown(self, text: str) -> str:
        """A text of a page: a name, a reason, a figure. The patterns see control characters as escapes."""
        return self.text(visible_text(text))

    def content(self, text: str) -> str:
        """A text on a page that a user, a model or a tool wrote; all of it."""
        return REDACTED if self.contents and text else self.shown(text)


def erased(content: Any) -> Any:
    """What stays of a content, or of arguments: never longer than the original in JSON, and stable if erased again."""
    if isinstance(content, str):
        return _ERASED[: len(content)]
    if isinstance(content, Mapping):
        return {}
    calls = [
        {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
        for block in content
        if block.get("type") == "tool_use"
    ]
    return calls or (_ERASED if content else "")


def _spans(pattern: Any, text: str) -> Iterable[tuple[int, int]]:
    """Where the pattern matches, except for matches of nothing."""
    spans: Iterable[tuple[int, int]] = (found.span() for found in pattern.finditer(text))
    return (span for span in spans if span[0] < span[1])


def _compiled(pattern: str) -> Any:
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except (re2.error, ValueError, TypeError) as error:
        detail = error.args[0] if error.args else error
        said = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise ConfigError(f"redact {pattern!r}: {said}; write an RE2 expression") from error
