"""A real file system on which case does not count and names are normalised, as on macOS and Windows."""

from ctxfs.storage.port import FileStat, OsFileSystem
from prove.hostile_ids import folded

__all__ = ["FoldingFileSystem"]


class FoldingFileSystem(OsFileSystem):
    """Finds every name by its folded form, and keeps the spelling of whoever made it.

    Only one of these may use a directory at a time. ``escapes`` are the names that were asked for and are no plain
    names; ``met`` are pairs of different names that were taken for one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.escapes: list[str] = []
        self.met: set[tuple[str, str]] = set()
        self._known: dict[tuple[int, int], dict[str, str]] = {}

    def _names(self, dir_fd: int) -> dict[str, str]:
        identity = super().stat_handle(dir_fd).identity
        if identity not in self._known:
            self._known[identity] = {folded(name): name for name, _ in super().list_dir(dir_fd)}
        return self._known[identity]

    def _spelled(self, dir_fd: int, name: str) -> str:
        if name in {"", ".", ".."} or not {"/", "\\", "\0"}.isdisjoint(name):
            self.escapes.append(name)
        found = self._names(dir_fd).get(folded(name), name)
        if found != name:
            self.met.add((found, name))
        return found

    def _made(self, dir_fd: int, name: str) -> None:
        self._names(dir_fd)[folded(name)] = name

    def open_dir(self, dir_fd: int, name: str) -> int:
        return super().open_dir(dir_fd, self._spelled(dir_fd, name))

    def make_dir(self, dir_fd: int, name: str) -> None:
        name = self._spelled(dir_fd, name)
        super().make_dir(dir_fd, name)
        self._made(dir_fd, name)

    def create(self, dir_fd: int, name: str) -> int:
        name = self._spelled(dir_fd, name)
        fd = super().create(dir_fd, name)
        self._made(dir_fd, name)
        return fd

    def open_read(self, dir_fd: int, name: str) -> int:
        return super().open_read(dir_fd, self._spelled(dir_fd, name))

    def open_append(self, dir_fd: int, name: str) -> int:
        return super().open_append(dir_fd, self._spelled(dir_fd, name))

    def link(self, dir_fd: int, source: str, target: str) -> None:
        target = self._spelled(dir_fd, target)
        super().link(dir_fd, self._spelled(dir_fd, source), target)
        self._made(dir_fd, target)

    def rename(self, dir_fd: int, source: str, target: str) -> None:
        source, target = self._spelled(dir_fd, source), self._spelled(dir_fd, target)
        super().rename(dir_fd, source, target)
        self._names(dir_fd).pop(folded(source), None)
        self._made(dir_fd, target)

    def unlink(self, dir_fd: int, name: str) -> None:
        super().unlink(dir_fd, self._spelled(dir_fd, name))
        self._names(dir_fd).pop(folded(name), None)

    def remove_dir(self, dir_fd: int, name: str) -> None:
        super().remove_dir(dir_fd, self._spelled(dir_fd, name))
        self._names(dir_fd).pop(folded(name), None)

    def stat(self, dir_fd: int, name: str) -> FileStat:
        return super().stat(dir_fd, self._spelled(dir_fd, name))
