"""Every error that ctxfs raises on purpose: data in attributes, and in the message what to do next.

::

    CtxfsError
    ├── ConfigError                  a setting that cannot work (also a ValueError)
    │   └── UnsupportedCacheTtl      a time that the model's provider does not cache for
    ├── MissingExtra                 an optional dependency is not installed (also an ImportError)
    ├── SessionError
    │   ├── AgentBusy                a second query while one is running
    │   ├── SessionLocked            another process writes this session
    │   ├── SessionNotFound          no such session under this root
    │   ├── SessionExists            a session of that id is there already
    │   ├── SessionClosed            used before open or after close
    │   ├── UnknownItem              no item of that id in this session
    │   ├── NotRestorable            a content that cannot come back into the context, only be read
    │   └── AmbiguousItem            several sessions have an item of that id
    ├── StorageError
    │   ├── WriteFailed              the bytes are not durable; nothing was replaced
    │   ├── NameTaken                create-only: the name exists already
    │   ├── NotStored                no file of that name
    │   ├── CorruptContent           a checksum does not match
    │   ├── CorruptJournal           the journal cannot be read
    │   ├── UnsafePath               a link, a foreign owner, or a name that points outside of the session
    │   ├── Unrecorded               closed with items that could not be written
    │   └── ArchiveError             a file that is not an export of a session
    │       ├── ArchiveDamaged       truncated, changed, or with data after its end
    │       ├── ArchiveUnsafe        names or contents that no export contains: links, "..", duplicates
    │       └── ArchiveTooLarge      more bytes or files than the caller allows
    ├── InvalidRecord                a record that could not be read back from the journal (also a ValueError)
    ├── TranscriptError              messages that a provider would refuse, or that could not be recorded
    ├── ToolError
    │   ├── ToolDefinitionError      a function that cannot become a tool (also a TypeError)
    │   ├── InvalidToolArguments     the model's arguments do not validate
    │   └── WorkLimitReached         a call that exceeds its limit of CPU time
    ├── ModelError
    │   ├── MissingApiKey            no key in the environment
    │   ├── AuthenticationFailed     the provider refused the key
    │   ├── RateLimited              429, after all retries
    │   ├── Overloaded               5xx, after all retries
    │   ├── ConnectionFailed         network or time-out, after all retries
    │   ├── PromptTooLong            the prompt is longer than the provider accepts
    │   ├── InvalidRequest           any other 4xx
    │   ├── InvalidReply             a reply whose usage or model name cannot be recorded (also a ValueError)
    │   ├── ReplyIncomplete          the reply was truncated or interrupted
    │   └── InvalidFunctionCall      a call in text form that cannot be parsed
    ├── TurnLimitReached             the query reached max_turns
    ├── ContextOverflow              the context does not fit, and nothing in it can be reduced
    └── ReplayFormatError            a recording in no known format
"""

from collections.abc import Iterable, Sequence

__all__ = [
    "AgentBusy", "AmbiguousItem", "ArchiveDamaged", "ArchiveError", "ArchiveTooLarge", "ArchiveUnsafe",
    "AuthenticationFailed", "ConfigError", "ConnectionFailed", "ContextOverflow", "CorruptContent", "CorruptJournal",
    "CtxfsError", "InvalidFunctionCall", "InvalidRecord", "InvalidReply", "InvalidRequest", "InvalidToolArguments",
    "MissingApiKey", "MissingExtra", "ModelError", "NameTaken", "NotRestorable", "NotStored", "Overloaded",
    "PromptTooLong", "RateLimited", "ReplayFormatError", "ReplyIncomplete", "SessionClosed", "SessionError",
    "SessionExists", "SessionLocked", "SessionNotFound", "StorageError", "ToolDefinitionError", "ToolError",
    "TranscriptError", "TurnLimitReached", "UnknownItem", "Unrecorded", "UnsafePath", "UnsupportedCacheTtl",
    "WorkLimitReached", "WriteFailed",
]  # fmt: skip


class CtxfsError(Exception):
    """Base of every error that ctxfs raises on purpose."""


class ConfigError(CtxfsError, ValueError):
    """A setting that cannot work; the message names the setting and what it accepts."""


class UnsupportedCacheTtl(ConfigError):
    """The model's provider does not keep a cached prefix for that time; ``offered`` are the times that it offers."""

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
        self.extra = extra
        self.package = package


class SessionError(CtxfsError):
    """Something about a session as a whole."""


class AgentBusy(SessionError):
    """A second query was started while one is running on the same agent."""


class SessionLocked(SessionError):
    """Another writer holds the session; any number of readers may still open it."""

    def __init__(self, session_id: str, holder: str | None = None) -> None:
        by = f" by {holder}" if holder else ""
        super().__init__(f"session {session_id} is locked{by}: close the other writer, or open it read-only")
        self.session_id = session_id
        self.holder = holder


class SessionNotFound(SessionError):
    """There is no such session under the root."""

    def __init__(self, session_id: str, root: str) -> None:
        super().__init__(f"no session {session_id!r} under {root}: `ctxfs sessions` lists what is there")
        self.session_id = session_id
        self.root = root


class SessionExists(SessionError):
    """A session of that id is there already, and nothing of it is ever replaced."""

    def __init__(self, session_id: str, root: str) -> None:
        super().__init__(f"session {session_id!r} already exists under {root}: use another session id (--as ID)")
        self.session_id = session_id
        self.root = root


class SessionClosed(SessionError):
    """The session is not open."""


class UnknownItem(SessionError, LookupError):
    """No item of that id in this session; items of other sessions are unknown here too."""

    def __init__(self, item_id: str) -> None:
        super().__init__(f"no item {item_id!r} in this session: list the items to see their ids")
        self.item_id = item_id


class NotRestorable(SessionError):
    """The content of ``item_id`` cannot come back into the context; what it can be read from is in the message."""

    def __init__(self, item_id: str, reason: str) -> None:
        super().__init__(f"{item_id} cannot be restored: {reason}")
        self.item_id = item_id


class AmbiguousItem(SessionError, LookupError):
    """Several sessions have an item of that id; ``sessions`` are their ids."""

    def __init__(self, item_id: str, sessions: Sequence[str]) -> None:
        shown = ", ".join(sessions[:5]) + (", …" if len(sessions) > 5 else "")
        super().__init__(f"{len(sessions)} sessions have an item {item_id!r} ({shown}): choose one with session_id")
        self.item_id = item_id
        self.sessions = tuple(sessions)


class StorageError(CtxfsError):
    """Something about the files of a session."""


class WriteFailed(StorageError):
    """The bytes are not durable and replaced nothing; the original error is the ``__cause__``."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"could not store {name}: {reason}")
        self.name = name
        self.reason = reason


class NameTaken(StorageError):
    """A file of that name exists; stored content is never overwritten."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} exists already, and stored content is never overwritten")
        self.name = name


class NotStored(StorageError, LookupError):
    """No file of that name in the session."""

    def __init__(self, name: str) -> None:
        super().__init__(f"no file {name} in this session")
        self.name = name


class CorruptContent(StorageError):
    """The bytes on disk differ from the bytes that were written."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name} is damaged ({detail}): restore it from a backup or an export")
        self.name = name
        self.detail = detail


class CorruptJournal(StorageError):
    """The journal cannot be read."""

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(f"the journal of session {session_id} {reason}")
        self.session_id = session_id
        self.reason = reason


class UnsafePath(StorageError):
    """A link, a special file, a foreign owner, or a name that points outside of the session's directory.

    ``name`` is the path, file name or id that was given; ``reason`` says why it is unsafe.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{name!r} {reason}")
        self.name = name
        self.reason = reason


class ArchiveError(StorageError):
    """A file that is not an export of a session; nothing was imported."""


class ArchiveDamaged(ArchiveError):
    """The archive is truncated or changed, or has data after its end: copy it again, or export again."""


class ArchiveUnsafe(ArchiveError):
    """The archive holds names or contents that no export contains: do not trust its source."""


class ArchiveTooLarge(ArchiveError):
    """The archive holds more bytes or files than the caller allows (``limit``)."""

    def __init__(self, what: str, limit: int) -> None:
        super().__init__(f"the archive holds more than {limit:,} {what}: raise the limit if you trust it")
        self.limit = limit


class Unrecorded(StorageError):
    """The session was closed, and the items with the ids ``items`` exist only in memory: writing them had failed.

    The ``__cause__`` is the error of the last attempt, if it was a ``StorageError``.
    """

    def __init__(self, session_id: str, items: Sequence[str]) -> None:
        shown = ", ".join(items[:5]) + (", …" if len(items) > 5 else "")
        super().__init__(
            f"session {session_id} was closed with {len(items)} items that could not be written ({shown}): "
            "they are still in the context's `items`; add them again once the session can be written"
        )
        self.items = tuple(items)


class InvalidRecord(CtxfsError, ValueError):
    """A value that could not be read back from the journal unchanged, so that nothing was written: change the value."""


class TranscriptError(CtxfsError):
    """Messages that a provider would refuse with a 400, or that a session could not return unchanged."""

    def __init__(self, violations: Iterable[str]) -> None:
        self.violations = tuple(violations)
        super().__init__("; ".join(self.violations))


class ToolError(CtxfsError):
    """Something about a tool or a call of one."""


class ToolDefinitionError(ToolError, TypeError):
    """A function that cannot become a tool."""


class InvalidToolArguments(ToolError, ValueError):
    """The model's arguments do not validate against the tool's schema."""


class WorkLimitReached(ToolError):
    """A call exceeds its limit of CPU time; the message says how to ask for less work."""


class ModelError(CtxfsError):
    """Something about a model or its provider.

    ``status`` is the HTTP status of the last response (for an error in mid-stream, the status of its type) and
    ``retry_after_s`` its Retry-After in seconds; None if there was none. ``attempts`` is how often the call was made; 0
    if that is unknown, or if it was not made.
    """

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, attempts: int = 0
    ) -> None:
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.attempts = attempts


class MissingApiKey(ModelError):
    """No API key was given, and none is in the environment."""


class AuthenticationFailed(ModelError):
    """The provider refused the key (401, 403)."""


class RateLimited(ModelError):
    """The provider answered 429, also after all retries."""


class Overloaded(ModelError):
    """The provider answered 5xx or "overloaded", also after all retries."""


class ConnectionFailed(ModelError):
    """The network failed or a time-out passed, also after all retries."""


class PromptTooLong(ModelError):
    """The prompt exceeds the provider's limit; ``limit_tokens`` and ``actual_tokens`` are None if it gave none."""

    def __init__(
        self,
        message: str,
        *,
        limit_tokens: int | None = None,
        actual_tokens: int | None = None,
        status: int | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.limit_tokens = limit_tokens
        self.actual_tokens = actual_tokens


class InvalidRequest(ModelError):
    """The provider refused the request (4xx); the message is the provider's."""


class InvalidReply(ModelError, ValueError):
    """A reply whose usage or model name cannot be recorded; the message says what to write instead."""


class ReplyIncomplete(ModelError):
    """The reply was truncated by the token limit or interrupted; ``stop_reason`` is the provider's, if it gave one."""

    def __init__(self, message: str, *, stop_reason: str | None = None) -> None:
        super().__init__(message)
        self.stop_reason = stop_reason


class InvalidFunctionCall(ModelError):
    """The model wrote a call in text form that cannot be parsed, also when asked again; nothing was run."""


class TurnLimitReached(CtxfsError):
    """The query made ``max_turns`` model calls; the transcript is valid, and the next query continues from it."""

    def __init__(self, max_turns: int) -> None:
        super().__init__(f"stopped after {max_turns} turns: query again to continue, or raise max_turns")
        self.max_turns = max_turns


class ContextOverflow(CtxfsError):
    """The context exceeds its limit and nothing in it can be reduced; ``items`` are the ids of the largest items.

    If items could not be evicted because storing them failed, the ``__cause__`` is the ``StorageError``.
    """

    def __init__(
        self, limit_tokens: int, actual_tokens: int, items: Sequence[str] = (), *, why: str = "these cannot be reduced"
    ) -> None:
        stuck = f"; {why}: {', '.join(items)}" if items else ""
        super().__init__(f"the context needs {actual_tokens} tokens, its limit is {limit_tokens}{stuck}")
        self.limit_tokens = limit_tokens
        self.actual_tokens = actual_tokens
        self.items = tuple(items)

    def because(self, why: str) -> "ContextOverflow":
        """The same error with another reason why nothing can be evicted."""
        return ContextOverflow(self.limit_tokens, self.actual_tokens, self.items, why=why)


class ReplayFormatError(CtxfsError, ValueError):
    """A recording in an unknown format; the message names the known ones."""
