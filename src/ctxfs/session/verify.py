"""Check a session: every byte of its contents' files, and the indexes, against the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.errors import CorruptContent, NotStored, StorageError
from ctxfs.messages.names import TERMINAL
from ctxfs.session.content.blocks import BlockIndex, index_name
from ctxfs.session.content.compression import check_descriptor, frame_content
from ctxfs.session.content.file import header_of, trailer_of
from ctxfs.session.content.reader import read_index, scan_blocks
from ctxfs.session.content.stored import Stored
from ctxfs.session.index import INDEX_NAME, parse_index, wants_index
from ctxfs.session.journal import Damage
from ctxfs.session.recovery import contradictions, read_journal
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion


async def check_file(store: ThreadedStore, stored: Stored, *, grows: bool = False) -> BlockIndex:
    """Read the whole file, compare it with what the journal says, and return where its blocks are; in bounded memory.

    Compressed parts are compared as what they unfold to, and the headers of their frames with ours.

    ``grows``: the file may go on behind the content.

    Raises:
        CorruptContent: the file is missing, or it is not what was written.

    """
    # The file has three parts, and the journal says what each is: the head of the envelope, which is made again from
    # the record; the blocks, which have a checksum; the end of the envelope, behind which there is nothing.
    try:
        await _check_header(store, stored)
        index = await _check_blocks(store, stored)
        if not grows:
            await _check_end(store, stored)
    except NotStored as error:
        detail = f"the file, with the content of item {stored.item_id}, is missing"
        raise CorruptContent(stored.name, detail) from error
    except (ValueError, TypeError) as error:
        raise CorruptContent(stored.name, str(error)) from error
    return index


async def check_block_index(store: ThreadedStore, stored: Stored, index: BlockIndex) -> None:
    """Compare the block index beside a file with ``index``, that of the file. One that is missing can be made again.

    Raises:
        ValueError: it is not that of the file.

    """
    try:
        found = await read_index(store, stored)
    except NotStored:
        return
    if found.to_bytes() != index.to_bytes():
        raise ValueError("it is not the index of this content")


async def _check_header(store: ThreadedStore, stored: Stored) -> None:
    header = header_of(stored)
    found = await store.read(stored.name, 0, stored.content_offset)
    if stored.compression and header:
        frame = found
        found = frame_content(frame, len(header))
        check_descriptor(frame)
    if found != header:
        raise ValueError("the head of its envelope is not what the journal says")


async def _check_blocks(store: ThreadedStore, stored: Stored) -> BlockIndex:
    index = await scan_blocks(store, stored, max_bytes=stored.size_bytes, exact=True)
    if (index.root, index.size_bytes, index.count) != (stored.digest, stored.size_bytes, stored.blocks):
        raise ValueError("it is not what the journal says")
    return index


async def _check_end(store: ThreadedStore, stored: Stored) -> None:
    trailer = trailer_of(stored.encoding, raw=stored.raw, compression=stored.compression)
    end = stored.content_offset + stored.content_length
    if await store.read(stored.name, end, len(trailer) + 1) != trailer:
        raise ValueError("it does not end with its content")


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Something that ``verify`` found: the file's name and what is wrong with it."""

    name: str
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """The outcome of ``verify``: how many contents were checked, and every problem found."""

    checked: int
    problems: tuple[Problem, ...]

    @property
    def ok(self) -> bool:
        """Whether everything is as it was written."""
        return not self.problems


async def verify(
    store: ThreadedStore, session_id: str, entries: Sequence[Stored], damages: Sequence[Damage]
) -> VerifyReport:
    """Check ``entries``, the contents that are durable; ``damages`` is what opening the session found."""
    problems = [Problem(name=LOG_NAME, detail=damage.reason) for damage in damages]
    for entry in entries:
        problems += await _problems_of(store, entry)
    if wants_index(store):
        problems += await _index_problems(store, session_id)
    return VerifyReport(checked=len(entries), problems=tuple(problems))


async def _problems_of(store: ThreadedStore, entry: Stored) -> Sequence[Problem]:
    """What is wrong with the file of a content, or else with the block index beside it."""
    grows = entry.name.startswith(TERMINAL) and bool(entry.metadata.get("partial"))
    try:
        index = await check_file(store, entry, grows=grows)
    except (StorageError, NotStored) as error:
        return [Problem(name=entry.name, detail=str(error))]
    if entry.blocks > 1 and not grows:
        try:
            await check_block_index(store, entry, index)
        except (StorageError, ValueError) as error:
            detail = f"{error}: remove this file, and it is made again"
            return [Problem(name=index_name(entry.name), detail=detail)]
    return []


async def _index_problems(store: ThreadedStore, session_id: str) -> Sequence[Problem]:
    try:
        index = parse_index(await store.read(INDEX_NAME))
    except (NotStored, ValueError) as error:
        return [Problem(name=INDEX_NAME, detail=f"{error}: opening the session for writing rebuilds it")]
    if index.session_id != session_id:
        detail = "it is the index of another session: remove it, and opening the session for writing makes it again"
        return [Problem(name=INDEX_NAME, detail=detail)]
    log = (await read_journal(store)).scan
    state = await run_to_completion(lambda: fold(SessionState(), log.records))
    wrong = contradictions(index, state)
    if index.journal_seq >= log.last_seq:  # an older index may lack contents
        wrong += sorted(state.stored.keys() - index.items.keys())
    return [Problem(name=INDEX_NAME, detail=f"it contradicts the journal about {item_id}") for item_id in wrong]
