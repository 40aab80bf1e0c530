"""The errors, each with what its message says to do."""

import shlex
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


class ModelError(CtxfsError):
    """Base of the errors of a model or its provider.

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
    """The provider answered 429, even after all retries."""


class Overloaded(ModelError):
    """The provider answered 5xx or "overloaded", even after all retries."""


class ConnectionFailed(ModelError):
    """The network failed or a time-out passed, even after all retries."""


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
    """The model wrote a call in text form that cannot be parsed, even when asked again; nothing was run."""


class BudgetSpent(ModelError):
    """A call that could exceed its budget was refused before it was sent; nothing was spent on it."""


class SessionError(CtxfsError):
    """Base of the errors about a session as a whole."""


class AgentBusy(SessionError):
    """A second query was started while one is running on the same agent."""


class SessionLocked(SessionError):
    """Another writer holds the session; any number of readers may still open it."""

    told = "another program is writing to this session: try again later"

    def __init__(self, session_id: str, holder: str | None = None) -> None:
        by = f" by {holder}" if holder else ""
        super().__init__(f"session {session_id} is locked{by}: close the other writer, or open the session read-only")
        self.session_id = session_id
        self.holder = holder


class SessionNotFound(SessionError):
    """There is no such session in ``root``; ``removed`` says when and why it was removed; "" if it was not.

    ``root``: a directory, the URL of a store, or "this object store" where its URL is not known. ``meant``: the session
    there whose id is spelled like this one, or "last" on the command line; "" if there is none, or it was not looked
    for.
    """

    def __init__(self, session_id: str, root: str, removed: str = "", *, meant: str = "") -> None:
        if removed:
            said = f"session {session_id} was {removed}"
        elif meant:
            said = f"no session {quoted(session_id)} under {root}: did you mean {quoted(meant)}? {_listed(root)}"
        else:
            said = f"no session {quoted(session_id)} under {root}: {_listed(root)}"
        super().__init__(said)
        self.session_id = session_id
        self.root = root
        self.removed = removed
        self.meant = meant


def _listed(root: str) -> str:
    """Say how to list what is there, and how to look somewhere else."""
    if root.startswith(("this ", "memory")):
        return "`ctxfs sessions --store URL` lists what is in a store"
    if "://" in root:
        return f"`ctxfs sessions --store {shlex.quote(root)}` lists what is there"
    return "`ctxfs sessions` lists what is there; --root DIR or CTXFS_ROOT names another directory"


class QuotaExceeded(SessionError):
    """The sessions under a root take up ``size_bytes``, which is more than their limit, ``max_bytes``."""

    def __init__(self, root: str, size_bytes: int, max_bytes: int) -> None:
        super().__init__(
            f"the sessions under {root} take up {size_bytes:,} bytes, more than the limit of {max_bytes:,}: "
            "`ctxfs du` shows what takes up space; `ctxfs forget` and `ctxfs prune` free some"
        )
        self.root = root
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes


class SessionExists(SessionError):
    """A session with that id exists already; it is never overwritten."""

    def __init__(self, session_id: str, root: str) -> None:
        super().__init__(f"session {quoted(session_id)} already exists under {root}: use another session id (--as ID)")
        self.session_id = session_id
        self.root = root


class SessionDiverged(SessionError):
    """Two copies of a session were both written to, so that neither holds all of it; nothing was changed."""

    def __init__(self, session_id: str) -> None:
        super().__init__(
            f"both copies of session {session_id} were written to after they last agreed: keep one, and remove the "
            "other with `ctxfs forget SESSION`"
        )
        self.session_id = session_id


class SessionClosed(SessionError):
    """The session is not open."""

    told = "this session is closed"


class UnknownItem(SessionError, LookupError):
    """No item with that id is in this session; items of other sessions are unknown here too.

    ``session_id``: the session; "" if it is not known here. ``meant``: the item whose id is spelled like this one.
    ``workspace``: the place whose sessions were all searched; "": it was one session.
    """

    def __init__(self, item_id: str, *, session_id: str = "", meant: str = "", workspace: str = "") -> None:
        likely = f"did you mean {quoted(meant)}? " if meant else ""
        listed = f"list the items (`ctxfs ls {shlex.quote(session_id) if session_id else 'SESSION'}`) to see their ids"
        where = "this session"
        if workspace:
            where = f"the workspace {workspace}"
            listed = "query_artifacts() lists what it has"
        super().__init__(f"no item {quoted(item_id)} in {where}: {likely}{listed}")
        self.item_id = item_id
        self.told = f"no item {quoted(item_id)} in {where}: use an id or a path that a placeholder names"


class ContentGone(SessionError, LookupError):
    """The content of ``item_id`` was removed on purpose; ``detail`` says when, by what, why, and what it held."""

    def __init__(self, item_id: str, detail: str) -> None:
        super().__init__(f"the content of {item_id} was {detail}")
        self.item_id = item_id
        self.detail = detail


class UnknownCall(SessionError, LookupError):
    """There is no call number ``call`` in this session: the model was called ``calls`` times."""

    def __init__(self, call: int, calls: int) -> None:
        super().__init__(
            f"there is no call {quoted(call)} in this session: use one from 1 to {calls + 1} (the next call)"
        )
        self.call = call
        self.calls = calls


class NotRestorable(SessionError):
    """A change cannot be undone, or a content cannot come back into the context; the message says why.

    ``item_id``: the id of the item or change, or of a session that ctxfs cannot change.
    """

    def __init__(self, item_id: str, reason: str, *, done: str = "restored") -> None:
        super().__init__(f"{item_id} cannot be {done}: {reason}")
        self.item_id = item_id


class AmbiguousItem(SessionError, LookupError):
    """Several sessions have an item with that id; ``sessions`` are their ids."""

    def __init__(self, item_id: str, sessions: Sequence[str]) -> None:
        shown = ", ".join(sessions[:5]) + (", …" if len(sessions) > 5 else "")
        super().__init__(
            f"{len(sessions)} sessions have an item {quoted(item_id)} ({shown}): choose one with session_id"
        )
        self.item_id = item_id
        self.sessions = tuple(sessions)


class StorageError(CtxfsError):
    """Base of the errors about the files of a session."""


class WriteFailed(StorageError):
    """The bytes are not durable and replaced nothing; the original error is the ``__cause__``."""

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"could not store {name}: {reason}")
        self.name = name
        self.reason = reason


class OutcomeUnknown(WriteFailed):
    """A store did not answer: the bytes may have been stored, or may be stored later.

    Nothing more is written until the store has said what it has: an open session asks it before its next change.
    """

    told = "it is not known whether this was stored"

    def __str__(self) -> str:
        return f"it is unknown whether {self.name} was stored ({self.reason}): the next change of the session finds out"


class StoreRefused(StorageError):
    """The server refuses, and will refuse again: no such database or bucket, no such account, no right, no tables.

    The message says what it refused, and what to do. Nothing was stored.
    """


class NameTaken(StorageError):
    """A file with that name exists already; stored content is never overwritten."""

    def __init__(self, name: str) -> None:
        super().__init__(f"{name} already exists, and stored content is never overwritten")
        self.name = name


class NotStored(StorageError, LookupError):
    """No file with that name is in the session."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no file {name} in this session, and ctxfs did not remove it: `ctxfs check` lists everything missing"
        )
        self.name = name
        self.told = f"its file {name} is missing"


class CorruptContent(StorageError):
    """The bytes on disk differ from the bytes that were written."""

    def __init__(self, name: str, detail: str) -> None:
        super().__init__(f"{name} is damaged ({detail}): restore it from a backup or an export")
        self.name = name
        self.told = f"its file {name} is damaged ({detail})"
        self.detail = detail


class CorruptJournal(StorageError):
    """The journal cannot be read."""

    told = "the log of this session cannot be read"

    def __init__(self, session_id: str, reason: str) -> None:
        super().__init__(f"the journal of session {session_id} {reason}")
        self.session_id = session_id
        self.reason = reason


class UnsafePath(StorageError):
    """A link, a special file, a foreign owner, or a name that points outside of the session's directory.

    ``name`` is the path, file name or id that was given; ``reason`` says why it is unsafe.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(f"{quoted(name)} {reason}")
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
    """The items with the ids ``items`` exist only in memory: writing them failed.

    The ``__cause__`` is the error of the last attempt, if it was a ``StorageError``.
    """

    def __init__(self, session_id: str, items: Sequence[str]) -> None:
        shown = ", ".join(items[:5]) + (", …" if len(items) > 5 else "")
        super().__init__(
            f"{len(items)} items of session {session_id} could not be written ({shown}): they are only in the "
            "context's `items`. While it is open, the next change writes them too; once it was closed, add them again"
        )
        self.items = tuple(items)
