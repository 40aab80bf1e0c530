"""Items that are not durable yet: one commit records them all, with the items that they replace and their cost."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from ctxfs.context.commit import Applied, Step, admit
from ctxfs.errors import OutcomeUnknown, StorageError, Unrecorded
from ctxfs.eviction.eager import EagerOffload
from ctxfs.eviction.events import ContextEvent, RecordFailed
from ctxfs.messages.items import ContextItem
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.records import Beside, CallMade, RequestSent, ToolsDefined


class Recorder:
    """Records the new items of one session; a failed write is retried with the next change.

    ``emit`` is called with an event for each failed write.
    """

    def __init__(self, fs: ContextFileSystem, emit: Callable[[ContextEvent], None]) -> None:
        self._fs = fs
        self._emit = emit
        self._waiting: dict[str, ContextItem] = {}
        self._leaving: dict[str, EagerOffload] = {}
        self._removed: list[str] = []
        self._beside: list[tuple[str, Beside]] = []
        self._error: StorageError | None = None

    @property
    def waiting(self) -> Mapping[str, ContextItem]:
        """The items that exist only in memory, by id."""
        return MappingProxyType(self._waiting)

    @property
    def replaced(self) -> Sequence[str]:
        """Ids of recorded items that pending ones replace."""
        return tuple(self._removed)

    @property
    def is_behind(self) -> bool:
        """Whether anything is not durable yet."""
        return bool(self._waiting or self._beside)

    @property
    def evicts(self) -> bool:
        """Whether an eager policy evicts some of the pending items."""
        return bool(self._leaving)

    def add(self, item: ContextItem, leaving: EagerOffload | None = None) -> None:
        """Add a new item; ``leaving``: how it is evicted eagerly, None: it is not."""
        self._waiting[item.id] = item
        if leaving is not None:
            self._leaving[item.id] = leaving

    def remove(self, item_ids: Iterable[str]) -> None:
        """Note that the last added item replaces these."""
        for item_id in item_ids:
            if self._waiting.pop(item_id, None) is None:
                self._removed.append(item_id)
            else:  # the journal will not show it, so it cannot show the requests that carried it
                self._beside = [one for one in self._beside if isinstance(one[1], CallMade)]

    def called(self, call: CallMade) -> None:
        """Note a model call, which produced the last added item; a call for a summary produced none."""
        self._beside.append((next(reversed(self._waiting), ""), call))

    def sent(self, request: Sequence[ToolsDefined | RequestSent]) -> None:
        """Note that all items were sent, although some are not durable: ``request`` is recorded after the last one."""
        last = next(reversed(self._waiting))
        waits = {record.sha256 for _, record in self._beside if isinstance(record, ToolsDefined)}
        self._beside = [one for one in self._beside if one[0] != last or not isinstance(one[1], RequestSent)]
        new = (one for one in request if not isinstance(one, ToolsDefined) or one.sha256 not in waits)
        self._beside += [(last, record) for record in new]

    def status_sent(self, status: str) -> None:
        """Note that the last request carries ``status`` too."""
        for place in reversed(range(len(self._beside))):
            item_id, record = self._beside[place]
            if isinstance(record, RequestSent):
                self._beside[place] = item_id, replace(record, status=status)
                return

    async def record(self, steps: Sequence[Step] = ()) -> Applied:
        """Make pending items durable and return the evictions with them: none if storage fails, which emits an event.

        ``steps``: other evictions in the same commit. If they cannot be written, the items are recorded without them,
        and they have to be planned again.

        An error of an eager policy is not caught: the new items stay, and are recorded the next time. Nor is any other
        error that storage did not cause, since trying again does not help. Nor is ``OutcomeUnknown``: to try again
        might record the items twice, so ``settle`` must be called first.
        """
        if not self.is_behind:
            return Applied()
        steps = [step for step in steps if step[1].id not in self._leaving]
        try:
            applied = await self._admitted(steps)
        except OutcomeUnknown as error:
            self._error = error
            raise
        except StorageError as error:
            if steps:
                return await self.record()
            self._error = error
            self._emit(RecordFailed(item_ids=tuple(self._waiting), error=error))
            return Applied()
        except Exception:
            self._leaving.clear()
            raise
        self._forget()
        return applied

    def _forget(self) -> None:
        self._waiting.clear()
        self._leaving.clear()
        self._removed.clear()
        self._beside.clear()

    def settle(self) -> None:
        """Forget what is recorded by now. One commit had everything that is pending: all of it is there, or nothing."""
        state = self._fs.state
        calls = [replace(call, number=0) for call in state.calls[-len(self._beside) :]]
        if any(item_id in state.items for item_id in self._waiting) or any(one in calls for _, one in self._beside):
            self._forget()

    async def _admitted(self, steps: Sequence[Step]) -> Applied:
        items = tuple(self._waiting.values())
        return await admit(items, self._leaving, self._fs, steps=steps, removing=self._removed, beside=self._beside)

    def check_recorded(self, session_id: str) -> None:
        """Raise ``Unrecorded`` if items exist only in memory."""
        if self._waiting:
            raise Unrecorded(session_id, tuple(self._waiting)) from self._error
