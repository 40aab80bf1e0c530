"""The items in an archive, read from a session's files."""

from ctxfs.errors import UnknownItem
from ctxfs.messages.items import ContextItem
from ctxfs.session.archive import archived_items
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.item_records import absolute
from ctxfs.storage.threads import run_in_steps


async def archived(fs: ContextFileSystem, archive_id: str) -> tuple[ContextItem, ...]:
    """Return the items in an archive, in order, each exactly as it was when it was archived; paths are absolute.

    Reads the whole journal; an item whose lines in it are damaged is left out. Raises ``UnknownItem`` if there is no
    such archive, and ``CorruptContent``.
    """
    if archive_id not in fs.state.archived.values():
        raise UnknownItem(archive_id)
    records = await fs.history()
    archive = str(await fs.load(archive_id))
    items = await run_in_steps(lambda: archived_items(archive, archive_id, records))
    return tuple(absolute(item, fs.base) for item in items)
