"""The code broken on purpose, in the ways in which such code is broken: each must be found out."""

from collections.abc import Callable, Sequence

from ctxfs.storage.base import NewFile
from prove.crash_disk import CrashDisk
from prove.crash_session import ROOT, SESSION_ID, DirectStore, Variant

__all__ = ["CONTROLS"]


class _AppendsAfterTornTail(DirectStore):
    """Does not cut a torn last line off."""

    async def truncate_log(self, length: int) -> None:
        pass


class _AcknowledgesFirst(DirectStore):
    """Writes to the journal what the commit before was acknowledged for."""

    _late = b""

    async def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        late, lines = self._late, b""

        def earlier() -> bytes:
            nonlocal lines
            lines = log()
            return late

        self._opened().commit(files, earlier)
        self._late = lines

    async def close(self) -> None:
        if self._dir is not None:
            self._opened().commit([], lambda: self._late)
        await super().close()


def _broken(make: type[DirectStore]) -> Variant:
    def store(disk: CrashDisk) -> DirectStore:
        return make(ROOT, SESSION_ID, fs=disk)

    return Variant(store=store)


CONTROLS: dict[str, Variant] = {
    "no content sync": Variant(syncs=lambda kind, opening: kind != "content"),
    "no directory sync": Variant(syncs=lambda kind, opening: kind != "directory"),
    "no journal sync": Variant(syncs=lambda kind, opening: kind != "journal"),
    "no directory sync in recovery": Variant(syncs=lambda kind, opening: not (kind == "directory" and opening)),
    "append after a torn tail": _broken(_AppendsAfterTornTail),
    "acknowledge before the journal": _broken(_AcknowledgesFirst),
    "file before its tombstone": Variant(file_first=True),
    "placeholder before the acknowledgement": Variant(placeholder_first=True),
}
