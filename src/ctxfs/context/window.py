"""Keeping a context inside its window: estimate, compact, summarise, and never in a loop.

Every step has to make the context strictly smaller: compaction type by type, a summary by the model, whole exchanges
into an archive, and as the last resort the largest contents, also those that the model has not seen yet, then the last
exchanges too, and at the very last images and documents that it has not seen. A round that did not help is not tried
again before the context has grown by a tenth.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol

import anyio.to_thread

from ctxfs.context.budget import Budget, Calibration
from ctxfs.context.compaction import (
    OLD_EXCHANGES,
    SEEN_EXCHANGES,
    ArchiveSlot,
    SelectiveCompaction,
    largest_first,
    readable_later,
)
from ctxfs.context.events import Compacted, ContextEvent, SummaryFailed
from ctxfs.context.items import ContextItem
from ctxfs.context.plan import Archive, Plan
from ctxfs.context.records import CallMade
from ctxfs.context.summary import STAGES_CHARS, prompt, replaced_by_summary, summary_text
from ctxfs.errors import ContextOverflow, ModelError, PromptTooLong
from ctxfs.llm.base import Reply
from ctxfs.tokens import TokenCounter

__all__ = ["Compactable", "Summarize", "Window"]

Summarize = Callable[[str], Awaitable[Reply]]
"""Give the model a prompt, without tools, and return its reply. Raises ``ModelError``."""

_WHOLE = frozenset({"end_turn", "stop_sequence"})
"""How a reply ends that was not cut."""

_GROWTH = 1.1
_STUCK_SHOWN = 5


class Compactable(Protocol):
    """What a window needs of a context."""

    @property
    def items(self) -> tuple[ContextItem, ...]:
        """Everything in the context, oldest first."""

    @property
    def counted_tokens(self) -> int:
        """The next prompt by our own count, what is sent with every call included."""

    @property
    def counter(self) -> TokenCounter:
        """The counter behind it."""

    def paths(self) -> Mapping[str, str]:
        """The file that each item has or would get, absolute, by item id."""

    def slot(self) -> ArchiveSlot:
        """A new id and file for an archive."""

    async def carry_out(self, plan: Plan) -> None:
        """Store first, then replace."""

    async def record_summary(self, reply: Reply) -> None:
        """Record what the call for a summary was billed."""

    def tell(self, event: ContextEvent) -> None:
        """Tell what happened."""


class Window:
    """The budget of a context, and what to do when it is passed.

    ``budget`` None means that there is no limit. ``summarize`` None: there is no model to ask, so that old exchanges
    go into an archive without a summary.
    """

    def __init__(
        self,
        budget: Budget | None = None,
        *,
        compaction: SelectiveCompaction | None = None,
        summarize: Summarize | None = None,
        model: str = "",
    ) -> None:
        self.budget = budget
        self.calibration = Calibration(model=model)
        self._compaction = compaction or SelectiveCompaction()
        self._summarize = summarize
        self._again_at = 0.0

    def observe(self, call: CallMade) -> None:
        """Learn what the provider billed for a prompt that we had counted."""
        real = call.usage.total_input_tokens
        self.calibration = self.calibration.observed(model=call.model, counted=call.counted_tokens, real=real)

    def resumed(self, calls: Iterable[CallMade]) -> None:
        """A session was taken up: learn from its calls, and from nothing before them."""
        self.calibration = Calibration(model=self.calibration.model)
        for call in calls:
            self.observe(call)

    async def refused(self, context: Compactable, error: PromptTooLong) -> None:
        """The provider refused the prompt as too long: believe its figures and make room.

        Raises:
            ContextOverflow: nothing more can be reduced.

        """
        if self.budget is None:
            raise error
        actual = self.budget.window_tokens if error.actual_tokens is None else error.actual_tokens
        self.calibration = replace(self.calibration, base_real=actual, base_counted=context.counted_tokens)
        if error.limit_tokens is not None and error.limit_tokens < self.budget.window_tokens:
            reply = min(self.budget.reply_tokens, error.limit_tokens // 4)
            self.budget = replace(self.budget, window_tokens=error.limit_tokens, reply_tokens=reply)
        # How much over the window it was is known, or it may be twice as much.
        await self._make_room(context, self.budget if error.actual_tokens is not None else self.budget.halved())

    async def fit(self, context: Compactable) -> None:
        """Make the context small enough for the next call, if it is not.

        Raises:
            ContextOverflow: it is over the limit and nothing more in it can be reduced.

        """
        if self.budget is None:
            return
        now = self._estimate(context)
        if now > self.budget.high_tokens and (now > self.budget.limit_tokens or now >= self._again_at):
            await self._make_room(context, self.budget)

    async def _make_room(self, context: Compactable, goal: Budget) -> None:
        assert self.budget is not None
        before = self._estimate(context)
        steps = await self._reduce(context, goal)
        after = self._estimate(context)
        self._again_at = after * _GROWTH
        if after < before:
            context.tell(Compacted(tokens_before=before, tokens_after=after, steps=tuple(steps)))
        # A guess must not end a run: what only a cautious guess puts over the limit is for the provider to refuse.
        surely = self.calibration.at_least(context.counted_tokens)
        if surely > self.budget.limit_tokens:
            raise ContextOverflow(self.budget.limit_tokens, surely, _stuck(context.items))

    async def _reduce(self, context: Compactable, budget: Budget) -> list[str]:
        steps = [("types", self._by_type), ("summary", self._summary), ("archive", self._exchanges)]
        done: list[str] = []
        for name, step in steps:
            if self._estimate(context) <= budget.high_tokens and done:
                return done
            done += [name] if await step(context, self._excess(context, budget.low_tokens)) else []
        last_resorts: tuple[tuple[str, Callable[[int], Plan]], ...] = (
            ("largest", partial(_largest, context, readable_later)),
            ("archive", partial(self._plan, SEEN_EXCHANGES, context)),
            ("largest", partial(_largest, context, tuple)),
        )
        for name, planned in last_resorts:
            if self._estimate(context) > budget.limit_tokens:
                plan = planned(self._excess(context, budget.limit_tokens))
                done += [name] if await _carry_out(context, plan) else []
        return done

    async def _by_type(self, context: Compactable, free_tokens: int) -> bool:
        return await _carry_out(context, self._plan(self._compaction, context, free_tokens))

    async def _exchanges(self, context: Compactable, free_tokens: int) -> bool:
        return await _carry_out(context, self._plan(OLD_EXCHANGES, context, free_tokens))

    def _plan(self, compaction: SelectiveCompaction, context: Compactable, free_tokens: int) -> Plan:
        return compaction.plan(
            context.items,
            free_tokens=free_tokens,
            paths=context.paths(),
            slot=context.slot(),
            counter=context.counter,
        )

    async def _summary(self, context: Compactable, _free_tokens: int) -> bool:
        items = replaced_by_summary(context.items)
        if self._summarize is None or not items:
            return False
        slot = context.slot()
        summary = await self._ask(context, self._summarize, items)
        if summary is None:
            return False
        text = summary_text(summary, items, slot.path)
        before = sum(item.token_count for item in items)
        after = await anyio.to_thread.run_sync(context.counter.count, text)
        if after >= before:
            context.tell(SummaryFailed(reason=f"the summary has {after} tokens, what it replaces only {before}"))
            return False
        archive = Archive(
            item_id=slot.item_id,
            name=slot.name,
            path=slot.path,
            item_ids=tuple(item.id for item in items),
            placeholder=text,
            tokens_before=before,
            tokens_after=after,
            reason="summarised by the model",
        )
        return await _carry_out(context, Plan(archive=archive, first_changed=items[0].id))

    async def _ask(self, context: Compactable, summarize: Summarize, items: Sequence[ContextItem]) -> str | None:
        """The model's summary, asked for in stages until the prompt fits; None when there is none, with an event."""
        assert self.budget is not None
        for quote_chars in STAGES_CHARS:
            text = prompt(items, quote_chars=quote_chars)
            counted = await anyio.to_thread.run_sync(context.counter.count, text)
            if counted * self.calibration.factor > self.budget.limit_tokens:
                continue
            try:
                reply = await summarize(text)
            except PromptTooLong:
                continue
            except ModelError as error:
                context.tell(SummaryFailed(reason=str(error)))
                return None
            await context.record_summary(reply)
            if reply.stop_reason not in _WHOLE:
                context.tell(SummaryFailed(reason=f"the summary is not whole: it ended with {reply.stop_reason!r}"))
            elif reply.message.text.strip():
                return reply.message.text
            else:
                context.tell(SummaryFailed(reason="the model answered with nothing"))
            return None
        context.tell(
            SummaryFailed(reason="what is to be summarised does not fit the window, however short it is quoted")
        )
        return None

    def _estimate(self, context: Compactable) -> int:
        return self.calibration.estimate(context.counted_tokens)

    def _excess(self, context: Compactable, goal_tokens: int) -> int:
        return self.calibration.counted(max(0, self._estimate(context) - goal_tokens))


def _largest(
    context: Compactable, those: Callable[[Sequence[ContextItem]], Sequence[ContextItem]], free_tokens: int
) -> Plan:
    return largest_first(those(context.items), free_tokens=free_tokens, paths=context.paths())


async def _carry_out(context: Compactable, plan: Plan) -> bool:
    """Do what the plan says; false when that did not make the context smaller."""
    before = context.counted_tokens
    if plan:
        await context.carry_out(plan)
    return context.counted_tokens < before


def _stuck(items: Sequence[ContextItem]) -> list[str]:
    """The largest items that cannot be reduced."""
    left = sorted((i for i in items if not i.destroyed), key=lambda i: -i.token_count)
    return [f"{i.id} ({i.token_count:,} tokens)" for i in left[:_STUCK_SHOWN]]
