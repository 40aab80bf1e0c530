"""Plays a random session through a ``Context``, as an agent's loop would, and checks every request on the way."""

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from ctxfs.context.context import Context
from ctxfs.errors import ContextOverflow, NotRestorable, Overloaded, StorageError
from ctxfs.eviction.compaction import SelectiveCompaction
from ctxfs.eviction.economics.economy import EvictionPricing
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.offload_plan import EagerPolicy
from ctxfs.eviction.window import Window
from ctxfs.messages import CharsCounter
from ctxfs.messages.base import ModelRequest, Reply, ToolSchema, Usage
from ctxfs.messages.items import ContextItem
from ctxfs.messages.messages import AssistantMessage, Block, Content, Message
from ctxfs.messages.serialize import to_messages_body
from ctxfs.messages.tokens import count_content
from ctxfs.session.archive import read_archive
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage import MemoryStore
from ctxfs.storage.base import NewFile
from ctxfs.testing.history_conformance import pricing_on
from ctxfs.testing.invariants import violations
from ctxfs.testing.strategies import TOOL_NAMES
from ctxfs.text.jsontext import codec as json_codec
from prove.sessions import Session, Skill

__all__ = ["LosingStore", "Played", "Policy", "check_request", "play"]

_TOOLS = tuple(ToolSchema(name=name, description="A tool.", input_schema={"type": "object"}) for name in TOOL_NAMES)
_COUNTER = CharsCounter()
_EVICTED = ("[Content offloaded]\n", "[Content offloaded: ")
_ID = "session_20260101_000000_aaaaaa"


class LosingStore(MemoryStore):
    """A store that acknowledges contents and keeps none of them: the checks here have to notice."""

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        for file in files:
            b"".join(file.chunks)
        super().commit([], log)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What may leave the context, and when. ``settings`` go to ``Context`` as they are; ``economic``: what pays."""

    name: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    budget: Window | None = None
    compaction: SelectiveCompaction | None = None
    summarize: bool = False
    eager: EagerPolicy | None = None
    economic: EvictionParameters | None = None

    def context(self, store: MemoryStore, draw: random.Random, clock: "Clock | None" = None) -> Context:
        """A context under this policy, on ``store``."""
        summarize = _summarizer(draw) if self.summarize else None
        window = None if self.budget is None else replace(self.budget, compaction=self.compaction, summarize=summarize)
        return Context(
            ContextFileSystem(_ID, root_path="/sessions", store=store, clock=lambda: 1.75e9),
            counter=_COUNTER,
            window=window,
            eager=self.eager,
            pricing=self._economy(clock or Clock()) if self.economic else None,
            **self.settings,
        )

    def _economy(self, clock: "Clock") -> EvictionPricing:
        return pricing_on(lambda: clock.now, parameters=self.economic or EvictionParameters())


@dataclass(slots=True)
class Clock:
    """Seconds; they pass between calls to the model only, sometimes so many that the prompt cache is cold."""

    now: float = 0.0


@dataclass(slots=True)
class Played:
    """What came of a session: how many requests, how much left, and everything that was wrong."""

    requests: int = 0
    left: int = 0
    archives: int = 0
    overflows: int = 0
    restored: int = 0
    wrong: list[str] = field(default_factory=list)


def _summarizer(draw: random.Random) -> Callable[[str], Any]:
    async def summarize(prompt: str) -> Reply:
        kind = draw.random()
        if kind < 0.1:
            raise Overloaded("the provider has no capacity")
        text = " \n" if kind < 0.2 else "The plan goes on. " * (500 if kind < 0.3 else 3)
        stop_reason = "max_tokens" if kind > 0.95 else "end_turn"
        return Reply(message=AssistantMessage(text), usage=Usage(), stop_reason=stop_reason, model="a-model")

    return summarize


def check_request(messages: Sequence[Message]) -> list[str]:
    """What a provider would refuse in the request for ``messages``, cache breakpoints included."""
    return violations(_body(messages))


def _body(messages: Sequence[Message], *, cache: bool = True) -> dict[str, Any]:
    request = ModelRequest(messages=tuple(messages), tools=_TOOLS)
    return to_messages_body(request, model="a-model", max_tokens=1_000, cache=cache)


async def play(session: Session, policy: Policy, make_store: Callable[[str], MemoryStore] = MemoryStore) -> Played:
    """Play all of ``session``; what left has to be there, word for word, and the session has to reopen as it was."""
    store = make_store(_ID)
    clock = Clock()
    context = policy.context(store, random.Random(session.number), clock)
    restoring = random.Random(session.number) if session.number % 2 else None
    player = _Player(context, clock, random.Random(session.number), policy, restoring)
    async with context:
        try:
            await player.session(session)
        except ContextOverflow:  # some sessions have a single reply that is larger than the window
            player.played.overflows += 1
        await player.check_lossless()
        items = context.items
    reopened = policy.context(store.peer(), random.Random(0))
    try:
        async with reopened:
            if reopened.items != items:
                player.played.wrong.append("the session did not reopen as it was")
    except StorageError as error:
        player.played.wrong.append(f"the session did not reopen: {error}")
    return player.played


class _Player:
    """``restoring`` draws what is restored before a request; None: nothing is."""

    def __init__(
        self, context: Context, clock: Clock, draw: random.Random, policy: Policy, restoring: random.Random | None
    ) -> None:
        self.played = Played()
        self._restoring = restoring
        self._context = context
        self._clock = clock
        self._draw = draw
        self._has_window = policy.budget is not None
        self._is_economic = policy.economic is not None
        self._originals: dict[str, Content] = {}
        self._archives: dict[str, dict[str, Content]] = {}

    async def session(self, session: Session) -> None:
        if session.system is not None:
            await self._context.set_system_prompt(session.system)
        for turn in session.turns:
            if isinstance(turn.user, Skill):
                item = await self._context.add_skill_prompt("a-skill", turn.user.text)
                self._originals[item.id] = turn.user.text
            else:
                await self._add(turn.user)
            for step in turn.steps:
                await self._reply(step.reply)
                await self._add(*step.results)
            await self._reply(turn.answer)

    async def _reply(self, reply: AssistantMessage) -> None:
        """Make the request that is answered by ``reply``."""
        self._clock.now += self._draw.choice((1, 1, 60, 400))
        if self._restoring is not None:
            await self._restore(self._restoring)
            await self._go_back(self._restoring)
        before = self._context.items
        plan = self._context.plan()
        messages = await self._context.messages()
        self.played.requests += 1
        self.played.wrong += check_request(messages)
        # After a compaction, the planner decides again.
        if not (self._is_economic and self._has_window) and self._context.plan():
            self.played.wrong.append("what was due did not leave")
        if plan and plan.tokens_freed <= 0:
            self.played.wrong.append(f"a plan that frees nothing: {plan.explain()}")
        if not self._has_window:
            self._check_prefix(before, plan.first_changed, messages)
        self._check_counts()
        counted = self._context.counted_tokens
        await self._add(reply, usage=Usage(input_tokens=counted, output_tokens=1), model="a-model")

    async def _restore(self, draw: random.Random) -> None:
        """Now and then, bring back a content that was evicted."""
        evicted = [item for item in self._context.items if item.offloaded and item.source is None]
        if not evicted or draw.random() > 0.2:
            return
        gone = draw.choice(evicted)
        try:
            item = await self._context.restore(gone.id)
        except StorageError as error:
            self.played.wrong.append(f"{gone.id} is lost: {error}")
            return
        self.played.restored += 1
        if await self._with_arguments(item.message.content) != self._originals[item.id]:
            self.played.wrong.append(f"{item.id} is not restored as it was")

    async def _go_back(self, draw: random.Random) -> None:
        """Now and then, undo what was evicted last, bring back an archived exchange, or pin an item and let it go."""
        try:
            await self._gone_back(draw, list(self._context.fs.state.archived))
        except StorageError as error:
            self.played.wrong.append(f"something is lost: {error}")

    async def _gone_back(self, draw: random.Random, archived: Sequence[str]) -> None:
        with suppress(NotRestorable, ContextOverflow):
            match draw.randrange(24):
                case 0:
                    await self._context.undo()
                case 1 if archived:
                    item = await self._context.restore(draw.choice(archived))
                    if await self._with_arguments(item.message.content) != self._originals.get(item.id):
                        self.played.wrong.append(f"{item.id} is not what it was in its archive")
                case 2:
                    item = draw.choice(self._context.items)
                    await self._context.pin(item.id)
                case 3:
                    for item in self._context.items:
                        await self._context.unpin(item.id)

    def _check_prefix(self, before: Sequence[ContextItem], changed: str | None, messages: Sequence[Message]) -> None:
        """What stands before the first change of a plan is sent in the same bytes as before."""
        if changed is None:
            return
        at = next(n for n, item in enumerate(before) if item.id == changed)
        old, new = [i.message for i in before[:at]], list(messages[:at])
        if _body(old, cache=False) != _body(new, cache=False):
            self.played.wrong.append(f"a plan changed what stands before {changed}")

    def _check_counts(self) -> None:
        """What is kept up of the sizes is what counting all that is sent gives."""
        for item in self._context.items:
            if item.token_count != (tokens := count_content(_COUNTER, item.message.content)):
                self.played.wrong.append(f"{item.id} has {tokens} tokens, and {item.token_count} are counted")
        if self._context.counted_tokens != sum(item.token_count for item in self._context.items):
            self.played.wrong.append("the context's tokens are not those of its items")

    async def _add(self, *messages: Message, **settings: Any) -> None:
        items = await self._context.add(*messages, **settings)
        for item, message in zip(items, messages, strict=True):
            self._originals[item.id] = message.content

    async def check_lossless(self) -> None:
        """Every content that came in is in the context, in its file or in an archive."""
        for item_id, content in self._originals.items():
            try:
                found = await self._found(item_id)
                if found is not None and await self._with_arguments(found) == content:
                    continue
            except StorageError:
                pass  # lost, as is said below
            self.played.wrong.append(f"{item_id} is lost: {str(content)[:80]!r}")
        self.played.archives = len(self._archives)
        stored = self._context.fs.state.stored
        without = [i.id for i in self._context.items if i.offload_path and i.id not in stored]
        self.played.wrong += [f"{item_id} has a placeholder and no content" for item_id in without]

    async def _found(self, item_id: str) -> Content | None:
        """What there is of a content, wherever it is now."""
        fs = self._context.fs
        item = next((i for i in self._context.items if i.id == item_id), None)
        if item is not None and not item.offloaded:
            return item.message.content
        if item_id in fs.state.stored:
            self.played.left += 1
            return await fs.load(item_id)
        archive = fs.state.archived.get(item_id)
        if archive is None:
            return None
        if archive not in self._archives:
            self._archives[archive] = read_archive(str(await fs.load(archive)))
        return self._archives[archive].get(item_id)

    async def _with_arguments(self, content: Content) -> Content:
        """``content`` with the arguments that left it."""
        if isinstance(content, str):
            return content
        return tuple([await self._with_argument(b) if b["type"] == "tool_use" else b for b in content])

    async def _with_argument(self, block: Block) -> Block:
        fs = self._context.fs
        lines = next((v.split("\n") for v in block["input"].values() if str(v).startswith(_EVICTED)), None)
        if lines is None:
            return block
        ref = (
            lines[0].split(" ")[-1].rstrip("]")
            if lines[0] != "[Content offloaded]"
            else lines[1].removeprefix("Path: ")
        )
        stored = await fs.load(str(fs.find(ref)))
        assert not isinstance(stored, str)
        left = {b["argument"]: json_codec.loads(b["text"]) if b["json"] else b["text"] for b in stored}
        return {**block, "input": {**block["input"], **left}}
