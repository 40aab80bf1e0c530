"""The base of all errors, and those of settings, tools, transcripts and limits."""

from collections.abc import Iterable, Sequence
from traceback import format_tb

_QUOTED_CHARS = 200
"""The most characters of a value that an error shows: ids, paths and patterns come from models and servers."""
_MESSAGE_CHARS = 4_000
"""The most characters of an error's message, whatever it was made of."""


def quoted(given: object) -> str:
    """A value as an error shows it: in quotes, and no more than a line of it."""
    if isinstance(given, str) and len(given) > _QUOTED_CHARS:
        return f"{given[:_QUOTED_CHARS]!r}… ({len(given):,} characters)"
    return repr(given)


def described(error: BaseException) -> str:
    """A defect for the log: its type and where it was raised, without its text, which may quote a content."""
    return f"{type(error).__name__}\n{''.join(format_tb(error.__traceback__))}"


class CtxfsError(Exception):
    """Base of every error that ctxfs raises on purpose.

    ``told``: what a model reads instead of the message, which may name commands, calls of this library, or places that
    are none of the model's business; None: the model reads the message.
    """

    told: str | None = None

    def __init__(self, *args: object) -> None:
        super().__init__(*map(_bounded, args))


def _bounded(arg: object) -> object:
    """A message that is not longer than an error may be; its end, which says what to do, stays."""
    if not isinstance(arg, str) or len(arg) <= _MESSAGE_CHARS:
        return arg
    half = _MESSAGE_CHARS // 2
    return f"{arg[:half]} … ({len(arg) - _MESSAGE_CHARS:,} characters are left out) … {arg[-half:]}"


class ConfigError(CtxfsError, ValueError):
    """A setting that cannot work; the message names the setting and what it accepts."""


class UnsupportedCacheTtl(ConfigError):
    """The model's provider does not keep a cached prefix for that long; ``offered`` are the times that it offers."""

    def __init__(self, cache_ttl: str, offered: Iterable[str], *, model: str = "") -> None:
        self.cache_ttl = cache_ttl
        self.offered = tuple(offered)
        self.model = model
        of = f" of {model}" if model else ""
        super().__init__(f"cache_ttl is {cache_ttl!r}: the provider{of} offers {', '.join(map(repr, self.offered))}")


class MissingExtra(CtxfsError, ImportError):
    """An optional dependency is not installed."""

    def __init__(self, extra: str, package: str) -> None:
        super().__init__(f"{package} is not installed: pip install 'ctxfs[{extra}]'")
        self.told = f"this cannot be done here, because {package} is not installed"
        self.extra = extra
        self.package = package


class InvalidRecord(CtxfsError, ValueError):
    """A value that could not be read back from the journal unchanged; nothing was written, so change the value."""


class TranscriptError(CtxfsError):
    """Messages that a provider would refuse with a 400, or that a session could not return unchanged."""

    def __init__(self, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))


class ToolError(CtxfsError):
    """Base of the errors of tools and tool calls."""


class ToolDefinitionError(ToolError, TypeError):
    """A function that cannot become a tool."""


class InvalidToolArguments(ToolError, ValueError):
    """The model's arguments do not validate against the tool's schema."""


class WorkLimitReached(ToolError):
    """A call exceeds its limit of CPU time; the message says how to ask for less work."""


class TurnLimitReached(CtxfsError):
    """The query made ``max_turns`` model calls; the transcript is valid, and the next query continues from it."""

    def __init__(self, max_turns: int) -> None:
        super().__init__(f"stopped at max_turns={max_turns}: query again to continue, or raise max_turns")
        self.max_turns = max_turns


class ContextOverflow(CtxfsError):
    """The context exceeds its limit and nothing in it can be reduced; ``items`` are the ids of the largest items.

    If items could not be evicted because storing them failed, the ``__cause__`` is the ``StorageError``.
    """

    def __init__(
        self, limit_tokens: int, actual_tokens: int, items: Sequence[str] = (), *, why: str = "these cannot be reduced"
    ) -> None:
        stuck = f"; {why}: {', '.join(items)}" if items else ""
        super().__init__(f"the context needs {actual_tokens:,} tokens, but its limit is {limit_tokens:,}{stuck}")
        self.limit_tokens = limit_tokens
        self.actual_tokens = actual_tokens
        self.items = tuple(items)

    def because(self, why: str) -> "ContextOverflow":
        """The same error with another reason why nothing can be evicted."""
        return ContextOverflow(self.limit_tokens, self.actual_tokens, self.items, why=why)


class ReplayFormatError(CtxfsError, ValueError):
    """A recording in an unknown format; the message names the known ones."""
