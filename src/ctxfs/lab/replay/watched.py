"""A policy whose work is recorded: what it evicted, when and why."""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.lab.replay.cost import Policy, Replacement, Run
from ctxfs.lab.replay.session import Item, Session
from ctxfs.messages.base import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFigures:
    """The evictions of one tool: how many, the tokens that they freed, and how often something was read back."""

    tool: str
    evictions: int
    tokens: int
    read_backs: int


@dataclass(slots=True, kw_only=True)
class Eviction:
    """One evicted item: before which call, its tokens before and after, and how often it was read back."""

    item: Item
    call: int
    tokens: int
    why: str = ""
    read_backs: int = 0


class Watched:
    """A policy that does what ``policy`` does; ``evictions`` are its evictions in the session started last."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.evictions: dict[int, Eviction] = {}

    @property
    def name(self) -> str:
        """The policy's own name."""
        return self._policy.name

    def start(self, session: Session) -> Run:
        """Begin with a session."""
        self.evictions = {}
        return _WatchedRun(self._policy.start(session), self.evictions)


class _WatchedRun:
    def __init__(self, run: Run, evictions: dict[int, Eviction]) -> None:
        self._run, self._evictions = run, evictions
        self._items: dict[int, Item] = {}
        self._call = 0

    def plan(self, added: Sequence[Item], *at: float) -> Sequence[Replacement]:
        self._call += 1
        self._items |= {item.index: item for item in added}
        planned = self._run.plan(added, *at)
        for r in planned:
            found = self._evictions.get(r.index)
            if found is None:
                item = self._items[r.index]
                self._evictions[r.index] = Eviction(item=item, call=self._call, tokens=r.tokens, why=r.why)
            else:
                found.tokens = r.tokens
        return planned

    def replied(self, reply: Sequence[Item], billed: Usage) -> None:
        self._items |= {item.index: item for item in reply}
        self._run.replied(reply, billed)

    def read_back(self, index: int, call: Item, page: Item, billed: Usage) -> None:
        self._items |= {call.index: call, page.index: page}
        if index in self._evictions:
            self._evictions[index].read_backs += 1
        self._run.read_back(index, call, page, billed)


def by_tool(evictions: Sequence[Eviction]) -> tuple[ToolFigures, ...]:
    """Sum up the evictions of each tool; the tool whose evictions freed most tokens comes first."""
    tools: dict[str, list[Eviction]] = {}
    for eviction in evictions:
        tools.setdefault(eviction.item.tool or eviction.item.kind.value, []).append(eviction)
    figures = (
        ToolFigures(
            tool=tool,
            evictions=len(found),
            tokens=sum(e.item.tokens - e.tokens for e in found),
            read_backs=sum(e.read_backs for e in found),
        )
        for tool, found in tools.items()
    )
    return tuple(sorted(figures, key=lambda f: -f.tokens))
