"""Records, and what folding them gives."""

from dataclasses import replace
from typing import Any

import pytest

from ctxfs.errors import ConfigError, NotRestorable
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ItemType
from ctxfs.messages.messages import AssistantMessage, ToolMessage, UserMessage
from ctxfs.messages.names import short_name
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import (
    CallMade,
    Closed,
    ContentRemoved,
    Decided,
    ItemAdded,
    NoteWritten,
    PartsNoted,
    Pinned,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionTagged,
    Shadowed,
    UnknownRecord,
    WriterOpened,
)
from ctxfs.session.state import OffloadStats, Owner, SessionState, check_owner, fold
from session_items import PLACEHOLDER, make_item, stored_record

STORED = stored_record("msg_001", item_type=ItemType.USER_MESSAGE)


@pytest.mark.parametrize("data", [[], "text", None])
def test_a_record_is_an_object(data: Any) -> None:
    with pytest.raises(TypeError):
        from_json(data)


def test_a_stored_content_has_no_negative_size() -> None:
    with pytest.raises(ValueError, match="negative"):
        from_json({**to_json(STORED), "size_bytes": -1})


def test_what_was_removed_has_no_negative_size() -> None:
    removed = ContentRemoved.of(STORED, removed_at=1.0, by="prune", reason="nothing refers to it")
    assert from_json(to_json(removed)) == removed
    for name in ("size_bytes", "lines"):
        with pytest.raises(ValueError, match="negative"):
            from_json({**to_json(removed), name: -1})


def test_a_tag_is_a_text() -> None:
    tagged = SessionTagged(tags=("nightly",))
    assert from_json(to_json(tagged)) == tagged
    with pytest.raises(ValueError, match="a tag is a text"):
        from_json({**to_json(tagged), "tags": [1]})


def test_a_shadow_run_is_kept_as_it_was_recorded() -> None:
    run = Shadowed(
        original="a {}",
        again="a {}",
        rewritten="b {}",
        is_noise=False,
        differs=True,
        reads_back=False,
        tools=("a",),
        age=2,
    )
    assert from_json(to_json(run)) == run
    assert fold(SessionState(), [run]).shadowed == [run]


def test_a_message_in_an_archive_is_not_restored_alone() -> None:
    gone = make_item("msg_001", UserMessage("the question"), 5)
    state = fold(SessionState(), [ItemAdded(item=gone), Removed(item_ids=("msg_001",), reason="full", archive="msg_9")])
    with pytest.raises(NotRestorable, match="its message is in the archive msg_9"):
        state.check_restorable("msg_001")


def test_what_is_stored_and_no_message_is_read_instead() -> None:
    with pytest.raises(NotRestorable, match=f"it is not a message of the context: read {STORED.name}"):
        fold(SessionState(), [STORED]).check_restorable("msg_001")


def test_what_is_stored_is_found_by_its_short_name() -> None:
    state = fold(SessionState(), [STORED])
    assert state.find_short(short_name("msg_001")) == "msg_001"
    assert state.find_short(short_name("msg_002")) is None
    fold(state, [stored_record("msg_002"), STORED])
    assert [state.find_short(short_name(one)) for one in ("msg_001", "msg_002")] == ["msg_001", "msg_002"]


def test_a_removed_content_is_found_by_its_short_name_and_keeps_its_id() -> None:
    state = fold(SessionState(), [STORED, stored_record("msg_002", name="user_message/msg_002.json")])
    assert state.find_short(short_name("msg_001")) == "msg_001"
    state.apply(ContentRemoved.of(STORED, removed_at=1.0, by="prune", reason="nothing refers to it"))
    assert [state.find_short(short_name(one)) for one in ("msg_001", "msg_002")] == ["msg_001", "msg_002"]
    assert state.ids == {"msg_001", "msg_002"}


def test_a_content_that_was_removed_and_is_stored_again_is_found_by_its_short_name() -> None:
    removed = ContentRemoved.of(STORED, removed_at=1.0, by="prune", reason="nothing refers to it")
    state = fold(SessionState(), [STORED, stored_record("msg_002"), removed])
    assert state.find_short(short_name("msg_001")) == "msg_001"
    state.apply(STORED)
    assert [state.find_short(short_name(one)) for one in ("msg_001", "msg_002")] == ["msg_001", "msg_002"]


def test_items_of_the_context_are_pinned_and_others_are_passed_over() -> None:
    item = make_item("msg_001", UserMessage("Hello"), kind=ItemType.USER_MESSAGE, name="user_message/msg_001.json")
    state = fold(SessionState(), [ItemAdded(item=item), Pinned(item_ids=("gone", "msg_001"))])
    assert state.items["msg_001"].pinned


def test_a_short_name_that_two_ids_have_names_neither() -> None:
    first, second = "call_1600047", "call_1682893"
    assert short_name(first) == short_name(second)
    state = fold(SessionState(), [stored_record(first)])
    assert state.find_short(short_name(first)) == first
    fold(state, [stored_record(second), STORED])
    assert state.find_short(short_name(first)) is None
    assert state.find_short(short_name("msg_001")) == "msg_001"


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


def test_what_eager_offloads_saved_on_average() -> None:
    assert OffloadStats().mean_saved_chars == 0
    assert OffloadStats(count=2, saved_chars=3_000).mean_saved_chars == 1_500


def test_an_item_is_read_as_it_was_written() -> None:
    source = ContentRange(item_id="call_1", path="/s/call_1.json", first_line=1, last_line=2)
    item = make_item("msg_2", AssistantMessage("done"), source=source, label="deploy", trimmed=(0, 2))
    assert from_json(to_json(ItemAdded(item=item, before="msg_3"))) == ItemAdded(item=item, before="msg_3")


def test_what_came_back_counts_the_replies_since() -> None:
    item = make_item("msg_001", UserMessage("the question"), 5)
    reply = ItemAdded(item=make_item("msg_002", AssistantMessage("so it is")))
    archived: list[Record] = [ItemAdded(item=item), Removed(item_ids=("msg_001",), reason="full", archive="msg_9")]
    returned = ItemAdded(item=item, returned=True)
    state = fold(SessionState(), [*archived, reply, returned])
    assert (state.replies_since_restored(), state.archived) == ({"msg_001": 0}, {})
    again = ItemAdded(item=make_item("msg_003", AssistantMessage("and so on")))
    assert fold(state, [again]).replies_since_restored() == {"msg_001": 1}
    assert fold(state, [Removed(item_ids=("msg_001",), reason="full")]).replies_since_restored() == {}


def test_an_eviction_that_is_undone_counts_the_replies_since() -> None:
    def replaced(change: int) -> Replaced:
        return Replaced(
            item_id="call_1",
            content=PLACEHOLDER,
            token_count=5,
            path=None,
            destroyed=True,
            reason="",
            trimmed=(),
            change=change,
        )

    item = make_item("call_1", ToolMessage("call_1", "bash", "printed"))
    state = fold(SessionState(), [ItemAdded(item=item), replaced(1), replaced(-1)])
    assert state.replies_since_restored() == {"call_1": 0}
    assert fold(state, [replaced(2)]).replies_since_restored() == {}


def test_what_is_evicted_together_without_a_number_is_one_change() -> None:
    def removed(item_id: str, change: int = 0) -> Removed:
        return Removed(item_ids=(item_id,), reason="full", archive="msg_9", change=change)

    tagged = SessionTagged(tags=("nightly",))
    state = fold(SessionState(), [removed("a"), removed("b")])
    assert state.changes == 1
    assert fold(state, [tagged, removed("c")]).changes == 2
    assert fold(state, [removed("d", 7), tagged, removed("e", 3)]).changes == 7
    assert state.change_of(removed("f", 5)) == 5


def test_a_session_that_was_opened_again_is_not_closed() -> None:
    opened, closed = WriterOpened(epoch=1, path="/s", opened_at=1.0), Closed(closed_at=2.0)
    state = fold(SessionState(), [opened, closed])
    assert state.closed
    assert not fold(state, [replace(opened, epoch=2)]).closed
    assert (state.epoch, SessionState().closed) == (2, False)


def test_a_content_that_was_erased_is_gone_from_the_context_too() -> None:
    item = make_item("msg_001", UserMessage("the secret"), 5)
    removed = ContentRemoved.of(STORED, removed_at=1.0, by="erase", reason="a secret")
    erased = replace(removed, erased=True)
    state = fold(SessionState(), [STORED, ItemAdded(item=item), erased])
    assert state.content_stored == {"msg_001"}
    evicted = replace(item, offloaded=True)
    assert fold(SessionState(), [STORED, ItemAdded(item=evicted), erased]).content_stored == set()
    state.apply(STORED)
    assert (set(state.stored), state.removed) == ({"msg_001"}, {})


def test_a_note_of_no_text_is_gone() -> None:
    notes = [NoteWritten(number=n, text=f"note {n}") for n in (1, 2)]
    state = fold(SessionState(), [*notes, NoteWritten(number=1, text="")])
    assert state.notes == {2: "note 2"}


DECIDED = Decided(
    kind="result",
    call_id="c1",
    sha256="0" * 64,
    item_id="c1",
    content="gone",
    tokens_before=90,
    tokens=9,
    reason="recent results only",
)
BILL = CallMade(number=1, usage=Usage(input_tokens=9), model="")
ADDED = ItemAdded(item=make_item("msg_001", UserMessage("hello")))


@pytest.mark.parametrize(
    ("records", "context", "history"),
    [
        ([], True, True),
        ([Closed(closed_at=1.0), SessionTagged(tags=("a",)), STORED], True, True),
        ([ADDED], True, False),
        ([ADDED, Removed(item_ids=("msg_001",), reason="replaced"), BILL], True, False),
        ([DECIDED], False, True),
        ([BILL], False, True),
        ([PartsNoted(tokens={"0" * 16: 9})], False, True),
        ([PartsNoted(sources={"0" * 64: ["c1", 1, 2]})], False, True),
        ([DECIDED, ADDED], True, True),  # both wrote it, as earlier versions let them
        ([PartsNoted(tokens={"0" * 16: 9}), ADDED], True, True),
        ([PartsNoted(sources={"0" * 64: ["c1", 1, 2]}), ADDED], True, True),
        ([BILL, ADDED], True, False),
    ],
)
def test_who_may_go_on_with_a_session(records: list[Record], context: bool, history: bool) -> None:
    state = fold(SessionState(), records)
    assert state.has_messages == (ADDED in records)
    assert state.is_elsewhere == (not context)
    allowed: dict[Owner, bool] = {"Context": context, "History": history}
    check_owner("s", state, None)
    for owner, is_allowed in allowed.items():
        if is_allowed:
            check_owner("s", state, owner)
        else:
            with pytest.raises(ConfigError, match="needs another session_id"):
                check_owner("s", state, owner)


def test_an_item_in_a_new_form_has_the_placeholder_that_was_recorded_with_it() -> None:
    item = make_item("call_1", ToolMessage("call_1", "bash", "printed"))
    shorter = Replaced(
        item_id="call_1",
        content="a preview",
        token_count=50,
        path="call_1.json",
        destroyed=False,
        reason="preview",
        placeholder=PLACEHOLDER,
        placeholder_tokens=5,
    )
    state = fold(SessionState(), [ItemAdded(item=item), shorter])
    assert (state.items["call_1"].placeholder, state.items["call_1"].placeholder_tokens) == (PLACEHOLDER, 5)
