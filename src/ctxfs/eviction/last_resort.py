"""If the context does not fit its window otherwise, single contents are evicted, the largest first. Pure.

This includes contents that the model has not seen yet. Their placeholders show their beginning, whatever the setting
for digests: a result that nobody has seen must not vanish behind a path.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ctxfs.eviction.compaction import View, seen_items
from ctxfs.eviction.offload_plan import Offload, Plan
from ctxfs.eviction.placeholder.arguments import without_large_arguments
from ctxfs.eviction.placeholder.attach import digest_of
from ctxfs.eviction.placeholder.digest import DEFAULT_BUDGET_TOKENS
from ctxfs.eviction.placeholder.text import HEADER, render
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import THINKING, Block, Content
from ctxfs.messages.tokens import TokenCounter, count_content

_REASON = "it does not fit the window"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastResort:
    """How items of ``view`` are evicted when the window needs it: whatever their size, unless ``policy`` forbids it."""

    view: View
    policy: OffloadPolicy
    counter: TokenCounter

    def contents(self, items: Iterable[ContextItem]) -> list[Offload]:
        """The offloads of those of ``items`` that can have a placeholder, or a shorter one."""
        paths = self.view.paths
        seen_ids = {item.id for item in seen_items(self.view.items)}
        offloads: list[Offload] = []
        for item in items:
            may_leave = not item.destroyed and self.policy.type_enabled[item.item_type]
            if not may_leave and not item.can_shrink:
                continue
            written = self.view.with_placeholder(item)
            if written.placeholder is None:
                continue
            if written.destroyed or written.id in seen_ids:
                offloads.append(Offload.of(written, paths[item.id], _REASON))
            else:
                offloads.append(self._described(written, paths[item.id]))
        return offloads

    def _described(self, item: ContextItem, path: str) -> Offload:
        """The offload of an item that the model has not seen: its placeholder shows its beginning, if that is smaller.

        What was read back was described where it was evicted first.
        """
        offload = Offload.of(item, path, _REASON)
        if item.source is not None:
            return offload
        text = render(path, self._digest(item), reader=self.view.reader)
        tokens = self.counter.count(text)
        if tokens >= item.token_count:
            return offload
        return replace(offload, placeholder=text, tokens_after=tokens)

    def replies(self) -> list[Offload]:
        """The offloads of replies that are not pinned: text and thinking, and large arguments of calls.

        The calls stay, to be answered; so does the thinking of the last reply if it has calls, since a provider
        wants it back with their results. The table of types does not apply to the text, since replies are otherwise
        evicted in archives, which it does not govern.
        """
        replies = [item for item in self.view.items if item.item_type is ItemType.ASSISTANT_MESSAGE]
        offloads: list[Offload] = []
        for item in replies:
            if item.destroyed or item.id in self.view.pinned:
                continue
            offload = self._reply(item, self.view.paths[item.id], is_last=item is replies[-1])
            if offload.tokens_after < offload.tokens_before:
                offloads.append(offload)
        return offloads

    def _reply(self, item: ContextItem, path: str, *, is_last: bool) -> Offload:
        placeholder = render(path, self._digest(item), reader=self.view.reader)
        content = self._without_text(item.message.content, placeholder, is_last=is_last)
        return Offload(
            item_id=item.id,
            path=path,
            placeholder=placeholder,
            content=content,
            tokens_before=item.token_count,
            tokens_after=count_content(self.counter, content),
            reason=_REASON,
        )

    def _without_text(self, content: Content, placeholder: str, *, is_last: bool) -> Content:
        if isinstance(content, str):
            return placeholder
        keeps_thinking = is_last and any(block["type"] == "tool_use" for block in content)
        kept = [block for block in content if keeps_thinking or block["type"] not in THINKING]
        texts = 0
        blocks: list[Block] = []
        if len(kept) < len(content) and not any(block["type"] == "text" for block in kept):
            blocks.append({"type": "text", "text": placeholder})
        for block in kept:
            if block["type"] == "text":
                texts += 1
                blocks.append({"type": "text", "text": placeholder if texts == 1 else HEADER})
            elif block["type"] == "tool_use" and self.policy.type_enabled[ItemType.TOOL_INPUT]:
                blocks.append({**block, "input": without_large_arguments(block["input"], placeholder)})
            else:
                blocks.append(block)
        return tuple(blocks)

    def _digest(self, item: ContextItem) -> str:
        return digest_of(item, counter=self.counter, digest_tokens=DEFAULT_BUDGET_TOKENS)


def largest_first(offloads: Sequence[Offload], *, free_tokens: int) -> Plan:
    """Free at least ``free_tokens`` with as few of ``offloads`` as possible; they are in the order of the context."""
    chosen: set[str] = set()
    for offload in sorted(offloads, key=lambda o: o.tokens_after - o.tokens_before):
        if free_tokens <= 0:
            break
        chosen.add(offload.item_id)
        free_tokens -= offload.tokens_before - offload.tokens_after
    return Plan(offloads=tuple(o for o in offloads if o.item_id in chosen))
