"""The file of a comparison: what was sent, billed and found, a line each, written and synced before anything goes on.

A session that ends has its line; one that was interrupted has none, and is played again by the next start. What it
spent stays counted: each call has a line before it is sent, and one with its bill.
"""

import os
import secrets
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple, Self, get_args

from ctxfs.errors import ConfigError
from ctxfs.storage.failures import reason_of
from ctxfs.text.jsontext import codec as json_codec

with suppress(ImportError):  # not on Windows, where two starts at once are not noticed
    import fcntl

_VERSION = 1
_BEGINNING = b'{"kind":"comparison",'
"""How the first line of a file begins."""

Outcome = Literal["solved", "unsolved", "timeout", "crashed", "limit", "budget", "failed"]
"""How a session ended. "timeout", "crashed" (the program, or the function) and "limit" (the session's own budget) count
as not solved. "budget" (that of the comparison) and "failed" (the comparison itself) say nothing about the arm: such a
session is left out, and played again by the next start."""

LEFT_OUT: frozenset[Outcome] = frozenset({"budget", "failed"})


class SessionKey(NamedTuple):
    """Which session: a task, a repeat of it from 0 on, and an arm."""

    task: str
    repeat: int
    arm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What a comparison is: a file that was begun with something else is not continued."""

    seed: int
    arms: tuple[str, ...]
    repeats: int
    tasks: str
    command: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionResult:
    """One session that ended.

    ``usd``: by list prices, from the bills. A reply without a bill (``unbilled_calls``) counts with the most that it
    may cost, one of a model without known prices (``unpriced_calls``) with nothing. ``most_usd``: what it had spent and
    reserved at most at a time. ``read_backs``: calls that opened stored content. ``repeated_calls``: calls of a tool
    with the same arguments as before. ``refusals``: requests that the provider refused as invalid. ``cache_breaks``:
    calls for which the provider had less in its prompt cache than for the call before. ``replaced``: contents that were
    replaced, or removed; None: that is not known. ``note``: why it ended so, if that needs a word.
    """

    task: str
    repeat: int
    arm: str
    outcome: Outcome
    usd: float = 0.0
    most_usd: float = 0.0
    calls: int = 0
    unbilled_calls: int = 0
    unpriced_calls: int = 0
    input_tokens: int = 0
    cache_write_tokens: int = 0
    cache_read_tokens: int = 0
    output_tokens: int = 0
    wall_s: float = 0.0
    read_backs: int = 0
    repeated_calls: int = 0
    refusals: int = 0
    cache_breaks: int = 0
    replaced: int | None = None
    note: str = ""

    @property
    def key(self) -> SessionKey:
        """Which session it is."""
        return SessionKey(self.task, self.repeat, self.arm)

    @property
    def solved(self) -> bool:
        """Whether the check said so."""
        return self.outcome == "solved"


@dataclass(slots=True)
class Played:
    """What the lines of a file add up to.

    ``open_usd``: for each call that was sent and not billed, the most that it may cost.
    """

    sessions: dict[SessionKey, SessionResult] = field(default_factory=dict)
    open_usd: dict[tuple[Any, ...], float] = field(default_factory=dict)
    billed_usd: float = 0.0

    @property
    def spent_usd(self) -> float:
        """What all calls cost so far; one whose bill is not known counts with the most that it may have cost."""
        return self.billed_usd + sum(self.open_usd.values())

    def fold(self, record: Mapping[str, Any]) -> None:
        """Take the next line. Raises ``KeyError``, ``TypeError`` or ``ValueError`` for one that is damaged."""
        kind = record["kind"]
        if kind in ("sent", "billed"):
            call = (record["task"], record["repeat"], record["arm"], record["call"], record["start"])
            if kind == "sent":
                self.open_usd[call] = self.open_usd.get(call, 0.0) + float(record["usd"])
            else:
                self.open_usd.pop(call, None)
                self.billed_usd += float(record["usd"])
        elif kind == "session":
            given = {name: value for name, value in record.items() if name != "kind"}
            result = SessionResult(**given)
            if result.outcome not in get_args(Outcome):
                raise ValueError(f"an unknown outcome, {result.outcome!r}")
            self.sessions[result.key] = result


def is_results(path: Path) -> bool:
    """Whether a file begins as the results of a comparison do; False for one that cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINNING)) == _BEGINNING
    except OSError:
        return False


def read_results(path: Path) -> tuple[Header, Played]:
    """The comparison of a file, as far as it was played; another process may be writing to it.

    Raises:
        ConfigError: the file cannot be read, is damaged, or holds no results.

    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({reason_of(error)})") from error
    played = Played()
    try:
        first, *rest = [json_codec.loads(line) for line in data[: data.rfind(b"\n") + 1].splitlines()]
        header = Header(**{one.name: first[one.name] for one in fields(Header)})
        for record in rest:
            played.fold(record)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError(f"{path} is not a file of results ({error}): name the one that `ctxfs ab` wrote") from error
    return replace(header, arms=tuple(header.arms)), played


class Results:
    """The file, open for one comparison; any thread may write.

    Raises:
        ConfigError: the file cannot be written, belongs to another comparison, is damaged, or is in use.

    """

    def __init__(self, path: Path, header: Header) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._start = secrets.token_hex(4)  # calls are counted from 1 on by each start
        self._played = Played()
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise ConfigError(f"{path} cannot be written ({reason_of(error)}): choose another file") from error
        try:
            self._hold()
            self._take(header)
        except BaseException:
            os.close(self._file)
            raise

    @property
    def spent_usd(self) -> float:
        """What all calls cost so far, those of interrupted sessions and of earlier starts too.

        A call whose bill is not known counts with the most that it may have cost.
        """
        with self._lock:
            return self._played.spent_usd

    @property
    def sessions(self) -> tuple[SessionResult, ...]:
        """The last result of each session that ended."""
        with self._lock:
            return tuple(self._played.sessions.values())

    def sent(self, key: SessionKey, call: int, most_usd: float) -> None:
        """Write down that a call is about to be sent, and the most that it may cost."""
        self._write({"kind": "sent", **key._asdict(), "call": call, "usd": most_usd, "start": self._start})

    def billed(self, key: SessionKey, call: int, usd: float) -> None:
        """Write down what a call cost."""
        self._write({"kind": "billed", **key._asdict(), "call": call, "usd": usd, "start": self._start})

    def ended(self, result: SessionResult) -> None:
        """Write down how a session ended."""
        self._write({"kind": "session", **asdict(result)})

    def close(self) -> None:
        """Close the file; idempotent."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
            self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hold(self) -> None:
        """Keep others from going on with the same file: each would spend the whole budget."""
        if "fcntl" not in globals():
            return
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(f"{self._path} is in use by another comparison: wait for its end") from error

    def _take(self, header: Header) -> None:
        """Read what is there, and check that it is the same comparison; a file without a whole line is a new one."""
        with open(self._file, "rb", closefd=False) as file:
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):  # a line that was being written when the process was killed
            os.ftruncate(self._file, len(whole))
        lines = whole.splitlines()
        if not lines:
            self._write({"kind": "comparison", "version": _VERSION, **asdict(header)})
            return
        try:
            first, *rest = [json_codec.loads(line) for line in lines]
            if first.get("kind") == "comparison" and not any(map(_is_kept, rest)):
                os.ftruncate(self._file, 0)
                self._write({"kind": "comparison", "version": _VERSION, **asdict(header)})
                return
            self._check(first, header)
            for record in rest:
                self._played.fold(record)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{self._path} is not a file of results ({error}): choose another file") from error

    def _check(self, first: Mapping[str, Any], header: Header) -> None:
        if first.get("kind") != "comparison" or first.get("version") != _VERSION:
            raise ConfigError(f"{self._path} is not a file of results: choose another file")
        for one in fields(Header):
            now = getattr(header, one.name)
            then = first[one.name]
            if then != (list(now) if isinstance(now, tuple) else now):
                shown = "" if one.name in ("tasks", "command") else f" ({then!r:.60} then, {now!r:.60} now)"
                raise ConfigError(
                    f"{self._path} was begun with other {one.name}{shown}: use the same again to go on, or another "
                    "file of results to begin anew"
                )

    def _write(self, record: Mapping[str, Any]) -> None:
        line = json_codec.dumps(record) + b"\n"
        with self._lock:
            if self._file < 0:
                raise ConfigError(f"{self._path} is closed")
            try:
                left = line
                while left:  # a write takes what there is room for
                    left = left[os.write(self._file, left) :]
                os.fsync(self._file)
            except OSError as error:
                how = "make room for it, and give the same command again to go on"
                raise ConfigError(f"{self._path} cannot be written ({reason_of(error)}): {how}") from error
            self._played.fold(record)


def _is_kept(record: Mapping[str, Any]) -> bool:
    """Whether a line of the file says something that a comparison with another command, or other tasks, would lose."""
    return bool(record["kind"] != "session" or record["outcome"] != "failed")
