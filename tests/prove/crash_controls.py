"""The code broken on purpose, in the ways in which such code is broken: each must be found out."""

from collections.abc import Callable, Sequence

from ctxfs.storage.base import NewFile
from ctxfs.storage.local import LocalStore
from prove.crash_disk import CrashDisk
from prove.crash_session import ROOT, SESSION_ID, Variant

__all__ = ["CONTROLS"]


class _AppendsAfterTornTail(LocalStore):
    """Does not cut a torn last line off."""

    def truncate_log(self, length: int) -> None:
        pass


class _AcknowledgesFirst(LocalStore):
    """Writes to the journal what the commit before was acknowledged for."""

    _late = b""

    def commit(self, files: Sequence[NewFile], log: Callable[[], bytes]) -> None:
        late, lines = self._late, b""

        def earlier() -> bytes:
            nonlocal lines
            lines = log()
            return late

        super().commit(files, earlier)
        self._late = lines

    def close(self) -> None:
        if self._log is not None:
            super().commit([], lambda: self._late)
        super().close()

    def __del__(self) -> None:
        super().close()  # a store that was dropped, as by a crash, commits nothing


def _broken(make: type[LocalStore]) -> Variant:
    def store(disk: CrashDisk) -> LocalStore:
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
