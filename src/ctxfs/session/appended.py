"""Read the lines that a session's journal has gained since it was last read, even while another process writes."""

from ctxfs.session.filesystem import ContextFileSystem, storage_of
from ctxfs.session.journal import scan
from ctxfs.session.records import Record
from ctxfs.storage.threads import run_to_completion


async def records_after(fs: ContextFileSystem, line: int, offset: int) -> tuple[tuple[Record, ...], int, int]:
    """The records after line ``line``, which ends at byte ``offset``; 0 and 0 give all of them.

    Also returns the number and the end of the last line, for the next time. Damaged records are left out.
    """
    data = await storage_of(fs).read_log(offset)
    found = await run_to_completion(lambda: scan(data, last_seq=line, offset=offset))
    return found.records, found.last_seq, found.end
