"""Random histories in small; tests/prove/part_cleanup.py plays a hundred thousand."""

import os
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.errors import ContentGone
from ctxfs.session import prune
from ctxfs.session.cleanup.contents import remove_contents
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.local import remove_session
from prove.cleanup_play import OPERATIONS, play
from prove.part_cleanup import controls, run_histories
from session_items import tool_result

pytestmark = [pytest.mark.usefixtures("loop_may_block"), pytest.mark.slow]


@given(seed=st.integers(0, 10**9), operations=st.lists(st.sampled_from(OPERATIONS), min_size=1, max_size=24))
def test_no_live_placeholder_ever_dangles(seed: int, operations: list[str]) -> None:
    _, wrong = anyio.run(lambda: play(seed, operations=operations))
    assert not wrong


def test_chosen_histories_reach_what_they_are_for() -> None:
    counted, wrong = run_histories(range(40))
    assert not wrong
    for what in ("removed", "undone", "fork", "kill", "forgotten", "imported"):
        assert counted[what], what


def test_a_broken_clean_up_is_found_out() -> None:
    assert set(controls().values()) == {True}


@pytest.mark.anyio
async def test_forks_that_share_files_do_not_break_each_other(tmp_path: Path) -> None:
    async with ContextFileSystem("one", root_path=tmp_path) as fs:
        await fs.writer.store([tool_result(fs, "shared\n" * 100_000, f"call_{n}") for n in range(3)])
    copy_by_links(tmp_path / "one", tmp_path / "two")
    async with ContextFileSystem("one", root_path=tmp_path) as fs:
        await remove_contents(fs, {"call_0": "r"}, by="a test")
    assert all(not one.skipped for one in await prune(["one", "two"], root_path=tmp_path, undo_s=0, grace_s=0))
    async with ContextFileSystem("two", root_path=tmp_path) as fs:
        assert await fs.load("call_0") == "shared\n" * 100_000
        assert (await fs.verify()).ok
    await remove_session(tmp_path, "two")
    async with ContextFileSystem("one", root_path=tmp_path) as fs:
        assert await fs.load("call_1") == "shared\n" * 100_000
        with pytest.raises(ContentGone):
            await fs.load("call_0")


def copy_by_links(source: Path, target: Path) -> None:
    for path in source.rglob("*"):
        there = target / path.relative_to(source)
        if path.is_dir():
            there.mkdir(parents=True, mode=0o700)
        elif path.name in {"journal.jsonl", ".lock", "index.json"}:
            there.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            there.write_bytes(path.read_bytes())
            there.chmod(0o600)
        else:
            there.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.link(path, there)
