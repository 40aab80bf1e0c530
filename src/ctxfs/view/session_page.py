"""The values for the page of a session: its figures, a call, an item."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self, cast

from ctxfs.errors import ConfigError, ContentGone, StorageError, ToolError, UnknownItem
from ctxfs.messages.items import ContextItem, ItemType, unevicted_tokens
from ctxfs.messages.messages import readable_text
from ctxfs.messages.models.known import known_model
from ctxfs.messages.names import path_of
from ctxfs.session.content.stored import Stored
from ctxfs.session.records import Decided, Record
from ctxfs.session.timeline.effect import Effect, compared_window, effect, known_window
from ctxfs.storage.threads import run_in_steps
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.view.activity import Activity, EventKind, ItemLife
from ctxfs.view.call_panel import CallPanel, call_panel
from ctxfs.view.chart import chart_data
from ctxfs.view.content import ContentPage, How, content_page
from ctxfs.view.findings import Finding, findings
from ctxfs.view.item_list import ItemList, item_list
from ctxfs.view.sources import OpenSession
from ctxfs.view.worth import Unevicted, Worth, unevicted, worth

TABS = ("timeline", "items", "warnings")
ITEMS_A_PAGE = 200
NEWEST_LINES = 12
"""How much of the newest result is shown before anything is chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The beginning of the newest result in a request: its first lines, which are not trusted; ``more``: it goes on."""

    item_id: str
    lines: Sequence[str]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage:
    """The values that the page of a session shows.

    ``tokens``: what a request would take now. ``unevicted_tokens``: what its messages would take without evictions.
    """

    session_id: str
    question: str
    path: str
    version: int
    tab: str
    activity: Activity
    tokens: int
    unevicted_tokens: int
    window_tokens: int | None
    price_steps: Sequence[int]
    is_running: bool
    findings: Sequence[Finding]
    unevicted: Unevicted
    effect: Effect | None
    call: CallPanel | None = None
    items: ItemList | None = None
    newest: Newest | None = None

    @classmethod
    async def of(cls, opened: OpenSession, tab: str = "timeline") -> Self:
        """The page of an open session, without a call."""
        page = await opened.derived(cls, cls._of)
        return replace(page, tab=tab if tab in TABS else "timeline")

    @classmethod
    def _of(cls, opened: OpenSession) -> Self:
        activity, state = opened.activity, opened.state
        info = known_model(activity.model) if activity.model else None
        window = known_window(state.eviction, activity.model)
        tokens = sum(item.token_count for item in state.items.values())
        return cls(
            session_id=opened.fs.session_id,
            question="" if opened.question is None else opened.question.title,
            path=opened.fs.base,
            version=opened.version,
            tab="timeline",
            activity=activity,
            tokens=activity.account.request_tokens(tokens),
            unevicted_tokens=unevicted_tokens(state.items.values()),
            window_tokens=window,
            price_steps=tuple(info.prices.steps) if info is not None and info.prices is not None else (),
            is_running=opened.is_running,
            findings=findings(
                activity,
                window_tokens=window,
                recovery=opened.fs.recovery,
                unfinished=opened.unfinished,
            ),
            unevicted=unevicted(activity, window_tokens=compared_window(state.eviction, activity.account.model)),
            effect=_effect(opened),
        )

    def redacted(self, activity: Activity, question: str) -> Self:
        """The same page with another account of what happened, and another headline."""
        return replace(self, activity=activity, question=question)

    @property
    def chart(self) -> Mapping[str, Any]:
        """The data of its charts."""
        return chart_data(
            self.activity,
            window_tokens=self.window_tokens,
            steps=self.price_steps,
            without=self.unevicted.usd,
            too_long_from=self.unevicted.too_long_from,
        )

    @property
    def usd_without(self) -> float | None:
        """What the session would have cost without evictions; None: not known, or it would not have fitted."""
        paid = self.activity.usd
        did = self.effect
        if paid is None or did is None or not did.evictions or did.net_usd is None or did.too_long_from is not None:
            return None
        return max(0.0, paid + did.net_usd)

    @property
    def freed(self) -> int:
        """The tokens that evictions freed."""
        return sum(departure.tokens_freed for departure in self.activity.account.departures)


def _effect(opened: OpenSession) -> Effect | None:
    """What evictions saved and cost; None: the recorded prices are those of another version of ctxfs."""
    try:
        return effect(opened.activity.account, opened.state.eviction)
    except ConfigError:
        return None


async def session_page(opened: OpenSession, tab: str, query: Mapping[str, str]) -> SessionPage:
    """The page of a session; the timeline shows the call that ``query`` names, or the last one."""
    page = await SessionPage.of(opened, tab)
    if page.tab == "items":
        listed = partial(
            item_list,
            opened.activity.items.values(),
            matching=query.get("filter", ""),
            order=query.get("order", ""),
            first=number_in(query, "from", 0),
            only_left=query.get("left") == "1",
        )
        return replace(page, items=await run_in_steps(listed))
    if page.tab != "timeline":
        return page
    timeline, activity = await opened.timeline(), opened.activity
    number = number_in(query, "call", len(activity.calls))
    panel = await run_in_steps(lambda: call_panel(activity, timeline, number, shows_all=query.get("rows") == "all"))
    newest = None if panel is None or query.get("item") else await _newest(opened, panel)
    return replace(page, call=panel, newest=newest)


async def _newest(opened: OpenSession, panel: CallPanel) -> Newest | None:
    """The newest result of a request as the model saw it; None: there is none, or it cannot be read."""
    row = next((row for row in reversed(panel.rows) if row.item_type is ItemType.TOOL_RESULT), None)
    if row is None:
        return None
    sent = next((item for item in panel.request.items if item.id == row.item_id), None)
    if row.is_placeholder and sent is not None:
        lines = readable_text(sent.message.content).split("\n")
        return Newest(item_id=row.item_id, lines=lines[:NEWEST_LINES], more=len(lines) > NEWEST_LINES)
    try:
        content = await content_page(opened.fs, row.item_id, "full")
    except (StorageError, ToolError, UnknownItem, ContentGone):
        return None  # the item's own panel says why
    shown = [line.text for line in content.lines[:NEWEST_LINES]]
    return Newest(item_id=row.item_id, lines=shown, more=content.total_lines > len(shown))


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemPanel:
    """One item: what it is, its life, and a page of its content.

    Args:
        life: what happened to it.
        place: where its content is now, in words.
        file: the absolute path of its file; empty: it has none.
        stored: what is known of that file; None: it has none.
        how: which lines are shown, or "placeholder".
        page: those lines; None: they cannot be shown (see ``problem``), or were not asked for.
        placeholder: what the model sees instead of the content, or would see; empty: nothing.
        pattern: the pattern that was searched for.
        problem: why the content cannot be shown; empty: it can.
        worth: what each of its evictions was worth, by the call that followed it.
        is_elsewhere: somebody else owns the messages, so read-backs are not recorded.
    """

    life: ItemLife
    place: str
    file: str
    stored: Stored | None
    how: str
    page: ContentPage | None
    placeholder: str
    pattern: str = ""
    problem: str = ""
    worth: Mapping[int, Worth] = field(default_factory=dict)
    is_elsewhere: bool = False


HOWS = ("full", "tail", "grep", "placeholder")


async def item_panel(opened: OpenSession, query: Mapping[str, str]) -> ItemPanel | None:
    """The item that ``query`` names, with the requested page of its content; None: it names no item.

    Raises:
        UnknownItem: there is no such item.
    """
    item_id = query.get("item", "")
    if not item_id:
        return None
    life = opened.activity.items.get(item_id)
    if life is None:
        raise UnknownItem(item_id)
    fs = opened.fs
    item, stored = opened.state.items.get(item_id), fs.state.stored.get(item_id)
    how = query.get("how", "full")
    how = how if how in HOWS else "full"
    page, problem = None, ""
    if how != "placeholder":
        try:
            page = await _page(opened, item_id, how, query)
        except (StorageError, ToolError, UnknownItem) as error:
            problem = str(error)
    return ItemPanel(
        life=life,
        place=_place(life, item, stored),
        file=path_of(fs.base, stored.name) if stored is not None else "",
        stored=stored,
        how=how,
        page=page,
        placeholder=_placeholder(item) or _shown_instead(opened.records, item_id),
        pattern=query.get("find", ""),
        problem=problem,
        worth={e.call: worth(opened.activity, life, e) for e in life.events if e.kind is EventKind.EVICTED},
        is_elsewhere=opened.activity.account.is_elsewhere,
    )


async def _page(opened: OpenSession, item_id: str, how: str, query: Mapping[str, str]) -> ContentPage | None:
    """The requested page of the content; None: a search without a pattern."""
    pattern = query.get("find", "")
    if how == "grep" and not pattern:
        return None
    where: Any = {"first": max(1, number_in(query, "line", 1)), "pattern": pattern}
    if (char := number_in(query, "char", -1)) >= 0:
        where["char"] = char
    return await content_page(opened.fs, item_id, cast("How", how), **where)


def number_in(query: Mapping[str, str], name: str, otherwise: int) -> int:
    """The number ``name`` in a query, or ``otherwise``."""
    given = query.get(name, "")
    return int(given) if given.isdecimal() and len(given) < 16 else otherwise


def _place(life: ItemLife, item: ContextItem | None, stored: Stored | None) -> str:
    if item is not None and not item.destroyed:
        return "in the context, whole"
    gone = f"not in the context since call {life.left.call:,}" if life.left is not None else "not in the context"
    if item is not None and item.source is not None and stored is None:
        source = item.source
        return f"{gone}; it repeats lines {source.first_line}-{source.last_line} of {source.item_id}"
    return f"{gone}; kept whole in {'the file below' if stored is not None else 'the archive of a compaction'}"


def _shown_instead(records: Sequence[Record], item_id: str) -> str:
    """The replacement of the item in a history that a framework owns; empty: there is none."""
    content = next((r.content for r in reversed(records) if isinstance(r, Decided) and r.item_id == item_id), "")
    return json_codec.dumps_text(dict(content)) if isinstance(content, Mapping) else readable_text(content)


def _placeholder(item: ContextItem | None) -> str:
    if item is None:
        return ""
    return readable_text(item.message.content) if item.destroyed else item.placeholder or ""
