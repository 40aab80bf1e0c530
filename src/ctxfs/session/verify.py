"""Check a session: every byte of its contents' files, and the indexes, against the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.errors import NotStored, StorageError
from ctxfs.messages.names import TERMINAL
from ctxfs.session.content.blocks import index_name
from ctxfs.session.content.checking import check_block_index, check_file
from ctxfs.session.content.stored import Stored
from ctxfs.session.index import INDEX_NAME, parse_index, wants_index
from ctxfs.session.journal import Damage
from ctxfs.session.recovery import contradictions, read_journal
from ctxfs.session.state import SessionState, fold
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import run_to_completion


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
