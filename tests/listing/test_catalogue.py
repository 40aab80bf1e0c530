"""The list of sessions is what reading each of them says, whatever happened to its file."""

import errno
import multiprocessing
import os
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path, PosixPath

import anyio
import pytest

from ctxfs import Context, ContextFileSystem
from ctxfs.context import History, Part
from ctxfs.errors import ConfigError
from ctxfs.lab.replay.explanation import explain
from ctxfs.session.derived import DERIVED_NAME
from ctxfs.session.listing.catalogue import list_summaries
from ctxfs.session.listing.summary import SessionSummary, summarize, summarize_in
from ctxfs.storage import LocalSessions
from ctxfs.storage.database import row_crc
from ctxfs.storage.local import LocalStore
from ctxfs.storage.log_file import LOG_NAME
from ctxfs.storage.sessions import SessionFound
from ctxfs.version import __version__
from view_session import SESSION, make_session

pytestmark = pytest.mark.anyio

USAGE = {"input_tokens": 1_000_000, "output_tokens": 0}


async def make(root: Path, session_id: str, *, messages: int = 1) -> None:
    """A session with a model's replies, the last of which waits for nothing, and a stored content."""
    async with Context(session_id=session_id, root_path=root) as context:
        for n in range(messages):
            await context.add({"role": "user", "content": f"{n}" * 20_000})
            await context.add({"role": "assistant", "content": "yes"}, usage=USAGE, model="claude-sonnet-4-5")


async def listed(root: Path) -> dict[str, SessionSummary]:
    return {found.session_id: found for found in await list_summaries(LocalSessions(root))}


async def as_read(root: Path, *session_ids: str) -> dict[str, SessionSummary]:
    return {session_id: await summarize(root, session_id) for session_id in session_ids}


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    for session_id in ("a", "b"):
        await make(tmp_path, session_id)
    return tmp_path


async def test_a_root_that_is_not_there_has_no_sessions(tmp_path: Path) -> None:
    assert await list_summaries(LocalSessions(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()


async def test_a_file_is_no_root(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot hold sessions"):
        await list_summaries(LocalSessions(tmp_path / "file"))


async def test_a_session_is_summed_up(root: Path) -> None:
    found = (await listed(root))["a"]
    assert (found.calls, found.items, found.models, found.cost_usd) == (1, 2, ("claude-sonnet-4-5",), 3.0)
    assert found.stored == 1
    assert found.disk_bytes == sum(path.stat().st_size for path in (root / "a").rglob("*") if path.is_file())
    assert found.changed_at == (root / "a" / "journal.jsonl").stat().st_mtime
    assert not found.is_damaged


async def test_a_session_is_known_by_its_first_question(tmp_path: Path) -> None:
    async with Context(session_id="s", root_path=tmp_path) as context:
        await context.add({"role": "user", "content": "  Find the bug\nin the shop. " + "word " * 60})
        await context.add({"role": "assistant", "content": "yes"}, {"role": "user", "content": "And now?"})
    await make(tmp_path, "stored")
    found = await listed(tmp_path)
    title = found["s"].title
    assert title.startswith("Find the bug in the shop. word word")
    assert title.endswith("…")
    assert len(title) == 120
    assert found["stored"].title == "0" * 119 + "…", "its question is in a file"


async def test_the_context_of_a_session_that_a_framework_owns_is_its_last_prompt(tmp_path: Path) -> None:
    async with History("theirs", root_path=tmp_path, model="") as history:
        for tokens in (500, 700):
            await history.arewrite([Part("user", "hello", 0)])
            await history.areplied({"prompt_tokens": tokens, "completion_tokens": 5}, "gpt-5")
    summary = (await listed(tmp_path))["theirs"]
    assert (summary.items, summary.calls, summary.context_tokens, summary.content_tokens) == (0, 2, 700, 700)


async def test_what_changes_is_read_again_and_nothing_else(root: Path) -> None:
    read: list[tuple[int, int]] = []

    def note(done: int, total: int) -> None:
        read.append((done, total))

    await list_summaries(LocalSessions(root), progress=note)
    await list_summaries(LocalSessions(root), progress=note)
    assert read == [(0, 2)]
    await make(root, "a", messages=2)
    await make(root, "c")
    shutil.rmtree(root / "b")
    (root / "no session").mkdir()
    assert await listed(root) == await as_read(root, "a", "c")
    await list_summaries(LocalSessions(root), progress=note)
    assert read[1:] == [(0, 1)], "what is no session is looked at each time"


async def test_a_content_that_is_removed_by_hand_is_noticed(root: Path) -> None:
    assert not (await listed(root))["a"].damages
    next((root / "a" / "user_message").iterdir()).unlink()
    assert len((await listed(root))["a"].damages) == 1


async def test_rights_that_change_are_noticed(root: Path) -> None:
    await listed(root)
    (root / "a").chmod(0o777)
    assert "written by others" in str((await listed(root))["a"].error)
    (root / "a").chmod(0o700)
    assert (await listed(root))["a"].error is None


def deleted(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def no_database(file: Path) -> None:
    file.write_bytes(b"not a database\n" * 1_000)


def a_page_changed(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("""UPDATE sessions SET read = json_set(read, '$.disk_bytes', 7)""")
    db.close()


def of_another_version(file: Path) -> None:
    with sqlite3.connect(file) as db:
        db.execute("PRAGMA user_version = 999")
    db.close()


def made_by_another_version(file: Path) -> None:
    with sqlite3.connect(file) as db:
        for kind, name, stamp, read, _ in db.execute("SELECT * FROM sessions").fetchall():
            row = (kind, name, stamp.replace(__version__, "0.0.1"), read.replace('"cost_usd":3.0', '"cost_usd":7.0'))
            db.execute("REPLACE INTO sessions VALUES (?, ?, ?, ?, ?)", (*row, row_crc(*row)))
    db.close()


def a_directory(file: Path) -> None:
    file.unlink()
    file.mkdir()
    (file / "inside").touch()


def a_link(file: Path) -> None:
    other = file.with_name(".other")
    shutil.copy(file, other)
    file.unlink()
    file.symlink_to(other)


BROKEN = (
    *(deleted, emptied, no_database, a_page_changed, of_another_version, made_by_another_version, a_directory, a_link),
)


@pytest.mark.parametrize("damage", BROKEN, ids=lambda damage: damage.__name__)
async def test_the_file_is_made_again(root: Path, damage: Callable[[Path], None]) -> None:
    await listed(root)
    damage(root / DERIVED_NAME)
    assert await listed(root) == await as_read(root, "a", "b")
    assert await listed(root) == await as_read(root, "a", "b")


async def test_the_file_is_the_users_alone(root: Path) -> None:
    await listed(root)
    assert (root / DERIVED_NAME).stat().st_mode & 0o777 == 0o600


async def test_a_session_in_use_is_listed(root: Path) -> None:
    async with ContextFileSystem("a", root_path=root):
        assert await listed(root) == await as_read(root, "a", "b")


def _list(root: Path) -> int:
    async def main() -> int:
        return sum([len(await list_summaries(LocalSessions(root))) for _ in range(5)])

    return anyio.run(main)


@pytest.mark.service
def test_processes_share_the_file(tmp_path: Path) -> None:
    anyio.run(make, tmp_path, "a")
    for n in range(20):
        shutil.copytree(tmp_path / "a", tmp_path / f"copy{n}")
        os.chmod(tmp_path / f"copy{n}", 0o700)  # noqa: PTH101
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        assert pool.map(_list, [tmp_path] * 6) == [5 * 21] * 6


async def test_what_evictions_saved_is_known_where_there_were_some(tmp_path: Path) -> None:
    await make_session(tmp_path)
    await make(tmp_path, "whole")
    found = await listed(tmp_path)
    async with ContextFileSystem(SESSION, root_path=tmp_path, read_only=True) as fs:
        did = (await explain(fs)).effect
    assert did.net_usd is not None
    assert found[SESSION].saved_tokens == round(did.net)
    assert found[SESSION].saved_usd == pytest.approx(did.net_usd)
    assert (found["whole"].saved_tokens, found["whole"].saved_usd) == (None, None)


class RefusedPath(PosixPath):
    """A path as another user sees it, who may not look into the session "a": root may read everything."""

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if self.parts[-2:] == ("a", LOG_NAME):
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return super().stat(follow_symlinks=follow_symlinks)


class RefusedSessions(LocalSessions):
    """The sessions of a directory as another user sees them."""

    @property
    def directory(self) -> Path:
        return RefusedPath(super().directory)


async def test_a_session_that_may_not_be_read_does_not_hide_the_others(root: Path) -> None:
    refused = RefusedSessions(root)
    found = {one.session_id: one for one in await list_summaries(refused)}
    assert (found["a"].error, found["b"].error) == (f"{root / 'a'} cannot be read: Permission denied", None)
    assert {one.session_id: one for one in await list_summaries(refused)} == found
    assert await listed(root) == found, "nothing changed: it is not looked at again"
    (root / "a" / "new").mkdir()
    assert (await listed(root))["a"].error is None, "what changed is looked at again"


class _Failing(LocalSessions):
    """Sessions of which reading one ends in an error that nobody foresaw."""

    def store(self, session_id: str) -> LocalStore:
        raise ZeroDivisionError(session_id)


async def test_a_defect_is_the_row_of_its_session_and_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    found = await summarize_in(_Failing(tmp_path), SessionFound("s", "1", 5.0))
    assert found.is_damaged
    assert found.error is not None
    assert found.error.startswith("session s cannot be read, because of a defect of ctxfs (ZeroDivisionError)")
    (record,) = caplog.records
    assert record.exc_info is not None, "whoever looks for the defect needs its traceback"
