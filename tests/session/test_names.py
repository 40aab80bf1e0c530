"""Names: readable where they can be, safe always, never two the same."""

import random
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ConfigError, UnsafePath
from ctxfs.messages.items import ItemType
from ctxfs.messages.names import (
    ENVELOPE,
    TEXT,
    NameAllocator,
    artifact_name,
    check_session_id,
    new_session_id,
    safe_name,
    session_name,
)
from ctxfs.storage.base import check_name
from ctxfs.tools.raw_messages import direct_file_name, listed_file_name, plain_name

HOSTILE = [
    "", ".", "..", "../../etc/passwd", "/", "a/b", "a\\b", "nul\0byte", "CON", "con.txt", "LPT1", "aux.tar.gz",
    "trailing.", "trailing ", ".hidden", "-rf", "~", "~2", "id~2", "x" * 1500, "\ud800", "ÄÖ", "a\nb", "a:b", "call|1",
]  # fmt: skip
RAW_IDS = st.one_of(
    st.text(st.characters(codec=None), max_size=200),
    st.text("aAbB.-_~2/\\", max_size=6),
    st.sampled_from(HOSTILE),
)


@pytest.mark.parametrize("raw", ["call_abc123", "toolu_01AbC", "msg_001", "a", "x" * 120, "a.b-c_d", "console"])
def test_a_readable_safe_id_keeps_its_name(raw: str) -> None:
    assert safe_name(raw) == raw


@given(RAW_IDS)
def test_every_name_is_safe_everywhere(raw: str) -> None:
    name = safe_name(raw)
    assert re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.~-]{0,119}", name)
    assert not name.endswith(".")
    assert name.split(".")[0].lower() not in {"con", "prn", "aux", "nul", "com1", "lpt9"}
    assert check_name(name) == (name,)


@given(st.lists(RAW_IDS, unique=True, max_size=30))
def test_distinct_ids_have_distinct_names(raws: list[str]) -> None:
    assert len({safe_name(raw) for raw in raws}) == len(raws)


@given(st.lists(st.tuples(RAW_IDS, RAW_IDS), max_size=30))
def test_no_two_claims_meet_in_one_file_also_where_case_does_not_count(claims: list[tuple[str, str]]) -> None:
    names = NameAllocator()
    made = [names.allocate(ItemType.TOOL_RESULT, raw, tool) for raw, tool in claims]
    assert len({item_id.casefold() for item_id, _ in made}) == len(claims)
    assert len({name.casefold() for _, name in made}) == len(claims)
    assert all(len(item_id) <= 120 for item_id, _ in made)


def test_shapes_of_the_spec() -> None:
    names = NameAllocator()
    assert names.allocate(ItemType.TOOL_RESULT, "call_abc123", "Read") == (
        "call_abc123", "tool_result/Read/call_abc123.json",
    )  # fmt: skip
    assert names.allocate(ItemType.ASSISTANT_MESSAGE, None) == ("msg_001", "assistant_message/msg_001.json")
    assert names.allocate(ItemType.USER_MESSAGE, None) == ("msg_002", "user_message/msg_002.json")
    assert NameAllocator(layout=TEXT).allocate(ItemType.TOOL_RESULT, "c", "Bash") == ("c", "tool_result/Bash/c.txt")


def test_repeated_ids_are_counted() -> None:
    names = NameAllocator()
    made = [names.allocate(ItemType.TOOL_RESULT, raw, "Read")[0] for raw in ("a", "a", "A", "a~2", "a")]
    assert made[:3] == ["a", "a~2", "A~3"]
    assert made[3].startswith("a_2~")
    assert made[4] == "a~4"
    long = [names.allocate(ItemType.TOOL_RESULT, "x" * 120, "Read")[0] for _ in range(3)]
    assert long[1:] == ["x" * 118 + "~2", "x" * 118 + "~3"]


def test_a_resumed_session_goes_on_where_its_ids_stand() -> None:
    names = NameAllocator(["msg_001", "MSG_002", "call", "call~2"])
    assert names.allocate(ItemType.USER_MESSAGE, None)[0] == "msg_003"
    assert names.allocate(ItemType.TOOL_RESULT, "call", "Read")[0] == "call~3"


def test_message_ids_step_over_a_hostile_call_id() -> None:
    names = NameAllocator()
    assert names.allocate(ItemType.TOOL_RESULT, "msg_001", "Read")[0] == "msg_001"
    assert names.allocate(ItemType.USER_MESSAGE, None)[0] == "msg_002"


def test_session_ids() -> None:
    moment = datetime(2024, 1, 15, 13, 34, 56, tzinfo=timezone(timedelta(hours=1)))
    session_id = new_session_id(moment, random.Random(1))
    assert re.fullmatch(r"session_20240115_123456_[a-z0-9]{6}", session_id)
    assert session_id != new_session_id(moment, random.Random(2))
    assert check_session_id(session_id) == session_id
    assert check_session_id(new_session_id(datetime.now(UTC), random.Random())) != session_id


@pytest.mark.parametrize("session_id", HOSTILE)
def test_bad_session_ids_are_refused(session_id: str) -> None:
    with pytest.raises(ConfigError, match="session id"):
        check_session_id(session_id)


def test_layouts_differ_in_form() -> None:
    assert (ENVELOPE.raw, TEXT.raw) == (False, True)
    for layout in (ENVELOPE, TEXT):
        assert layout.is_raw("artifacts/tool/a.json")
        assert layout.is_raw("tool_result/Read/a.json") == layout.raw


def test_an_id_of_120_characters_is_the_longest() -> None:
    assert safe_name("x" * 120) == check_session_id("x" * 120) == "x" * 120
    shortened = safe_name("x" * 121)
    assert shortened != "x" * 121
    assert len(shortened) <= 120
    with pytest.raises(ConfigError, match="at most 120"):
        check_session_id("x" * 121)


@pytest.mark.parametrize("number", range(10))
def test_names_that_windows_reserves_are_nobodys(number: int) -> None:
    for name in (f"com{number}", f"LPT{number}.txt", f"com{number}.a.b"):
        assert safe_name(name).startswith(f"_{name.split('.')[0]}")
        with pytest.raises(ConfigError):
            check_session_id(name)
    assert safe_name("com10") == "com10"


def test_an_unsafe_id_stays_readable() -> None:
    assert safe_name("Ünsafe id/with:everything").startswith("_nsafe_id_with_everything~")
    assert safe_name("../../etc/passwd").startswith("_.._etc_passwd~")
    assert safe_name("...").startswith("_~")
    assert safe_name("y" * 500).startswith("y" * 60)


def test_a_result_without_an_id_gets_one() -> None:
    names = NameAllocator()
    first, second = (names.allocate(ItemType.TOOL_RESULT, raw, "Read")[0] for raw in (None, ""))
    assert first.startswith("_~")
    assert second == f"{first}~2"


def test_what_commands_print_is_counted_and_steps_over_taken_names() -> None:
    names = NameAllocator(["terminal_002"])
    assert names.allocate_terminal() == ("terminal_001", "artifacts/terminal/terminal_001.log")
    assert names.allocate_terminal() == ("terminal_003", "artifacts/terminal/terminal_003.log")
    assert names.allocate(ItemType.TOOL_RESULT, "terminal_003", "Read")[0] == "terminal_003~2"


def test_a_taken_id_is_never_given_out() -> None:
    names = NameAllocator()
    names.take(["Call", "msg_001"])
    assert names.allocate(ItemType.TOOL_RESULT, "call", "Read")[0] == "call~2"
    assert names.allocate(ItemType.USER_MESSAGE, None)[0] == "msg_002"


def test_a_draft_gives_out_the_same_ids_and_takes_none() -> None:
    names = NameAllocator(["call", "call~2"])
    draft = names.draft()
    wanted = [(ItemType.TOOL_RESULT, "call"), (ItemType.USER_MESSAGE, None), (ItemType.TOOL_RESULT, "Call")]
    drafted = [draft.allocate(item_type, raw, None)[0] for item_type, raw in wanted]
    assert drafted == ["call~3", "msg_001", "Call~4"]
    assert [names.allocate(item_type, raw, None)[0] for item_type, raw in wanted] == drafted


def test_a_draft_does_not_give_out_what_was_taken_meanwhile() -> None:
    names = NameAllocator()
    draft = names.draft()
    names.take(["msg_001", "call"])
    assert draft.allocate(ItemType.USER_MESSAGE, None)[0] == "msg_002"
    assert draft.allocate(ItemType.TOOL_RESULT, "call", "Read")[0] == "call~2"


def test_a_session_is_named_like_the_thread_that_it_is_of_and_no_two_threads_alike() -> None:
    assert session_name("thread-1") == "thread-1"
    odd = [session_name(raw) for raw in ("user/7", "user:7", "thread-1~2", session_name("user/7"))]
    assert len(set(odd)) == 4
    assert [check_session_id(name) for name in odd] == odd


def test_names_of_the_other_specs() -> None:
    assert artifact_name("a", is_json=True) == "artifacts/tool/a.json"
    assert artifact_name("a", is_json=False) == "artifacts/tool/a.txt"
    assert direct_file_name("session", "call") == "session/call.md"
    assert listed_file_name("call") == "tool-result-call.md"
    assert listed_file_name("call", 1) == "tool-result-call-1.md"


@pytest.mark.parametrize("raw", ["", ".", "..", "a/b", "/", "a\\b", "a\0", "\ud800", "x" * 256])
def test_a_plain_name_is_one_part_of_a_path(raw: str) -> None:
    makes: list[Callable[[str], str]] = [
        lambda name: plain_name(name, "session_id"),
        lambda name: direct_file_name("s", name),
        lambda name: direct_file_name(name, "c"),
    ]
    for make in makes:
        with pytest.raises(UnsafePath):
            make(raw)
    with pytest.raises(UnsafePath):
        listed_file_name(raw)
    assert plain_name("x" * 255, "session_id") == "x" * 255
