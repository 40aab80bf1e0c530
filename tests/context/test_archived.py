"""What stands in the context for messages that were moved into an archive."""

import pytest

from ctxfs.context.apply import apply
from ctxfs.context.fs import ContextFileSystem
from ctxfs.context.items import ItemType
from ctxfs.context.plan import Archive, Plan
from ctxfs.storage.memory import MemoryStore
from session_items import user_message

pytestmark = pytest.mark.anyio


async def test_what_stands_for_an_archive_has_left_and_says_where_to() -> None:
    store = MemoryStore("session_1")
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert fs.recovery.clean
        items = {item.id: item for item in (user_message(fs, "one"), user_message(fs, "two"))}
        await fs.add(list(items.values()))
        item_id, name = fs.claim(ItemType.COMPACTION_SUMMARY, None)
        archive = Archive(
            item_id=item_id,
            name=name,
            path=fs.path_of(name),
            item_ids=tuple(items),
            placeholder="moved",
            tokens_before=40,
            tokens_after=2,
            reason="r",
        )
        applied = await apply(Plan(archive=archive), items, fs)
        assert applied.archived is not None
        summary = applied.archived.item
        assert (summary.offloaded, summary.destroyed, summary.offload_path) == (True, True, archive.path)
    async with ContextFileSystem("session_1", store=store.peer()) as fs:
        assert await fs.items() == (summary,)


def test_before_it_is_opened_a_session_is_empty() -> None:
    fs = ContextFileSystem("session_1", store=MemoryStore("session_1"))
    assert (fs.calls, dict(fs.stored())) == ((), {})
