"""Records, and what folding them gives."""

from typing import Any

import pytest

from ctxfs.errors import NotRestorable
from ctxfs.items import ContentRange, ItemType
from ctxfs.llm.messages import AssistantMessage, UserMessage
from ctxfs.session.names import short_name
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import ContentRemoved, ItemAdded, Pinned, Removed, Restored, SessionTagged, UnknownRecord
from ctxfs.session.state import OffloadStats, SessionState, fold
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
