"""Corners of the pure core that no session of the other tests happens to reach."""

import unicodedata
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.content.encoding import decode_blocks
from ctxfs.economics.prices import Prices
from ctxfs.errors import ArchiveTooLarge, ConfigError, InvalidRecord, MissingExtra, SessionExists
from ctxfs.eviction.plan import Archive, Plan
from ctxfs.items import ContentRange, ItemType
from ctxfs.jsontext import codec as json_codec
from ctxfs.jsontext.validate import is_json
from ctxfs.jsontext.write_stream import is_longer
from ctxfs.llm.messages import UserMessage
from ctxfs.materialize import Over
from ctxfs.placeholder.excerpts import Ends, Snippets
from ctxfs.placeholder.lines import clean_line
from ctxfs.placeholder.text import render_argument
from ctxfs.session.records import ItemAdded, Restored, UnknownRecord, from_json, to_json
from ctxfs.session.state import Savings, SessionState, fold
from session_items import PLACEHOLDER, make_item, stored_record

STORED = stored_record("msg_001", item_type=ItemType.USER_MESSAGE)


def test_a_plan_tells_its_archive() -> None:
    archive = Archive(
        item_id="msg_9",
        name="msg_9.json",
        path="/s/msg_9.json",
        item_ids=("msg_1", "call_1"),
        placeholder="gone",
        tokens_before=2_000,
        tokens_after=20,
        reason="whole exchanges, stored together",
    )
    plan = Plan(archive=archive, first_changed="msg_1")
    assert plan.explain().splitlines() == [
        "2 items: 2,000 -> 20 tokens, whole exchanges, stored together",
        "in all 1,980 tokens leave, from msg_1 on",
    ]


def test_the_size_of_any_value_can_be_told() -> None:
    """It is asked before anything else is: what is wrong with the value is said by whoever writes it."""
    for value in (({"rows": {2024: 1, None: 2}},), ({"rows": {"2024": 1, "None": 2}},)):
        assert is_longer(value, 31)
        assert not is_longer(value, 32)
    assert is_longer({"one": ["two", 3, None, 4.5]}, 29)
    assert not is_longer({"one": ["two", 3, None, 4.5]}, 30)


def test_of_a_long_list_no_more_is_looked_at_than_says_that_it_is_long() -> None:
    looked_at = 0

    class Rows(list[str]):
        def __iter__(self) -> Iterator[str]:
            nonlocal looked_at
            for row in super().__iter__():
                looked_at += 1
                yield row

    assert is_longer(Rows(["a row"] * 100_000), 4_000)
    assert looked_at < 500


def test_an_argument_points_to_the_one_that_names_the_file() -> None:
    assert render_argument("content") == "[Content offloaded] with content"


@pytest.mark.parametrize("limits", [{"chars": -1, "size_bytes": 0}, {"chars": 0, "size_bytes": -1}])
def test_limits_below_zero_are_refused(limits: dict[str, int]) -> None:
    with pytest.raises(ConfigError, match="use a whole number, 0 or more"):
        Over(**limits)


def test_errors_carry_what_they_speak_of() -> None:
    missing = MissingExtra("openai", "openai")
    assert (missing.extra, missing.package) == ("openai", "openai")
    assert "pip install 'ctxfs[openai]'" in str(missing)
    exists = SessionExists("session_1", "/root")
    assert (exists.session_id, exists.root) == ("session_1", "/root")
    assert ArchiveTooLarge("bytes", 4_096).limit == 4_096


def test_a_value_that_is_nested_too_deep_is_a_value_error() -> None:
    nested: Any = []
    for _ in range(100_000):
        nested = [nested]
    with pytest.raises(ValueError, match="nested too deep"):
        json_codec.dumps(nested)


@pytest.mark.parametrize("text", ['"\ud800"', '["\ud800"]', "[" * 300 + "]" * 300])
def test_json_that_a_fast_parser_refuses_is_json_all_the_same(text: str) -> None:
    assert is_json(text)


@pytest.mark.parametrize("text", ['["\ud800" oops', '{"a": "\ud800"', '["\ud800"] x', '["\ud800",]'])
def test_lone_surrogates_make_nothing_json(text: str) -> None:
    assert not is_json(text)


def test_what_was_written_as_text_is_one_json_string() -> None:
    assert list(decode_blocks([b"caf\\u00e9", b"!"], "text", raw=False)) == ["café".encode(), b"!"]
    with pytest.raises(ValueError):
        list(decode_blocks([b'a","b'], "text", raw=False))


@pytest.mark.parametrize("data", [[], "text", None])
def test_a_record_is_an_object(data: Any) -> None:
    with pytest.raises(TypeError):
        from_json(data)


def test_a_stored_content_has_no_negative_size() -> None:
    with pytest.raises(ValueError, match="negative"):
        from_json({**to_json(STORED), "size_bytes": -1})


def test_a_message_that_is_no_result_can_be_restored() -> None:
    item = make_item(
        "msg_001", UserMessage(PLACEHOLDER), 5, content_tokens=90, offloaded=True, destroyed=True, offload_path="x"
    )
    state = fold(SessionState(), [STORED, ItemAdded(item=item), Restored(item_id="msg_001")])
    restored = state.items["msg_001"]
    assert (restored.offloaded, restored.destroyed, restored.offload_path, restored.token_count) == (
        False,
        False,
        None,
        90,
    )
    assert state.content_stored == {"msg_001"}


def test_a_record_of_a_later_version_changes_nothing() -> None:
    assert fold(SessionState(), [UnknownRecord(data={"type": "pinned"})]) == SessionState()


LOG = "first\n" + "".join(f"line {n}\n" for n in range(50)) + "ValueError: no\n" + "last\n" * 20


@pytest.mark.parametrize(("lines", "size_bytes"), [(0, 1_000), (3, 0), (3, 5)])
def test_without_room_nothing_is_shown(lines: int, size_bytes: int) -> None:
    assert not any(Snippets(LOG).passages(lines=lines, size_bytes=size_bytes).values())


def test_passages_with_errors_end_where_the_room_ends() -> None:
    text = "ok\n" * 20 + "".join(f"ERROR number {n} of many that do not fit\n" for n in range(30)) + "ok\n" * 20
    shown = Snippets(text).passages(lines=3, size_bytes=200)
    assert len(shown["Lines with errors"]) == 3
    assert all("ERROR" in line for line in shown["Lines with errors"])


def test_a_trace_at_the_end_of_a_text_is_shown_to_its_end() -> None:
    text = "ok\n" * 100 + "Traceback (most recent call last):\n  File x\n    y"
    errors = Snippets(text).passages(lines=1, size_bytes=200)["Lines with errors"]
    assert errors == ["101: Traceback (most recent call last):"]
    both = Snippets(text).passages(lines=2, size_bytes=200)
    assert both["Last lines"] == ["102:   File x", "103:     y"]


def test_a_short_text_is_shown_whole() -> None:
    assert Snippets("one\ntwo").passages(lines=5, size_bytes=500)["First lines"] == ["1: one", "2: two"]


def test_a_long_trace_is_shown_in_part() -> None:
    text = "ok\n" * 50 + "ValueError: no\n" + "".join(f"  at place {n}\n" for n in range(30)) + "ok\n" * 50
    shown = Snippets(text).passages(lines=40, size_bytes=400)["Lines with errors"]
    assert shown[0] == "51: ValueError: no"
    assert shown[-1] == "63:   at place 11"


@pytest.mark.parametrize("before", range(20))
def test_what_began_in_the_head_goes_on_after_it(before: int) -> None:
    text = "ok\n" * before + "ValueError: no\n" + "".join(f"  at place {n}\n" for n in range(12)) + "ok\n" * 50
    shown = Snippets(text).passages(lines=14, size_bytes=2_000)
    found = [*shown["First lines"], *shown["Lines with errors"]]
    lines = [f"{number}: {line}" for number, line in enumerate(text.splitlines(), 1)]
    assert found == lines[:14] + lines[max(14, before) : before + 13]


def test_errors_in_the_head_take_no_room_from_later_ones() -> None:
    text = "".join(f"ERROR {n}\n" for n in range(10)) + "ok\n" * 50 + "ERROR last\n" + "ok\n" * 50
    assert Snippets(text).passages(lines=10, size_bytes=1_000)["Lines with errors"] == ["61: ERROR last"]


@given(st.text())
def test_a_clean_line_has_nothing_that_a_terminal_obeys(line: str) -> None:
    shown = clean_line(line)
    assert not any(unicodedata.category(character) in {"Cc", "Cs", "Zl", "Zp"} for character in shown)
    assert line.isprintable() <= (shown == line)


def test_what_a_terminal_would_obey_does_not_hide_the_rest() -> None:
    shown = Snippets("\x1b[0m" * 1_000 + "\nsecond").passages(lines=5, size_bytes=80)
    assert shown["Last lines"][-1] == "2: second"


def test_one_long_line_is_cut_at_both_ends() -> None:
    shown = Snippets("begin " + "x" * 10_000 + " end").passages(lines=5, size_bytes=60)
    assert shown["First lines"][0].startswith("1: begin ")
    assert shown["First lines"][0].endswith("…")
    assert shown["Last lines"][0].endswith(" end")


def test_the_ends_of_what_comes_in_pieces() -> None:
    ends = Ends(head_bytes=20, tail_bytes=20)
    for n in range(100):
        ends.feed(f"line {n}\n".encode())
    shown = ends.passages(line_count=100, lines=2, size_bytes=20)
    assert shown == {
        "First lines": ["1: line 0", "2: lin…"],
        "Lines with errors": [],
        "Last lines": ["100: line 99"],
    }
    assert ends.whole is None


@given(
    lines=st.lists(
        st.sampled_from(["ok", "ValueError: grüße", '  File "x.py"', "at main", "", "error " * 40]), max_size=60
    ),
    cuts=st.lists(st.integers(0, 2_000), max_size=9),
    ended=st.booleans(),
)
def test_the_errors_of_what_comes_in_pieces_are_those_of_the_whole(
    lines: list[str], cuts: list[int], ended: bool
) -> None:
    text = "\n".join(lines) + "\n" * ended
    data = text.encode()
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=1_000)
    for begin, end in pairwise(places):
        ends.feed(data[begin:end])
    ends.feed(b"", last=True)
    snippets = Snippets(text)
    shown = ends.passages(line_count=snippets.line_count, lines=500, size_bytes=100_000)["Lines with errors"]
    expected = dict(snippets.around_errors(1))
    assert [row.split(": ", 1)[0] for row in shown] == [str(number) for number in sorted(expected)]
    assert ends.chars == len(text)


def test_no_more_errors_are_kept_than_can_be_shown() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=3)
    for n in range(1, 100):
        ends.feed(f"error {n}\n".encode())
    ends.feed(b"error " * 100_000, last=True)
    shown = ends.passages(line_count=100, lines=9, size_bytes=1_000)["Lines with errors"]
    assert shown == ["1: error 1", "2: error 2", "3: error 3"]


def test_of_a_trace_after_the_last_error_that_fits_nothing_is_kept() -> None:
    ends = Ends(head_bytes=0, tail_bytes=0, error_lines=1)
    ends.feed(b"error: a test failed\n    at main (app.js:1:1)\n    at run (app.js:2:1)\n", last=True)
    assert ends.passages(line_count=3, lines=9, size_bytes=100)["Lines with errors"] == ["1: error: a test failed"]


def test_a_range_that_no_journal_could_hold_is_refused() -> None:
    with pytest.raises(InvalidRecord, match="first_line of a ContentRange is '1': use"):
        ContentRange(item_id="call_1", path="/s/call_1.json", first_line="1", last_line=2)  # type: ignore[arg-type]


def test_what_left_on_arrival_saved_on_average() -> None:
    assert Savings().mean_saved_chars == 0
    assert Savings(count=2, saved_chars=3_000).mean_saved_chars == 1_500


def test_a_price_of_input_is_above_zero() -> None:
    with pytest.raises(ConfigError, match="input is 0: use a price above 0"):
        Prices(input=0, cache_read=0, cache_write_5m=0, cache_write_1h=0, output=0)


def test_what_fits_the_head_is_whole() -> None:
    ends = Ends(head_bytes=100, tail_bytes=0)
    ends.feed(b"short\n")
    assert ends.whole == "short\n"
    assert ends.passages(line_count=1, lines=9, size_bytes=100)["First lines"] == ["1: short"]
    ends = Ends(head_bytes=100, tail_bytes=0)
    ends.feed(b"no newline")
    assert ends.passages(line_count=1, lines=9, size_bytes=100)["First lines"] == ["1: no newline"]
