"""Which sessions to forget: a policy like those of backup programs, decided as a value. Pure."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_int, require_number
from ctxfs.eviction.placeholder.lines import plural
from ctxfs.session.listing.summary import SessionSummary


@names_settings({"keep_within_s": "give older_than_s: only sessions unchanged for longer are forgotten"})
@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPolicy:
    """Which sessions to forget.

    The rules that select (``older_than_s``, ``larger_than_bytes``, ``tags``) must all hold; without one, every session
    is selected. Of those, each rule that keeps protects sessions. The others are forgotten; with
    ``max_size_bytes``, the oldest first, and only until the sessions fit. A session that an agent writes to, and
    one that cannot be read, is always kept.

    Raises:
        ConfigError: a value that cannot work, or no rule at all.

    """

    keep_last: int | None = None
    """Keep this many of the newest sessions. None: no such rule. 0 is a rule that keeps none."""

    keep_tags: tuple[str, ...] = ()
    """Keep sessions with one of these tags."""

    older_than_s: float | None = None
    """Only sessions that did not change for this many seconds; None: of any age. 0 is a rule that selects them all."""

    larger_than_bytes: int | None = None
    """Only sessions whose files take more bytes than this; None: of any size."""

    tags: tuple[str, ...] = ()
    """Only sessions with one of these tags; empty: with any tag, or without one."""

    max_size_bytes: int | None = None
    """Forget no more than is needed until all sessions together take at most this many bytes; None: no such limit."""

    def __post_init__(self) -> None:
        if self.keep_last is not None:
            require_int("keep_last", self.keep_last, at_least=0)
        for name in ("older_than_s", "larger_than_bytes", "max_size_bytes"):
            if getattr(self, name) is not None:
                require_number(name, getattr(self, name), at_least=0)
        for name in ("keep_tags", "tags"):
            if not isinstance(getattr(self, name), tuple):
                raise ConfigError(f"{name} is {getattr(self, name)!r}: use a tuple of texts")
        measures = (self.keep_last, self.older_than_s, self.larger_than_bytes, self.max_size_bytes)
        if not (self.keep_tags or self.tags) and all(measure is None for measure in measures):
            raise ConfigError(
                "no rule says what to forget: give one, such as keep_last (--keep-last 20) "
                "or older_than_s (--older-than 30d)"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Whether one session is forgotten, and why. ``contents`` and ``size_bytes`` say how much it holds."""

    session_id: str
    forget: bool
    reason: str
    changed_at: float
    contents: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetPlan:
    """What a policy means for the sessions of a root, newest first; ``max_size_bytes`` is the policy's."""

    verdicts: tuple[Verdict, ...]
    max_size_bytes: int | None = None

    @property
    def forgotten(self) -> tuple[Verdict, ...]:
        """The sessions to forget."""
        return tuple(verdict for verdict in self.verdicts if verdict.forget)

    @property
    def size_bytes(self) -> int:
        """The space that forgetting them frees; less if a session that is kept shares their files."""
        return sum(verdict.size_bytes for verdict in self.forgotten)

    @property
    def over_bytes(self) -> int:
        """By how many bytes the rest exceeds the limit, although everything that may be was forgotten."""
        if self.max_size_bytes is None:
            return 0
        left = sum(verdict.size_bytes for verdict in self.verdicts) - self.size_bytes
        return max(0, left - self.max_size_bytes)


def plan_forget(
    sessions: Sequence[SessionSummary], policy: ForgetPolicy, *, now: float, running: Collection[str] = ()
) -> ForgetPlan:
    """Decide which sessions a policy forgets; ``now``: in seconds since the epoch; ``running``: those being written."""
    newest_first = sorted(sessions, key=lambda session: (-session.changed_at, session.session_id))
    size = sum(session.disk_bytes for session in sessions)
    verdicts: list[Verdict] = []
    for place in reversed(range(len(newest_first))):  # the oldest are forgotten first
        session = newest_first[place]
        why = _why_kept(session, place, policy, now=now, running=running)
        if why is None and policy.max_size_bytes is not None and size <= policy.max_size_bytes:
            why = "the sessions fit"
        if why is not None:
            verdicts.append(verdict_on(session, forget=False, reason=why))
            continue
        size -= session.disk_bytes
        verdicts.append(verdict_on(session, forget=True, reason=_why_forgotten(session, policy, now=now)))
    return ForgetPlan(verdicts=tuple(reversed(verdicts)), max_size_bytes=policy.max_size_bytes)


def verdict_on(session: SessionSummary, *, forget: bool, reason: str) -> Verdict:
    """The verdict on a session, with what it holds."""
    return Verdict(
        session_id=session.session_id,
        forget=forget,
        reason=reason,
        changed_at=session.changed_at,
        contents=session.stored,
        size_bytes=session.disk_bytes,
    )


def _why_kept(  # noqa: PLR0911 - one for each rule
    session: SessionSummary, place: int, policy: ForgetPolicy, *, now: float, running: Collection[str]
) -> str | None:
    """Why a session stays whatever its size; None if nothing keeps it."""
    age_s = now - session.changed_at
    tags = set(session.tags)
    if session.session_id in running:
        return "an agent writes to it"
    if session.error is not None:
        return "it cannot be read: look at it, or `ctxfs forget SESSION`"
    if not tags.isdisjoint(policy.keep_tags):
        return f"it has a tag of {', '.join(policy.keep_tags)}"
    if policy.keep_last is not None and place < policy.keep_last:
        return f"it is one of the last {policy.keep_last}"
    if policy.older_than_s is not None and age_s < policy.older_than_s:
        return f"it is not older than {_span(policy.older_than_s)}"
    if policy.larger_than_bytes is not None and session.disk_bytes <= policy.larger_than_bytes:
        return f"it is not larger than {policy.larger_than_bytes:,} bytes"
    if policy.tags and tags.isdisjoint(policy.tags):
        return f"it has no tag of {', '.join(policy.tags)}"
    return None


def _why_forgotten(session: SessionSummary, policy: ForgetPolicy, *, now: float) -> str:
    reasons = []
    if policy.older_than_s is not None:
        reasons.append(f"unchanged for {_span(now - session.changed_at)}")
    if policy.larger_than_bytes is not None:
        reasons.append(f"larger than {policy.larger_than_bytes:,} bytes")
    if policy.tags:
        reasons.append(f"tagged {', '.join(tag for tag in session.tags if tag in policy.tags)}")
    if policy.max_size_bytes is not None:
        reasons.append(f"so that the sessions fit in {plural(policy.max_size_bytes, 'byte')}")
    return "; ".join(reasons) or "no rule keeps it"


def _span(seconds: float) -> str:
    for unit, length in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= length:
            return f"{seconds / length:.0f}{unit}"
    return f"{seconds:.0f}s"
