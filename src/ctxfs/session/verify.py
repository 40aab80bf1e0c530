"""Check a session: every stored content against its digest, and the index against the journal."""

from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.content.reader import ContentReader
from ctxfs.content.stored import Stored
from ctxfs.errors import NotStored, StorageError
from ctxfs.session.index import INDEX_NAME, parse_index, wants_index
from ctxfs.session.journal import Damage
from ctxfs.session.recovery import read_journal
from ctxfs.storage.base import Store
from ctxfs.storage.log_file import LOG_NAME

__all__ = ["Problem", "VerifyReport", "verify"]


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


async def verify(store: Store, entries: Sequence[Stored], damages: Sequence[Damage]) -> VerifyReport:
    """Check ``entries``, the contents that are durable; ``damages`` is what opening the session found."""
    problems = [Problem(name=LOG_NAME, detail=damage.reason) for damage in damages]
    for entry in entries:
        try:
            await ContentReader(store, entry).check()
        except (StorageError, NotStored) as error:
            problems.append(Problem(name=entry.name, detail=str(error)))
    if wants_index(store):
        problems.extend(await _verify_index(store))
    return VerifyReport(checked=len(entries), problems=tuple(problems))


async def _verify_index(store: Store) -> list[Problem]:
    try:
        index = parse_index(await store.read(INDEX_NAME))
    except (NotStored, ValueError) as error:
        return [Problem(name=INDEX_NAME, detail=f"{error}: opening the session for writing rebuilds it")]
    state = (await read_journal(store)).state
    return [
        Problem(name=INDEX_NAME, detail=f"it contradicts the journal about {item_id}")
        for item_id, entry in index.items.items()
        if state.stored.get(item_id) != entry and item_id not in state.removed
    ]
