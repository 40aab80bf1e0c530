"""What left in an archive is read back exactly: its text as it was written, its messages as they stood then."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ctxfs import Context, ContextFileSystem
from ctxfs.errors import UnknownItem
from ctxfs.eviction.compaction import SelectiveCompaction, Strategy
from ctxfs.eviction.window import Window
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import AssistantMessage, ToolMessage
from ctxfs.session.archive import archived_items, read_archive, without_items, write_archive
from ctxfs.session.entries import archived
from ctxfs.session.records import ItemAdded, Record, Removed
from session_items import make_item

pytestmark = pytest.mark.anyio


def exchange(number: int) -> list[dict[str, Any]]:
    """A reply of some length with a call, and its result; the call's id can name no file."""
    contents: list[Any] = ["line\n" * 400, "", [{"type": "text", "text": "\u0000 === a b, text, 3 characters\n" * 40}]]
    call = {"type": "tool_use", "id": f"call/{number}", "name": "bash", "input": {"command": "=== a b, json"}}
    result = {"type": "tool_result", "tool_use_id": f"call/{number}", "content": contents[number % 3]}
    reply = [{"type": "text", "text": f"Let me see {number}. " * (60 if number % 5 else 600)}, call]
    return [
        {"role": "assistant", "content": reply},
        {"role": "user", "content": [result | {"is_error": number % 2 == 0}]},
    ]


@pytest.mark.slow
async def test_the_items_of_an_archive_are_those_that_left_as_they_were(tmp_path: Path) -> None:
    rules: dict[ItemType, Strategy | int] = {
        ItemType.ASSISTANT_MESSAGE: 3,
        ItemType.COMPACTION_SUMMARY: Strategy.DROP,
    }
    window = Window(window_tokens=12_000, reply_tokens=100, compaction=SelectiveCompaction(rules=rules))
    left: dict[str, ContextItem] = {}
    async with Context(root_path=tmp_path, window=window, keep_recent={"bash": 2}) as context:
        await context.add({"role": "user", "content": "go"})
        for number in range(60):
            await context.add(*exchange(number))
            await context.evict()
            before = {item.id: item for item in context.items}
            await context.messages()
            left |= {item_id: before[item_id] for item_id in before.keys() - {item.id for item in context.items}}
        await _check(context.fs, left)
        with pytest.raises(UnknownItem):
            await archived(context.fs, context.items[-1].id)
    assert {item.item_type for item in left.values()} > {ItemType.TOOL_RESULT, ItemType.COMPACTION_SUMMARY}
    assert {item.offloaded for item in left.values() if item.item_type is ItemType.TOOL_RESULT} == {True, False}
    async with ContextFileSystem(context.session_id, root_path=tmp_path, read_only=True) as fs:
        await _check(fs, left)


async def _check(fs: ContextFileSystem, left: dict[str, ContextItem]) -> None:
    archives = sorted({archive for item_id in left if (archive := fs.state.archived.get(item_id)) is not None})
    assert len(archives) > 2
    found = {item.id: item for archive in archives for item in await archived(fs, archive)}
    assert found == left


def test_an_item_whose_records_are_damaged_is_left_out() -> None:
    item = make_item("t1", ToolMessage("t 1", "bash", "said", is_error=True))
    removed = Removed(item_ids=("t0", "t1"), reason="r", archive="msg_9")
    records: list[Record] = [ItemAdded(item=item), Removed(item_ids=("t7",), reason="r"), removed]
    archive = write_archive([item])
    assert archived_items(archive, "msg_9", records) == (item,)
    assert archived_items(archive, "msg_8", records) == ()


def test_an_item_that_was_damaged_says_so_when_it_is_read_back() -> None:
    item = replace(make_item("t1", ToolMessage("t1", "bash", "[damaged]")), damaged="the file is missing")
    records: list[Record] = [ItemAdded(item=item), Removed(item_ids=("t1",), reason="r", archive="msg_9")]
    archive = write_archive([item])
    assert read_archive(archive) == {"t1": "[damaged]"}
    (found,) = archived_items(archive, "msg_9", records)
    assert found.damaged == "it was when the item was archived"


def test_an_archive_without_erased_items_has_the_others_as_they_were() -> None:
    blocks = ({"type": "tool_use", "id": "c", "name": "ls", "input": {"path": "secret"}},)
    items = [make_item("m1", AssistantMessage(blocks)), make_item("t1", ToolMessage("c", "ls", "a.txt"))]
    archive = write_archive(items)
    left = without_items(archive, {"m1"})
    assert "secret" not in left
    assert left.endswith("=== t1 tool_result of ls, text, 5 characters\na.txt\n")
    assert without_items(archive, {"other"}) == archive
