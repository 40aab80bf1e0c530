"""What stands in the context for messages that were moved into an archive."""

from collections.abc import Sequence

import pytest

from ctxfs.context.commit import Applied
from ctxfs.eviction.offload_plan import Archive, Plan
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.journal import encode_line, scan
from ctxfs.storage.memory import MemoryStore
from session_items import carried_out, user_message

pytestmark = pytest.mark.anyio


async def archived(fs: ContextFileSystem, count: int, going: Sequence[int]) -> tuple[Applied, list[ContextItem]]:
    """Add so many messages, and move some of them into an archive."""
    items = [user_message(fs, f"message {number}") for number in range(count)]
    await fs.writer.add(items)
    item_id, name = fs.writer.allocate(ItemType.COMPACTION_SUMMARY, None)
    archive = Archive(
        item_id=item_id,
        name=name,
        path=f"{fs.base}/{name}",
        item_ids=tuple(items[number].id for number in going),
        placeholder="moved",
        tokens_before=40,
        tokens_after=2,
        reason="r",
    )
    return await carried_out(Plan(archive=archive), {item.id: item for item in items}, fs), items


async def test_the_item_of_an_archive_is_not_offloaded_and_names_the_archive() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        applied, _ = await archived(fs, 2, (0, 1))
        assert applied.archived is not None
        summary = applied.archived.item
        assert (summary.offloaded, summary.destroyed) == (False, False)
        assert summary.offload_path == f"{fs.base}/{summary.name}"
        assert await fs.load(summary.id) != summary.message.content
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert await fs.items() == (summary,)


async def test_an_archive_whose_record_is_lost_is_found_again() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        applied, _ = await archived(fs, 2, (0, 1))
        assert applied.archived is not None
        summary = applied.archived.item
        content = await fs.load(summary.id)
    records = [record for record in scan(bytes(store.disk.log)).records if not isinstance(record, Stored)]
    store.disk.log[:] = b"".join(encode_line(number, [record]) for number, record in enumerate(records, 1))
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert (await fs.items(), fs.recovery.adopted) == ((summary,), (summary.name,))
        assert await fs.load(summary.id) == content


async def test_it_stands_behind_the_last_of_them_also_where_others_stay_between() -> None:
    async with ContextFileSystem("session_1", store=MemoryStore("session_1")) as fs:
        applied, items = await archived(fs, 5, (1, 3))
        assert applied.archived is not None
        order = [item.id for item in await fs.items()]
    assert order == [items[0].id, items[2].id, applied.archived.item.id, items[4].id]


def test_before_it_is_opened_a_session_is_empty() -> None:
    fs = ContextFileSystem("session_1", store=MemoryStore("session_1"))
    assert (fs.state.calls, fs.state.stored, fs.recovery.clean) == ([], {}, True)
