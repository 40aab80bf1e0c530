"""What an adapter to a framework's history has to keep, as tests: subclass ``HistoryConformance`` with your adapter.

    class TestMyAdapter(HistoryConformance):
        def rewritten(self, history, parts, branch):
            messages = my_messages(parts)
            return contents_of(my_adapter(history, branch).send(messages))

Each test plays random histories as frameworks treat theirs, and asks for the rules that must hold whatever they do.
They grow by replies, calls and results; they are rewound, edited in the middle, cut and summarised by others, kept as
they were rewritten, sent again, branched, and taken up by another process. Draws come from a seed alone.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

import anyio
import pytest
from typing_extensions import override

from ctxfs.context.history.decisions import key_of
from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Part, plain_content
from ctxfs.errors import CtxfsError
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.fingerprint import Key, sha256_of
from ctxfs.session.records import Decided
from ctxfs.tools.materialization import Materialize


def pricing_on(clock: Callable[[], float], **settings: Any) -> EvictionPricing:
    """An ``EvictionPricing`` with these settings, whose prompt cache expires by the seconds of ``clock``."""

    class OnClock(EvictionPricing):
        __slots__ = ()

        @override
        def now(self) -> float:
            return clock()

    return OnClock(**settings)


Rewritten = Callable[[History, Sequence[Part], str], Sequence[Any]]
"""What is sent for each part of a history, in order, by a history's session and branch."""

_LINE = "a line of some words that a tool has found, number {}\n"
_SIZES = (1, 30, 400)


@dataclass(frozen=True, slots=True, kw_only=True)
class Violation:
    """A rule that was broken at a step of the play, and how."""

    seed: int
    step: int
    rule: str
    detail: str


@dataclass(slots=True, kw_only=True)
class Played:
    """What a play came to.

    ``calls``: how often a history was sent; ``replaced``: how often a part of it was replaced then; ``decisions``: how
    many the session recorded; ``violations``: which rules were broken.
    """

    calls: int = 0
    replaced: int = 0
    decisions: int = 0
    violations: list[Violation] = field(default_factory=list)


def rewritten_parts(history: History, parts: Sequence[Part], branch: str) -> list[Any]:
    """What is sent for each part, by ``History.rewrite`` itself."""
    edits = history.rewrite(parts, branch=branch)
    return [edits.get(part.place, part.content) for part in parts]


def play(seed: int, root_path: Path, *, steps: int = 60, rewritten: Rewritten = rewritten_parts) -> Played:
    """Play ``steps`` steps of a random history in a new session under ``root_path``, and check it after each of them.

    ``rewritten`` is what is tried: an adapter that sends a history of parts, in the form of its framework.
    """
    return _Play(seed, root_path, rewritten).run(steps)


class _Play:
    def __init__(self, seed: int, root_path: Path, rewritten: Rewritten) -> None:
        self.seed = seed
        self.draw = random.Random(seed)  # noqa: S311 - a play
        self.rewritten = rewritten
        self.session_id = f"play_{seed}"
        self.root_path = root_path
        self.settings: dict[str, Any] = {
            "keep_recent": self.draw.choice((None, {"t0": 1})),
            "pricing": pricing_on(self.now, parameters=EvictionParameters(read_back_weight=0.2, max_loss=10.0)),
            "window": self.draw.choice((None, None, 8_000, 60_000)),
            "materialize": Materialize(max_inline_chars=self.draw.choice((500, 10_000))),
        }
        self.seconds = 1_000.0
        self.step = 0
        self.played = Played()
        self.given: dict[Key, str] = {}
        self.originals: dict[Key, Any] = {}
        self.calls = 0
        self.parts = [Part("user", f"go {seed}", 0)]
        self.others: dict[str, list[Part]] = {}
        self.branch = ""
        self.history = self.opened()

    def now(self) -> float:
        return self.seconds

    def opened(self) -> History:
        return History(self.session_id, root_path=self.root_path, **self.settings)

    def run(self, steps: int) -> Played:
        for self.step in range(steps):
            self.seconds += self.draw.choice((5.0, 5.0, 5.0, 1_000.0))
            try:
                self.draw.choices(
                    (self.grow, self.rewind, self.edit, self.cut, self.restart, self.keep, self.switch, self.bill),
                    (70, 8, 4, 4, 4, 6, 4, 4),
                )[0]()
                self.send()
            except CtxfsError as error:
                self.broken("raised", repr(error))
                break
        self.check_stored()
        self.history.close()
        return self.played

    def broken(self, rule: str, detail: str) -> None:
        self.played.violations.append(Violation(seed=self.seed, step=self.step, rule=rule, detail=detail[:300]))

    # What frameworks do ----------------------------------------------------------------------------------------------

    def grow(self) -> None:
        """The model replies, perhaps with calls, and their results come, some of them rewritten at the source."""
        draw, said = self.draw, f"reading {self.step} " + _LINE.format(2) * self.draw.choice((0, 0, 0, 200))
        thought = {"type": "thinking", "thinking": _LINE.format(3) * draw.choice((1, 200)), "signature": "s"}
        blocks = [[thought], [thought, {"type": "text", "text": said}]]
        new = [Part("reply", said if draw.random() < 0.7 else draw.choice(blocks), 0)]
        names: dict[str, str] = {}
        for _ in range(draw.randint(0, 3)):
            again = self.calls and draw.random() < 0.1
            self.calls += 1
            call_id = "" if draw.random() < 0.05 else f"c{draw.randint(1, self.calls) if again else self.calls}"
            if call_id not in names:
                names[call_id] = f"t{draw.randint(0, 2)}"
        for call_id, tool in names.items():
            arguments = {"x": call_id, "text": "y" * draw.choice((3, 3, 1_500)), "path": f"/f{draw.randint(0, 3)}"}
            new.append(Part("call", arguments, 0, call_id, tool))
        for call_id, tool in names.items():
            if draw.random() > 0.03:  # a call may never get its result
                new.append(Part("result", self.result(call_id, tool), 0, call_id, tool, stays=draw.random() < 0.03))
        if not names or draw.random() < 0.2:
            new.append(Part("user", f"and {self.step} " + _LINE.format(1) * draw.choice((1, 1, 100)), 0))
        self.parts += new

    def result(self, call_id: str, tool: str) -> Any:
        draw, stored = self.draw, list(self.stored_ids())
        if stored and draw.random() < 0.15:
            return self.history.run_tool("context_read", {"ref": draw.choice(stored), "limit": 50}).content
        text = f"{call_id} {draw.random()}\n" + "".join(map(_LINE.format, range(draw.choice(_SIZES))))
        content: Any = text if draw.random() < 0.8 else [{"type": "text", "text": text}, {"type": "text", "text": "b"}]
        if draw.random() < 0.2:
            return self.history.arrive(content, tool=tool, call_id=call_id)
        return content

    def stored_ids(self) -> Iterator[str]:
        listed = str(self.history.run_tool("context_list", {}).content)
        return (line.split("\t")[-1].split(": ")[0] for line in listed.splitlines() if "tool_result" in line)

    def rewind(self) -> None:
        self.parts = self.parts[: self.draw.randint(1, len(self.parts))]

    def edit(self) -> None:
        at = self.draw.randrange(len(self.parts))
        if self.parts[at].kind != "call":
            self.parts[at] = self.parts[at]._replace(content=f"edited {self.step}")

    def cut(self) -> None:
        """Another library summarises the beginning, and leaves results without their calls."""
        if len(self.parts) > 10:
            self.parts = [Part("user", f"summary {self.step}", 0), *self.parts[self.draw.randint(2, 8) :]]

    def restart(self) -> None:
        """Another process goes on; the one before it may have been killed."""
        if self.draw.random() < 0.5:
            self.history.close()
        self.history = self.opened()

    def keep(self) -> None:
        """The framework keeps what was sent instead of what it had."""
        self.parts = [p._replace(content=new) for p, new in zip(self.parts, self.sent(), strict=True)]

    def switch(self) -> None:
        """Go on with another branch, which begins like this one."""
        self.others[self.branch] = self.parts
        self.branch = self.draw.choice(("", "a", "b"))
        self.parts = list(self.others.get(self.branch, self.parts))

    def bill(self) -> None:
        self.history.replied({"input_tokens": self.draw.randint(1, 50_000), "output_tokens": 5}, "claude-x")

    # What must hold --------------------------------------------------------------------------------------------------

    def sent(self, parts: Sequence[Part] | None = None) -> list[Any]:
        self.played.calls += 1
        shown = self.parts if parts is None else parts
        placed = [part._replace(place=number) for number, part in enumerate(shown)]
        return list(self.rewritten(self.history, placed, self.branch))

    def send(self) -> None:
        sent = self.sent()
        if self.sent() != sent:
            self.broken("idempotent", "the same history was rewritten in another way")
        for part, new in zip(self.parts, sent, strict=True):
            self.check_part(part, new)
        kept = [part._replace(content=new) for part, new in zip(self.parts, sent, strict=True)]
        if self.sent(kept) != sent:
            self.broken("settled", "what was rewritten already was rewritten again")

    def check_part(self, part: Part, new: Any) -> None:
        """What was replaced once stays replaced, by the same bytes; what must stay stays."""
        key = Key(part.kind, part.id, sha256_of(plain_content(part)))
        written = sha256_of(plain_content(part._replace(content=new)))
        if part.stays:
            if written != key.sha256:
                self.broken("stays", f"{key} was replaced")
            return
        before = self.given.get(key)
        if before is not None and written != before:
            self.broken("taken back", f"{key} was replaced by {before}, and now by {new!r:.100}")
        if written != key.sha256:
            self.played.replaced += 1
            self.given[key] = written
            self.originals.setdefault(key, part.content)

    def check_stored(self) -> None:
        """Everything that was replaced can be read back, exactly."""
        anyio.run(self._check_stored)

    async def _check_stored(self) -> None:
        fs = ContextFileSystem(self.session_id, root_path=self.root_path, read_only=True)
        async with fs:
            self.played.decisions = len(fs.state.decisions)
            for decided in fs.state.decisions:
                content = await fs.load(decided.item_id)
                if not _holds(content, decided, self.originals.get(key_of(decided)), fs.state.noted_sources):
                    self.broken("lost", f"{decided.item_id} does not hold what {decided.kind} {decided.call_id} was")
            if (report := await fs.verify()).problems:
                self.broken("damaged", repr(report.problems))


def _holds(content: Any, decided: Decided, original: Any, sources: Mapping[str, Any]) -> bool:
    """Whether a stored content is that of the part that was decided about, or has the lines that this repeated."""
    if decided.sha256 in sources or sha256_of(content) == decided.sha256:
        return True
    if isinstance(content, str):
        return False
    calls = [block["input"] for block in content if block["type"] == "tool_use"]
    said = [content[first:end] for first, end in combinations(range(len(content) + 1), 2)]
    if any(sha256_of(part) == decided.sha256 for part in (*calls, *said)):
        return True  # a part of a reply that was stored as a whole
    return bool(content) and decided.kind == "call" and all(_is_argument(block, original) for block in content)


def _is_argument(block: Mapping[str, Any], arguments: Any) -> bool:
    if not isinstance(arguments, Mapping) or "argument" not in block:
        return False
    value = arguments.get(block["argument"])
    return bool(block["text"] == value or (block["json"] and json.loads(block["text"]) == value))


__all__ = ["HistoryConformance"]

_SHOWN = 10
"""So many of the rules that were broken are shown."""


class HistoryConformance:
    """The conformance tests of an adapter. ``seeds``: how many histories are played; ``steps``: how long each is."""

    seeds = 20
    steps = 40

    def rewritten(self, history: History, parts: Sequence[Part], branch: str) -> Sequence[Any]:
        """Return what the adapter sends for each of ``parts``, in order, through ``history`` and on ``branch``.

        Override it: make your framework's messages of the parts, send them by your adapter, and read the contents back.
        A content is a text, blocks in the shape of the Messages API, or the arguments of a call.
        """
        return rewritten_parts(history, parts, branch)

    def played(self, tmp_path: Path) -> list[Played]:
        """Play the histories, each in a session of its own under ``tmp_path``."""
        return [play(seed, tmp_path, steps=self.steps, rewritten=self.rewritten) for seed in range(self.seeds)]

    def test_the_rules_hold_in_random_histories(self, tmp_path: Path) -> None:
        """Nothing raises, nothing is taken back, nothing changes without a reason, and nothing is lost."""
        played = self.played(tmp_path)
        if broken := violations(played):
            pytest.fail("\n".join(map(repr, broken[:_SHOWN])))
        if not sum(one.replaced for one in played):
            pytest.fail("the adapter replaced nothing in any of the histories")


def violations(played: Sequence[Played]) -> list[Violation]:
    """The rules that were broken in all of the plays."""
    return [violation for one in played for violation in one.violations]
