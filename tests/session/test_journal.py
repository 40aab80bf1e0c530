"""The journal: what was written adds up again, and damage stays where it is."""

import zlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contents import ANY_TEXT, CONTENTS
from ctxfs.errors import InvalidRecord
from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange, ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, Content, Message, SystemMessage, ToolMessage, UserMessage
from ctxfs.session.content.stored import Stored
from ctxfs.session.journal import LineCheck, encode_line, is_whole, rewritten, scan
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import (
    CallMade,
    Closed,
    EvictionSet,
    ItemAdded,
    NoteWritten,
    Record,
    Removed,
    Replaced,
    Restored,
    SessionStarted,
    SessionTagged,
    UnknownRecord,
    WriterOpened,
)
from ctxfs.session.state import SessionState, fold
from ctxfs.text.jsontext import codec as json_codec
from session_items import forged_line, make_item, stored_record

IDS = st.sampled_from(["a", "b", "c", "d"])
CLEAN = CONTENTS.filter(lambda content: not has_pairs(content))
SMALL = st.integers(0, 2**40)
PLACES = st.lists(st.integers(0, 9), max_size=3).map(tuple)

HOLE = bytes(16)


def has_pairs(content: Content) -> bool:
    """Two surrogates side by side, which JSON escapes would join; the file system stores such content in files."""
    data = json_codec.dumps(content)
    return bool(json_codec.loads(data) != (content if isinstance(content, str) else list(content)))


def messages(contents: st.SearchStrategy[Content] = CLEAN) -> st.SearchStrategy[Message]:
    return st.one_of(
        st.builds(SystemMessage, contents),
        st.builds(UserMessage, contents),
        st.builds(AssistantMessage, contents),
        st.builds(ToolMessage, tool_call_id=IDS, tool_name=IDS, content=contents, is_error=st.booleans()),
    )


ITEMS = st.builds(
    ContextItem,
    id=IDS,
    item_type=st.sampled_from(ItemType),
    message=messages(),
    name=IDS,
    token_count=SMALL,
    content_tokens=SMALL,
    placeholder=st.none() | ANY_TEXT.filter(str.isascii),
    placeholder_tokens=SMALL,
    source=st.none() | st.builds(ContentRange, item_id=IDS, path=IDS, first_line=SMALL, last_line=SMALL),
    label=st.none() | IDS,
    trimmed=PLACES,
)
STORED = st.builds(
    Stored,
    item_id=IDS,
    item_type=st.sampled_from(ItemType),
    name=IDS,
    encoding=st.sampled_from(["text", "blocks", "surrogates", "bytes"]),
    size_bytes=SMALL,
    chars=SMALL,
    lines=SMALL,
    digest=IDS,
    blocks=SMALL,
    content_offset=SMALL,
    content_length=SMALL,
    raw=st.booleans(),
    offloaded_at=SMALL,
    metadata=st.dictionaries(IDS, IDS),
)
RECORDS: st.SearchStrategy[Record] = st.one_of(
    st.builds(SessionStarted, session_id=IDS, started_at=st.floats(0, 1e10), rebuilt=st.booleans()),
    st.builds(WriterOpened, epoch=SMALL, path=IDS, opened_at=st.floats(0, 1e10)),
    st.builds(
        EvictionSet,
        keep_recent=st.dictionaries(IDS, st.integers(1, 9)),
        parameters=st.none() | st.dictionaries(IDS, SMALL),
        rates=st.dictionaries(IDS, st.floats(0, 10)),
        ttl_s=st.floats(0, 3600),
    ),
    st.builds(ItemAdded, item=ITEMS, content_stored=st.booleans(), before=st.none() | IDS),
    STORED,
    st.builds(
        Replaced,
        item_id=IDS,
        content=IDS,
        token_count=SMALL,
        path=st.none() | IDS,
        destroyed=st.booleans(),
        reason=IDS,
        trimmed=PLACES,
    ),
    st.builds(Restored, item_id=IDS, reason=IDS),
    st.builds(Removed, item_ids=st.lists(IDS).map(tuple), reason=IDS, archive=st.none() | IDS),
    st.builds(CallMade, number=SMALL, usage=st.builds(Usage, input_tokens=SMALL), model=IDS),
    st.builds(Closed, closed_at=st.floats(0, 1e10)),
    st.builds(UnknownRecord, data=st.just({"type": "from the future", "value": [1, None]})),
)
COMMITS = st.lists(st.lists(RECORDS, min_size=1, max_size=4), max_size=8)


def journal(commits: Sequence[Sequence[Record]]) -> bytes:
    return b"".join(encode_line(seq, records) for seq, records in enumerate(commits, 1))


@given(RECORDS)
def test_records_survive_json(record: Record) -> None:
    assert from_json(json_codec.loads(json_codec.dumps(to_json(record)))) == record


def kind_of(value: object) -> str:
    return type(value).__name__


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize("value", [2.0**64, 2**64, 10**4299, -0.0, nested(200)], ids=kind_of)
def test_what_the_reader_gives_back_is_taken(value: Any) -> None:
    rules = EvictionSet(rates={"input": value})
    assert list(scan(encode_line(1, [rules])).records) == [rules]


@pytest.mark.parametrize(
    "value",
    [float("nan"), (1,), {1: 2}, b"x", {"a"}, 10**4300, nested(260), nested(1_000), nested(5_000)],
    ids=kind_of,
)
def test_what_no_reader_would_give_back_is_refused_whatever_it_is(value: Any) -> None:
    """Also where nothing had checked it before."""
    with pytest.raises(InvalidRecord):
        encode_line(1, [EvictionSet(rates={"input": value})])


def test_what_would_be_read_back_as_something_else_is_refused() -> None:
    closed = {"type": "closed", "closed_at": 1.0}
    with pytest.raises(InvalidRecord, match="read back as something else"):
        encode_line(1, [UnknownRecord(data=closed)])


def test_what_cannot_even_be_shown_is_refused() -> None:
    """It is not recorded whether an item is damaged, so that it would be read back without that."""
    damaged: Any = nested(5_000)
    item = replace(make_item("a", UserMessage("text")), damaged=damaged)
    with pytest.raises(InvalidRecord, match="read back as something else"):
        encode_line(1, [ItemAdded(item=item)])


def test_two_lone_surrogates_stay_two() -> None:
    """The quick form of JSON makes one character of the two halves."""
    record = Removed(item_ids=("\ud83d", "\ud83d\ude00"), reason="")
    assert list(scan(encode_line(1, [record])).records) == [record]


@given(COMMITS)
def test_what_was_written_is_read(commits: list[list[Record]]) -> None:
    data = journal(commits)
    found = scan(data)
    assert list(found.records) == [record for records in commits for record in records]
    assert (found.damages, found.last_seq, found.end, found.torn_bytes) == ((), len(commits), len(data), 0)


@given(COMMITS)
def test_folding_in_pieces_is_folding_at_once(commits: list[list[Record]]) -> None:
    live = SessionState()
    for records in commits:
        fold(live, records)
    assert fold(SessionState(), scan(journal(commits)).records) == live


@given(COMMITS.filter(len), st.data())
def test_a_torn_tail_is_told_from_what_stands_before_it(commits: list[list[Record]], data: st.DataObject) -> None:
    whole = journal(commits)
    last = len(journal(commits[:-1]))
    cut = data.draw(st.integers(last, len(whole) - 1))
    found = scan(whole[:cut])
    assert (found.end, found.torn_bytes, found.last_seq) == (last, cut - last, len(commits) - 1)
    assert found.damages == ()
    assert scan(whole[: found.end]) == replace(found, torn_bytes=0)


@given(COMMITS.filter(lambda commits: len(commits) > 1), st.data())
def test_a_damaged_line_is_skipped_and_the_others_count(commits: list[list[Record]], data: st.DataObject) -> None:
    lines = [encode_line(seq, records) for seq, records in enumerate(commits, 1)]
    which = data.draw(st.integers(0, len(lines) - 1))
    position = data.draw(st.integers(0, len(lines[which]) - 2))
    damaged = bytearray(lines[which])
    damaged[position] = data.draw(st.integers(0, 255).filter(lambda b: b not in {damaged[position], 10}))
    found = scan(b"".join([*lines[:which], bytes(damaged), *lines[which + 1 :]]))
    rest = [record for number, records in enumerate(commits) if number != which for record in records]
    assert list(found.records) == rest
    assert found.damages[0].offset == sum(map(len, lines[:which]))
    assert found.damages[0].length == len(damaged)


@pytest.mark.parametrize("hole", [HOLE + b"\n", b'{"v":1,' + HOLE + b"\n", (HOLE + b"}\n") * 2, HOLE + b'\n{"v":1'])
def test_a_hole_at_the_end_is_a_torn_write(hole: bytes) -> None:
    """A power failure may bring a write's end to the medium, newline and all, and not its beginning."""
    line = encode_line(1, [WriterOpened(epoch=1, path="/", opened_at=0)])
    found = scan(line + hole)
    assert (found.damages, found.end, found.torn_bytes) == ((), len(line), len(hole))


@pytest.mark.parametrize("size", [1, 7, 1_000])
def test_lines_are_checked_while_they_are_read_in_pieces(size: int) -> None:
    opened = [WriterOpened(epoch=1, path="/", opened_at=0)]
    log = encode_line(1, opened) + encode_line(2, opened * 30)
    check = LineCheck()
    for at in range(0, len(log), size):
        check.take(log[at : at + size])
    with pytest.raises(ValueError, match=f"at byte {len(log):,}: not a journal line"):
        check.take(b"\n")


@pytest.mark.parametrize("begun", [b"x" * 200, b'{"v":1,"seq":1,"len":9,"crc":"00000000","rec":' + b" " * 60])
def test_a_line_that_does_not_end_is_refused_before_its_end(begun: bytes) -> None:
    check = LineCheck()
    for at in range(50):
        check.take(begun[at : at + 1])
    with pytest.raises(ValueError, match="at byte 0: not a journal line"):
        check.take(begun[50:])


def test_a_journal_that_is_a_hole_is_a_torn_write() -> None:
    found = scan(HOLE + b"\n")
    assert (found.damages, found.end, found.torn_bytes) == ((), 0, len(HOLE) + 1)


def test_a_hole_before_a_whole_line_is_damage() -> None:
    line = encode_line(1, [WriterOpened(epoch=1, path="/", opened_at=0)])
    found = scan(HOLE + b"\n" + line)
    assert (len(found.damages), found.last_seq, found.torn_bytes) == (1, 1, 0)


def test_missing_and_repeated_lines_are_reported() -> None:
    lines = [encode_line(seq, [Closed(closed_at=float(seq))]) for seq in (1, 2, 3)]
    assert "1 line is missing" in scan(lines[0] + lines[2]).damages[0].reason
    repeated = scan(lines[0] + lines[1] + lines[0] + lines[2])
    assert [record.closed_at for record in repeated.records if isinstance(record, Closed)] == [1.0, 2.0, 3.0]
    assert "comes after" in repeated.damages[0].reason


@pytest.mark.parametrize("line", [b"", b"{}", b"\x00" * 15, b'{"v":1,"seq":1,"len":2,"crc":"00000000","rec":{}}'])
def test_what_is_no_line_is_damage(line: bytes) -> None:
    found = scan(line + b"\n")
    assert (len(found.damages), found.records, found.end) == (1, (), len(line) + 1)


def test_lines_of_a_later_version_and_records_that_lack_something() -> None:
    later = encode_line(1, [UnknownRecord(data={"type": "x"})]).replace(b'{"v":1', b'{"v":2')
    found = scan(later + encode_line(2, [Closed(closed_at=2.0)]))
    assert found.records == (UnknownRecord(data={"type": "x"}), Closed(closed_at=2.0))
    assert [damage.reason for damage in found.damages] == [
        "line 1 is of version 2, not 1: a later ctxfs wrote it, or it was changed"
    ]
    assert not is_whole(later)
    lacking = forged_line(1, {"type": "removed"})
    assert len(scan(lacking).damages) == 1


def test_each_flipped_bit_of_a_line_is_noticed() -> None:
    first, line, last = (encode_line(seq, [Closed(closed_at=float(seq))]) for seq in (1, 2, 3))
    for position, byte in enumerate(line):
        for bit in range(8):
            changed = line[:position] + bytes([byte ^ 1 << bit]) + line[position + 1 :]
            assert scan(first + changed + last).damages, changed


@pytest.mark.parametrize("value", [b"NaN", b"1e999", b"[" * 260 + b"]" * 260])
def test_a_line_that_could_not_be_written_again_is_damage(value: bytes) -> None:
    rec = b'{"type":"of a later version","value":%b}' % value
    crc = zlib.crc32(rec, zlib.crc32(b"1:"))
    found = scan(b'{"v":1,"seq":1,"len":%d,"crc":"%08x","rec":%b}\n' % (len(rec), crc, rec))
    assert (len(found.damages), found.records) == (1, ())


@pytest.mark.parametrize(("keep", "is_damage"), [(1, False), (0, True), (-1, True)])
def test_a_record_by_which_a_tool_keeps_nothing_is_damage(keep: int, is_damage: bool) -> None:
    line = forged_line(1, {"type": "eviction_set", "keep_recent": {"Read": keep}, "ttl_s": 300.0})
    found = scan(line)
    assert (len(found.records), len(found.damages)) == ((0, 1) if is_damage else (1, 0))


def test_added_fields_of_known_records_are_ignored() -> None:
    assert from_json({"type": "closed", "closed_at": 1.0, "new": 1}) == Closed(closed_at=1.0)


def item(item_id: str, content: Content = "content") -> ContextItem:
    return make_item(item_id, ToolMessage(item_id, "Read", content), 100)


def test_a_life_of_an_item() -> None:
    state = SessionState()
    stored = Stored(
        item_id="a", item_type=ItemType.TOOL_RESULT, name="n", encoding="text", size_bytes=1, chars=1, lines=1,
        digest="", blocks=1, content_offset=0, content_length=1, raw=False, offloaded_at=0,
    )  # fmt: skip
    fold(state, [ItemAdded(item=item("a")), ItemAdded(item=item("c")), ItemAdded(item=item("b"), before="c")])
    assert list(state.items) == ["a", "b", "c"]
    gone = Replaced(item_id="a", content="gone", token_count=3, path="n", destroyed=True, reason="r")
    fold(state, [stored, gone])
    left = state.items["a"]
    assert (left.offloaded, left.destroyed, left.offload_path, left.token_count) == (True, True, "n", 3)
    assert left.message == ToolMessage("a", "Read", "gone", offloaded=True, offload_path="n")
    fold(state, [Restored(item_id="a")])
    back = state.items["a"]
    assert (back.offloaded, back.destroyed, back.offload_path, back.token_count) == (False, False, None, 100)
    assert state.content_stored == {"a"}
    fold(state, [Removed(item_ids=("a", "b"), reason="r", archive="z")])
    assert (list(state.items), state.content_stored, state.ids) == (["c"], set(), {"a", "b", "c"})
    assert state.archived == {"a": "z", "b": "z"}
    fold(
        state,
        [Replaced(item_id="x", content="", token_count=0, path=None, destroyed=True, reason=""), Restored(item_id="c")],
    )
    assert list(state.items) == ["c"]


@pytest.mark.parametrize("block", [{"text": "no type"}, {"type": "text"}, {"type": "tool_use", "id": "a"}, "text", 7])
def test_a_record_whose_message_holds_no_content_blocks_is_damage(block: object) -> None:
    item = {"id": "a", "item_type": "assistant_message", "name": "a.json", "token_count": 1, "content_tokens": 1}
    record = {"type": "item_added", "item": {**item, "message": {"role": "assistant", "content": [block]}}}
    found = scan(forged_line(1, record))
    assert found.records == ()
    assert "block" in found.damages[0].reason


def without_text(part: Any) -> Any:
    return {**part, "text": ""} if part.get("type") == "note_written" else part


def test_a_journal_is_written_again_with_lines_of_the_same_length() -> None:
    notes = [NoteWritten(number=n, text=text) for n, text in enumerate(("one", "\udc00 é", "\ud800\udc00"), 1)]
    tags = SessionTagged(tags=("kept",))
    log = b"".join(encode_line(n, [tags, note]) for n, note in enumerate(notes, 1)) + encode_line(4, notes[:1])
    new = rewritten(log, without_text)
    assert [len(line) for line in new.split(b"\n")] == [len(line) for line in log.split(b"\n")]
    blank = [NoteWritten(number=n, text="") for n in (1, 2, 3)]
    found = scan(new)
    assert found.records == (tags, blank[0], tags, blank[1], tags, blank[2], blank[0])
    assert (found.damages, found.last_seq) == ((), 4)
    assert rewritten(new, without_text) == new


def test_what_need_not_or_cannot_be_written_again_stays_byte_by_byte() -> None:
    line = encode_line(2, [NoteWritten(number=1, text="one")])
    later = forged_line(3, {"type": "note_written", "number": 1, "text": "x"}).replace(b'{"v":1', b'{"v":2')
    log = b"not a line\n" + encode_line(1, [SessionTagged(tags=())]) + line.replace(b"one", b"two") + later + b'{"v":1'
    assert rewritten(log, without_text) == log
    assert rewritten(log, lambda part: part) == log


def test_lone_surrogates_beside_what_is_taken_out_stay() -> None:
    note = NoteWritten(number=1, text="\ud800\udc00 stays")
    log = encode_line(1, [note, NoteWritten(number=2, text="goes")])
    new = rewritten(log, lambda part: {**part, "text": ""} if part["number"] == 2 else part)
    assert scan(new).records == (note, NoteWritten(number=2, text=""))


def test_a_line_that_would_get_longer_is_refused() -> None:
    log = encode_line(1, [NoteWritten(number=1, text="one")])
    with pytest.raises(InvalidRecord, match="line 1"):
        rewritten(log, lambda part: {**part, "text": "longer"})


def test_a_journal_is_whole_if_each_line_is_and_none_is_missing() -> None:
    lines = [encode_line(number, [Closed(closed_at=number)]) for number in (1, 2, 3)]
    assert is_whole(b"")
    assert is_whole(b"".join(lines))
    assert is_whole(b"".join(lines) + lines[0][:-5]), "what is torn was never acknowledged"
    assert not is_whole(lines[0] + lines[2])
    assert not is_whole(lines[1])
    assert not is_whole(b"".join(lines).replace(b"closed", b"clased", 1))
    assert not is_whole(b"\n")


def added(item_id: str, content: Content = "content") -> ItemAdded:
    return ItemAdded(item=item(item_id, content))


def test_a_line_that_was_written_again_with_more_adds_what_is_new() -> None:
    """As the end of an event loop left it: the first commit, and then both under the same number."""
    call = CallMade(number=1, usage=Usage(input_tokens=5), model="m")
    gone = Removed(item_ids=("a",), reason="because", archive="z", at=1.0, after_call=1, change=1)
    first: list[Record] = [added("a"), call, gone]
    second, third = [added("b")], [added("c")]
    again: list[Record] = [added("a"), call, replace(gone, at=2.0), *second]
    log = encode_line(1, first) + encode_line(1, again) + encode_line(2, third)
    found = scan(log)
    assert (found.damages, found.last_seq, found.end) == ((), 2, len(log))
    assert found.records == (*first, *second, *third)
    assert scan(encode_line(1, first) + encode_line(1, second) + encode_line(1, third)).records == (
        *first,
        *second,
        *third,
    )


@pytest.mark.parametrize(
    "other",
    [
        added("a", "other content"),
        CallMade(number=1, usage=Usage(input_tokens=6), model="m"),
        SessionStarted(session_id="s", started_at=2.0),
        stored_record("a", size_bytes=6),
    ],
)
def test_a_line_that_contradicts_the_one_before_it_is_damage(other: Record) -> None:
    """Two writers that no lock kept apart, for example: nothing of the second line counts."""
    call = CallMade(number=1, usage=Usage(input_tokens=5), model="m")
    first: list[Record] = [SessionStarted(session_id="s", started_at=1.0), added("a"), stored_record("a"), call]
    found = scan(encode_line(1, first) + encode_line(1, [added("b"), other]))
    assert found.records == tuple(first)
    assert [damage.reason for damage in found.damages] == ["line 1 comes after another line 1, and contradicts it"]


@given(COMMITS)
def test_lines_that_were_all_written_twice_count_once(commits: list[list[Record]]) -> None:
    twice = b"".join(encode_line(number, commit) * 2 for number, commit in enumerate(commits, 1))
    assert scan(twice) == replace(scan(journal(commits)), end=len(twice))
