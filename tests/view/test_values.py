"""What the page says of sessions: figures, charts, findings, lists, and who may see it."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ItemType
from ctxfs.session.damaged import DamagedContent
from ctxfs.session.journal import Damage
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.session.records import Shadowed
from ctxfs.session.recovery import Recovery
from ctxfs.view.activity import Activity, Call, Event, EventKind, ItemLife, Part, ShadowRun
from ctxfs.view.chart import chart_data
from ctxfs.view.findings import Unfinished, findings
from ctxfs.view.item_list import item_list
from ctxfs.view.overview import chosen_rows, narrow_titles
from ctxfs.view.pages import Pages
from ctxfs.view.security import HEADERS, allowed_hosts, refusal, same_token


def call(number: int, tokens: int = 100, read: int | None = None, written: int = 0, usd: float | None = None) -> Call:
    usage = None if read is None else Usage(cache_read_input_tokens=read, cache_creation_input_tokens=written)
    return Call(number=number, tokens=tokens, parts={Part.RESULTS: tokens}, usage=usage, usd=usd)


def test_a_chart_has_a_column_for_each_part_that_there_is() -> None:
    sizes = {"a": 30, "b": 90, "c": 60}
    events = [
        Event(call=2, kind=EventKind.EVICTED, item_ids=(item,), tokens_before=tokens) for item, tokens in sizes.items()
    ]
    activity = Activity(calls=(call(1, read=5, usd=0.5), call(2, 70, read=9, written=1)), events=tuple(events))
    data = chart_data(activity, window_tokens=200, steps=(150,))
    assert data["calls"] == [1, 2]
    assert data["layers"] == [{"name": "results", "tokens": [100, 70]}]
    assert (data["window"], data["steps"]) == (200, [150])
    lanes = {lane["name"]: (lane["calls"], lane["items"]) for lane in data["lanes"]}
    assert (lanes["evicted"], lanes["restored"]) == (([2], ["b"]), ([], [])), "the largest item of each call"
    assert data["bills"] == {
        "tokens": {"read": [5, 9], "written": [0, 1], "input": [0, 0], "output": [0, 0]},
        "usd": None,
    }
    priced = chart_data(Activity(calls=(call(1, read=5, usd=0.5), call(2))), window_tokens=None, without=[0.25])
    assert priced["bills"]["usd"] == [0.5, 0]
    assert priced["without"] == [0.25]
    assert chart_data(Activity(calls=(call(1),)), window_tokens=None)["bills"] is None


def life(item_id: str, *events: Event, repeated: tuple[int, ...] = ()) -> ItemLife:
    return ItemLife(
        item_id=item_id,
        item_type=ItemType.TOOL_RESULT,
        tool="read",
        title="read(a.py)",
        tokens=9,
        call=1,
        events=events,
        left=next((event for event in reversed(events) if event.is_eviction), None),
        repeated=repeated,
    )


def titles(activity: Activity, window_tokens: int | None = None, recovery: Recovery = Recovery()) -> list[str]:  # noqa: B008
    return [found.title for found in findings(activity, window_tokens=window_tokens, recovery=recovery)]


def test_nothing_is_found_where_nothing_is() -> None:
    assert titles(Activity()) == []
    assert titles(Activity(calls=(call(1), call(2, 180, read=100))), window_tokens=200) == []


def test_damage_comes_first() -> None:
    left = Event(call=2, kind=EventKind.EVICTED, item_ids=("call_1",))
    recovery = Recovery(
        damages=(Damage(offset=12, length=3, reason="the checksum does not match"),),
        contents=(DamagedContent(item_id="call_1", name="call_1.json", detail="the file is missing"),),
    )
    activity = Activity(items={"call_1": life("call_1", left)})
    assert titles(activity, recovery=recovery) == [
        "A stored content cannot be read",
        "The journal has a damaged line",
        "1 evicted content was never needed again",
    ]


def test_what_was_not_recorded_is_named() -> None:
    unfinished = Unfinished(files=("a.json", "b.json", "c.json", "d.json"), torn_bytes=12)
    found = findings(Activity(), window_tokens=None, recovery=Recovery(), unfinished=unfinished)
    assert [one.level for one in found] == ["warning", "warning"]
    assert "a.json, b.json, c.json and others" in found[0].detail
    assert "last 12 bytes" in found[1].detail
    one = findings(Activity(), window_tokens=None, recovery=Recovery(), unfinished=Unfinished(files=("a.json",)))
    assert "named a.json. When" in one[0].detail


def test_a_full_window_names_its_calls() -> None:
    activity = Activity(calls=(call(1, 100), call(2, 185), call(3, 50, read=190)))
    (found,) = findings(activity, window_tokens=200, recovery=Recovery())
    assert (found.calls, found.detail) == ((2, 3), "The largest request took 190 of 200 tokens.")


def test_a_falling_rate_of_the_cache_is_found() -> None:
    good = [call(n, read=90, written=10) for n in range(1, 9)]
    bad = [call(n, read=50, written=50) for n in range(9, 17)]
    assert titles(Activity(calls=(*good, *bad))) == ["The prompt cache is used less than before"]
    assert titles(Activity(calls=(*bad, *good))) == []
    assert titles(Activity(calls=tuple(call(n, read=0) for n in range(16)))) == []


def test_what_was_wasted_is_found() -> None:
    missed = Event(call=3, kind=EventKind.CACHE_MISSED, tokens_before=5_000, tokens_after=1_000)
    left = Event(call=2, kind=EventKind.EVICTED, item_ids=("call_1",))
    back = Event(call=3, kind=EventKind.READ_BACK, item_ids=("call_2",))
    items = {"call_1": life("call_1", left, repeated=(4, 5)), "call_2": life("call_2", left, back), "msg": life("msg")}
    found = findings(Activity(events=(missed,), items=items), window_tokens=None, recovery=Recovery())
    assert [(one.level, one.calls, one.item_ids) for one in found] == [
        ("warning", (3,), ()),
        ("note", (4, 5), ("call_1",)),
        ("note", (), ("call_1",)),
    ]
    assert "4,000 tokens" in found[0].detail


def test_the_list_of_items_is_filtered_ordered_and_paged() -> None:
    left = Event(call=2, kind=EventKind.EVICTED, item_ids=("call_1",))
    back = Event(call=3, kind=EventKind.READ_BACK, item_ids=("call_1",))
    lives = [life("call_1", left, back, repeated=(4,)), replace(life("msg_2"), tokens=50), life("call_3")]
    assert [one.item_id for one in item_list(lives).rows] == ["call_1", "msg_2", "call_3"]
    assert [one.item_id for one in item_list(lives, order="size").rows] == ["msg_2", "call_1", "call_3"]
    assert item_list(lives, order="read backs").rows[0].item_id == "call_1"
    assert item_list(lives, order="repeated").rows[0].item_id == "call_1"
    assert item_list(lives, order="nonsense").order == "call"
    assert [one.item_id for one in item_list(lives, matching="MSG").rows] == ["msg_2"]
    assert item_list(lives, matching="tool result").total == 3
    assert [one.item_id for one in item_list(lives, only_left=True).rows] == ["call_1"]
    many = item_list([life(f"call_{n}") for n in range(450)], first=200)
    assert (len(many.rows), many.total, many.previous_first, many.next_first) == (200, 450, 0, 400)
    assert (item_list(lives).previous_first, item_list(lives).next_first) == (None, None)


def test_the_list_of_sessions_is_filtered_and_sorted() -> None:
    old = SessionSummary(
        session_id="api-fix", changed_at=10.0, cost_usd=3.0, disk_bytes=5, models=("Claude",), calls=2, context_tokens=1
    )
    new = SessionSummary(session_id="crawl", changed_at=20.0, disk_bytes=9)
    assert chosen_rows([old, new]) == [new, old]
    assert chosen_rows([old, new], reverse=True) == [old, new]
    for sort in ("name", "cost", "calls", "tokens"):
        assert chosen_rows([new, old], sort=sort)[0] == old
    assert chosen_rows([old, new], sort="size")[0] == new
    assert chosen_rows([old, new], sort="nonsense") == [new, old]
    assert chosen_rows([old, new], matching="CLAUDE") == [old]
    assert chosen_rows([old, new], matching="raw") == [new]


SAME = {"host": "127.0.0.1:7575"}


@pytest.mark.parametrize(
    ("method", "headers", "may_write", "refused"),
    [
        ("GET", SAME, False, False),
        ("HEAD", {"host": "localhost:7575"}, False, False),
        ("GET", {}, False, True),
        ("GET", {"host": "evil.example:7575"}, False, True),
        ("GET", {"host": "127.0.0.1:80"}, False, True),
        ("GET", {**SAME, "origin": "http://127.0.0.1:7575"}, False, False),
        ("GET", {**SAME, "origin": "https://127.0.0.1:7575"}, False, True),
        ("GET", {**SAME, "origin": "null"}, False, True),
        ("GET", {**SAME, "sec-fetch-site": "same-origin"}, False, False),
        ("GET", {**SAME, "sec-fetch-site": "none"}, False, False),
        ("GET", {**SAME, "sec-fetch-site": "cross-site"}, False, True),
        ("GET", {**SAME, "sec-fetch-site": "same-site"}, False, True),
        ("POST", {**SAME, "origin": "http://127.0.0.1:7575"}, False, True),
        ("POST", {**SAME, "origin": "http://127.0.0.1:7575"}, True, False),
        ("POST", SAME, True, True),
        ("DELETE", {**SAME, "origin": "http://127.0.0.1:7575"}, True, True),
    ],
)
def test_only_this_machines_browser_is_answered(
    method: str, headers: dict[str, str], may_write: bool, refused: bool
) -> None:
    assert (refusal(method, headers, allowed_hosts(7575), may_write=may_write) is not None) == refused


def test_the_token_has_to_be_whole() -> None:
    assert same_token("secret", "secret")
    assert not same_token("secre", "secret")
    assert not same_token("\ud800", "secret")


def test_no_script_and_no_style_but_the_pages_own_files() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy


def test_shadow_runs_that_differ_are_shown_side_by_side() -> None:
    same = Shadowed(
        original="a", again="b", rewritten="a", is_noise=True, differs=False, reads_back=False, tools=("t",), age=1
    )
    other = replace(same, rewritten="Read {}", is_noise=False, differs=True, reads_back=True)
    runs = (
        *(ShadowRun(after_call=3, found=same), ShadowRun(after_call=7, found=other)),
        ShadowRun(after_call=0, found=other),
    )
    (found,) = findings(Activity(shadow_runs=runs), window_tokens=None, recovery=Recovery())
    assert (found.level, found.title) == (
        "note",
        "The model did something else in 2 of 3 shadow runs, and in 1 without any rewriting",
    )
    assert found.beside == runs[1:]
    page = Pages().render(
        "warnings.html",
        page=SimpleNamespace(findings=[found], activity=Activity()),
        link=lambda here, _, **choice: f"{here}?{choice}",
        here="/",
    )
    assert "<td><pre>a</pre></td><td><pre>b</pre></td><td><pre>Read {}</pre></td>" in page
    assert "call 7</a>" in page
    assert "call 0" not in page, "a history may record no calls"


def test_titles_that_begin_alike_are_shown_from_where_they_differ() -> None:
    same = "In the repository of the tariff service, find out why the test"
    titles = [f"{same} seven fails", f"{same} nine fails", "Which port?", "Which park?", "", f"{same} nine fails"]
    assert narrow_titles(titles) == {
        f"{same} seven fails": "In th… seven fails",
        f"{same} nine fails": "In th… nine fails",
        "Which port?": "Which port?",
        "Which park?": "Which park?",
        "": "",
    }
    assert narrow_titles([same, f"{same} again"]) == {same: "In th… test", f"{same} again": "In th… test again"}
    assert narrow_titles([f"{same} 1 fails", f"{same} 10 fails"])[f"{same} 1 fails"] == "In th… 1 fails"
    path = "/repository/of/the/tariff/service/tests/"
    assert narrow_titles([f"{path}one", f"{path}two"])[f"{path}one"] == "/repo… rvice/tests/one"
    assert narrow_titles([path, f"{path}two"])[path] == "/repo… rvice/tests/"
