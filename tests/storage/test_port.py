"""The real file system behind the port: what it refuses to follow, and that it asks the system."""

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ctxfs.storage.port import FileKind, OsFileSystem, link_across, write_all
from failing_fs import FailingFileSystem, as_port

FS = OsFileSystem()


@contextmanager
def directory(path: Path) -> Iterator[int]:
    fd = FS.open_root(path)
    try:
        yield fd
    finally:
        FS.close(fd)


@contextmanager
def refused(*numbers: int) -> Iterator[None]:
    with pytest.raises(OSError) as caught:
        yield
    assert caught.value.errno in numbers


@pytest.fixture
def place(tmp_path: Path) -> Iterator[tuple[int, Path]]:
    """A directory with one of each kind in it: a file, a directory, links to both and to nothing, a pipe."""
    (tmp_path / "in").mkdir()
    (tmp_path / "outside").write_bytes(b"precious")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "in" / "file").write_bytes(b"bytes")
    (tmp_path / "in" / "directory").mkdir()
    (tmp_path / "in" / "link").symlink_to("../outside")
    (tmp_path / "in" / "link to directory").symlink_to("../elsewhere")
    (tmp_path / "in" / "link to nothing").symlink_to("../made")
    os.mkfifo(tmp_path / "in" / "pipe")
    with directory(tmp_path / "in") as fd:
        yield fd, tmp_path


LINKS = ["link", "link to directory", "link to nothing"]


@pytest.mark.parametrize("name", LINKS)
def test_no_call_follows_a_link(place: tuple[int, Path], name: str) -> None:
    fd, above = place
    with refused(errno.ELOOP, errno.ENOTDIR):
        FS.open_dir(fd, name)
    with refused(errno.ELOOP):
        FS.open_read(fd, name)
    with refused(errno.ELOOP):
        FS.open_append(fd, name)
    with refused(errno.EEXIST):
        FS.create(fd, name)
    with refused(errno.EEXIST):
        FS.make_dir(fd, name)
    assert FS.stat(fd, name).kind is FileKind.LINK
    FS.unlink(fd, name)
    assert (above / "outside").read_bytes() == b"precious"
    assert (above / "elsewhere").is_dir()
    assert not (above / "made").exists()


def test_a_link_that_gets_a_second_name_stays_a_link(place: tuple[int, Path]) -> None:
    fd, _ = place
    FS.link(fd, "link", "second")
    assert FS.stat(fd, "second").kind is FileKind.LINK


@pytest.mark.parametrize("open_it", [FS.open_read, FS.open_append])
def test_a_pipe_never_blocks(place: tuple[int, Path], open_it: type) -> None:
    fd, _ = place
    opened = open_it(fd, "pipe")
    assert FS.stat_handle(opened).kind is FileKind.OTHER
    FS.close(opened)


def test_a_listing_says_what_is_there_and_not_where_links_lead(place: tuple[int, Path]) -> None:
    fd, _ = place
    assert dict(FS.list_dir(fd)) == {
        "file": FileKind.FILE,
        "directory": FileKind.DIRECTORY,
        "link": FileKind.LINK,
        "link to directory": FileKind.LINK,
        "link to nothing": FileKind.LINK,
        "pipe": FileKind.OTHER,
    }


def test_a_name_that_is_taken_is_not_given_again(place: tuple[int, Path]) -> None:
    fd, above = place
    for make in (FS.create, FS.make_dir):
        for name in ("file", "directory"):
            with refused(errno.EEXIST):
                make(fd, name)
    with refused(errno.EEXIST):
        FS.link(fd, "link", "file")
    assert (above / "in" / "file").read_bytes() == b"bytes"


def test_what_is_known_of_a_file(place: tuple[int, Path]) -> None:
    fd, above = place
    os.link(above / "in" / "file", above / "second")
    os.utime(above / "in" / "file", (1, 1234))
    (above / "in" / "file").chmod(0o640)
    (above / "in" / "other").write_bytes(b"")
    found = FS.stat(fd, "file")
    assert (found.kind, found.size, found.mode, found.links) == (FileKind.FILE, 5, 0o640, 2)
    assert (found.owner, found.modified_at) == (os.getuid(), 1234)
    assert found.identity != FS.stat(fd, "other").identity
    assert FS.stat(fd, "directory").links == 1
    opened = FS.open_read(fd, "file")
    assert FS.stat_handle(opened) == found
    FS.close(opened)


def test_modes_under_any_umask(tmp_path: Path) -> None:
    for umask in (0o777, 0o000):
        before = os.umask(umask)
        try:
            with directory(tmp_path) as fd:
                FS.close(FS.create(fd, f"file {umask}"))
                FS.make_dir(fd, f"directory {umask}")
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"file {umask}").stat().st_mode) == 0o600
        assert stat.S_IMODE((tmp_path / f"directory {umask}").stat().st_mode) == 0o700


def test_a_file_whose_mode_cannot_be_set_is_not_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(fd: int, mode: int) -> None:
        raise OSError(errno.EPERM, "this disk has no modes")

    monkeypatch.setattr(os, "fchmod", fails)
    before = os.umask(0o777)
    try:
        with directory(tmp_path) as fd, refused(errno.EPERM):
            FS.create(fd, "file")
    finally:
        os.umask(before)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("fails", "linked"), [(0, True), (errno.EXDEV, False), (errno.EMLINK, False)])
def test_a_file_is_linked_where_the_disk_can_do_that(place: tuple[int, Path], fails: int, linked: bool) -> None:
    fd, path = place
    fs = FailingFileSystem(lambda number, name: bool(fails), fails)
    (path / "other").mkdir()
    with directory(path / "other") as other:
        assert link_across(as_port(fs), fd, other, "file") is linked
    assert (path / "other" / "file").exists() is linked


def test_a_file_system_that_cannot_link_copies_and_a_disk_that_fails_says_so(place: tuple[int, Path]) -> None:
    fd, _ = place
    with refused(errno.EIO):
        link_across(as_port(FailingFileSystem(lambda number, name: True)), fd, fd, "file")
    without: Any = object()
    assert link_across(without, fd, fd, "file") is False


def test_a_new_root_is_private(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        FS.make_root(tmp_path / "root")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "root").stat().st_mode) == 0o700


def test_reads_writes_and_cuts_are_where_they_should_be(tmp_path: Path) -> None:
    with directory(tmp_path) as fd:
        made = FS.create(fd, "file")
        write_all(FS, made, [b"one ", b"", b"two"])
        assert (FS.read(made, 3, 4), FS.read(made, 100, 4), FS.read(made, 3, 7)) == (b"two", b"two", b"")
        FS.truncate(made, 4)
        write_all(FS, made, [b"three"])
        FS.close(made)
        again = FS.open_append(fd, "file")
        write_all(FS, again, [b" four"])
        assert FS.read(again, 100, 0) == b"one three four"
        FS.begin_sync(again, 0, 4)
        assert FS.read(again, 100, 0) == b"one three four"
        FS.close(again)
        FS.rename(fd, "file", "renamed")
        FS.make_dir(fd, "empty")
        FS.remove_dir(fd, "empty")
    assert [path.name for path in tmp_path.iterdir()] == ["renamed"]


def test_a_sync_asks_the_system(tmp_path: Path) -> None:
    """A pipe has no medium: the system says so, if it is asked."""
    reads, writes = os.pipe()
    with refused(errno.EINVAL, errno.ENOTSUP):
        FS.sync(writes)
    for fd in (reads, writes):
        os.close(fd)
    with refused(errno.EBADF):
        FS.sync(writes)
    with directory(tmp_path) as fd:
        FS.sync(fd)


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    with directory(tmp_path) as fd:
        first = FS.create(fd, "lock")
        second = FS.open_append(fd, "lock")
        FS.lock(first)
        with pytest.raises(BlockingIOError):
            FS.lock(second)
        FS.unlock(first)
        FS.lock(second)
        FS.close(second)
        FS.lock(first)
        FS.close(first)


class Reluctant(OsFileSystem):
    """Takes a few bytes at a time, then none."""

    left = 5

    def write(self, fd: int, data: bytes | memoryview) -> int:
        taken = min(self.left, 2)
        self.left -= taken
        return super().write(fd, memoryview(data)[:taken]) if taken else 0


def test_a_system_that_takes_no_bytes_is_an_error_and_no_endless_loop(tmp_path: Path) -> None:
    with directory(tmp_path) as fd:
        made = FS.create(fd, "file")
        with refused(errno.EIO):
            write_all(Reluctant(), made, [b"0123456789"])
        assert FS.read(made, 100, 0) == b"01234"
        FS.close(made)
