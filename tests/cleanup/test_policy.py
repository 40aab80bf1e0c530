"""Which sessions a policy forgets: the newest stay, the reasons are told, and nothing else decides."""

import errno
import os
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.agent import Agent, AgentConfig
from ctxfs.errors import ConfigError, QuotaExceeded, SessionNotFound, UnknownItem
from ctxfs.session import (
    ForgetPlan,
    ForgetPolicy,
    check,
    forget,
    forget_plan,
    fork_session,
    keep_quota,
    prune_session,
    tag_session,
    usage_by_item,
    usage_by_session,
    usage_by_tool,
)
from ctxfs.session.cleanup.policy import plan_forget
from ctxfs.session.cleanup.sessions import carry_out
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.listing.summary import SessionSummary
from ctxfs.storage.local import list_sessions
from ctxfs.storage.local_sessions import LocalSessions
from ctxfs.storage.port import OsFileSystem
from ctxfs.storage.removal import FORGOTTEN_NAME
from ctxfs.testing import ScriptedModel
from session_items import tool_result

DAY = 86_400.0
NOW = 100 * DAY


def summary(name: str, age_days: float, size: int = 100, **values: Any) -> SessionSummary:
    return SessionSummary(session_id=name, changed_at=NOW - age_days * DAY, disk_bytes=size, **values)


SESSIONS = [
    summary("new", 0.5),
    summary("week", 7, 300, tags=("nightly", "big")),
    summary("month", 30, 1_000, tags=("keep",)),
    summary("year", 365, 50),
]


def forgotten(*, running: tuple[str, ...] = (), **rules: Any) -> dict[str, str]:
    plan = plan_forget(SESSIONS, ForgetPolicy(**rules), now=NOW, running=running)
    assert [verdict.session_id for verdict in plan.verdicts] == ["new", "week", "month", "year"]
    assert all(verdict.reason for verdict in plan.verdicts)
    return {verdict.session_id: verdict.reason for verdict in plan.forgotten}


def test_what_no_rule_keeps_is_forgotten() -> None:
    assert forgotten(keep_last=2) == {"month": "no rule keeps it", "year": "no rule keeps it"}
    assert forgotten(keep_last=2, keep_tags=("keep",)).keys() == {"year"}
    assert forgotten(keep_last=1, running=("year",)).keys() == {"week", "month"}


def test_a_kept_session_names_its_tag_first_since_only_that_keeps_it_whatever_comes() -> None:
    plan = plan_forget(SESSIONS, ForgetPolicy(keep_last=3, older_than_s=40 * DAY, keep_tags=("keep",)), now=NOW)
    (month,) = (one for one in plan.verdicts if one.session_id == "month")
    assert month.reason == "it has a tag of keep"


def test_a_rule_that_keeps_none_is_a_rule() -> None:
    every = {"new", "week", "month", "year"}
    assert forgotten(keep_last=0).keys() == every
    assert forgotten(older_than_s=0).keys() == every
    assert forgotten(keep_last=0, keep_tags=("keep",)).keys() == every - {"month"}


def test_rules_that_select_must_all_hold() -> None:
    assert forgotten(older_than_s=20 * DAY) == {"month": "unchanged for 30d", "year": "unchanged for 365d"}
    assert forgotten(larger_than_bytes=99).keys() == {"new", "week", "month"}
    assert forgotten(older_than_s=20 * DAY, larger_than_bytes=99) == {
        "month": "unchanged for 30d; larger than 99 bytes"
    }
    assert forgotten(tags=("nightly",)) == {"week": "tagged nightly"}
    assert forgotten(tags=("other",)) == {}


def test_a_bound_forgets_the_oldest_first_and_no_more_than_needed() -> None:
    assert forgotten(max_size_bytes=1_450) == {}
    assert forgotten(max_size_bytes=1_440) == {"year": "so that the sessions fit in 1,440 bytes"}
    assert forgotten(max_size_bytes=1_000).keys() == {"year", "month"}
    plan = plan_forget(SESSIONS, ForgetPolicy(max_size_bytes=500, keep_tags=("keep",)), now=NOW)
    assert {verdict.session_id for verdict in plan.forgotten} == {"new", "week", "year"}
    assert (plan.size_bytes, plan.over_bytes) == (450, 500)
    assert ForgetPlan(verdicts=()).over_bytes == 0


def test_what_cannot_be_read_is_kept() -> None:
    plan = plan_forget([summary("broken", 500, error="damaged")], ForgetPolicy(older_than_s=0), now=NOW)
    assert plan.forgotten == ()
    assert "cannot be read" in plan.verdicts[0].reason


@given(
    ages=st.lists(st.integers(0, 50), max_size=12),
    last=st.integers(0, 5),
    within=st.integers(0, 50),
    bound=st.none() | st.integers(0, 1_500),
)
def test_the_protected_stay_and_the_others_fit(ages: list[int], last: int, within: int, bound: int | None) -> None:
    sessions = [summary(f"s{n}", age) for n, age in enumerate(ages)]
    rules = ForgetPolicy(keep_last=last + 1, older_than_s=within * DAY, max_size_bytes=bound)
    plan = plan_forget(sessions, rules, now=NOW)
    gone = {verdict.session_id for verdict in plan.forgotten}
    newest = sorted(sessions, key=lambda session: (-session.changed_at, session.session_id))
    assert not gone & {session.session_id for session in newest[: last + 1]}
    assert not gone & {session.session_id for session in sessions if NOW - session.changed_at < within * DAY}
    left = 100 * (len(sessions) - len(gone))
    if bound is not None:
        assert plan.over_bytes == max(0, left - bound)
        assert not gone or left + 100 > bound


@pytest.mark.parametrize(
    "rules",
    [{}, {"keep_last": -1}, {"keep_last": 1.5}, {"older_than_s": -1}, {"older_than_s": "1d"}, {"tags": "nightly"}],
)
def test_rules_that_cannot_work_are_refused(rules: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ForgetPolicy(**rules)


async def made(root: Path, *names: str) -> None:
    for name in names:
        async with ContextFileSystem(name, root_path=root) as fs:
            await fs.writer.store([tool_result(fs, f"the content of {name}")])


@pytest.mark.anyio
async def test_a_forgotten_session_says_when_why_and_what(tmp_path: Path) -> None:
    await made(tmp_path, "a", "b", "c")
    policy = ForgetPolicy(older_than_s=0)
    assert [verdict.forget for verdict in (await forget_plan(policy, root_path=tmp_path)).verdicts] == [True] * 3
    async with ContextFileSystem("b", root_path=tmp_path):
        plan = await forget_plan(policy, root_path=tmp_path)
        assert {verdict.session_id: verdict.reason for verdict in plan.verdicts}["b"] == "an agent writes to it"
        done = await forget(policy, root_path=tmp_path, by="a test", clock=lambda: 2e9)
    assert {verdict.session_id for verdict in done.removed} == {"a", "c"}
    assert done.size_bytes == done.plan.size_bytes > 0
    assert await list_sessions(tmp_path) == ["b"]
    for name in ("a", "c"):
        with pytest.raises(SessionNotFound, match=r"was removed on 2033-05-18 by a test \(unchanged for .*1 content, "):
            async with ContextFileSystem(name, root_path=tmp_path, read_only=True):
                pass
    with pytest.raises(SessionNotFound, match="no session 'd'"):
        async with ContextFileSystem("d", root_path=tmp_path, read_only=True):
            pass
    await made(tmp_path, "a")  # the id can be used again
    async with ContextFileSystem("a", root_path=tmp_path, read_only=True) as fs:
        assert await fs.load("call_1") == "the content of a"


@pytest.mark.anyio
async def test_a_session_that_was_taken_up_meanwhile_is_kept_and_reported(tmp_path: Path) -> None:
    await made(tmp_path, "a")
    plan = await forget_plan(ForgetPolicy(older_than_s=0), root_path=tmp_path)
    async with ContextFileSystem("a", root_path=tmp_path):
        done = await carry_out(plan, root_path=tmp_path)
    assert done.removed == ()
    ((verdict, why),) = done.failed
    assert (verdict.session_id, "locked" in why) == ("a", True)
    assert await list_sessions(tmp_path) == ["a"]


@pytest.mark.anyio
async def test_a_torn_or_strange_log_of_tombstones_hides_nothing(tmp_path: Path) -> None:
    await made(tmp_path, "a", "b")
    log = anyio.Path(tmp_path / FORGOTTEN_NAME)
    await log.write_bytes(b'{"session_id":"a"}\nnull\n{"session_id":"a","removed_at":1e99}\n{"session_id":"a","remo')
    await forget(ForgetPolicy(older_than_s=0), root_path=tmp_path)
    for name in ("a", "b"):
        with pytest.raises(SessionNotFound, match="was removed on"):
            async with ContextFileSystem(name, root_path=tmp_path, read_only=True):
                pass


@pytest.mark.anyio
async def test_a_quota_is_refused_or_cleaned_and_never_silently(tmp_path: Path) -> None:
    assert await keep_quota(0, root_path=tmp_path) is None
    await made(tmp_path, "a", "b", "c")
    used = sum(usage.size_bytes for usage in await usage_by_session(tmp_path))
    assert await keep_quota(used, root_path=tmp_path) is None
    with pytest.raises(QuotaExceeded, match="ctxfs du") as caught:
        await keep_quota(used - 1, root_path=tmp_path)
    assert (caught.value.size_bytes, caught.value.max_bytes, caught.value.root) == (used, used - 1, str(tmp_path))
    assert await list_sessions(tmp_path) == ["a", "b", "c"]
    done = await keep_quota(used - 1, policy=ForgetPolicy(older_than_s=0), root_path=tmp_path)
    assert done is not None
    assert len(done.removed) == 1
    with pytest.raises(QuotaExceeded):
        await keep_quota(0, policy=ForgetPolicy(keep_last=1), root_path=tmp_path)
    assert len(await list_sessions(tmp_path)) == 1
    with pytest.raises(ConfigError):
        await keep_quota(-1, root_path=tmp_path)


@pytest.mark.anyio
async def test_a_session_that_is_about_to_be_resumed_is_kept_and_what_goes_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    await made(tmp_path, "first", "second")
    used = sum(usage.size_bytes for usage in await usage_by_session(tmp_path))
    policy = ForgetPolicy(older_than_s=0)
    await keep_quota(used - 1, policy=policy, root_path=tmp_path, keep=["first"])
    assert await list_sessions(tmp_path) == ["first"]  # though it is the oldest
    assert "1 sessions were forgotten" in caplog.text
    with pytest.raises(SessionNotFound, match=r"was removed on .* by ctxfs\.session\.keep_quota"):
        async with ContextFileSystem("second", root_path=tmp_path, read_only=True):
            pass


@pytest.mark.anyio
async def test_the_session_of_an_agent_is_pruned_before_it_is_closed(tmp_path: Path) -> None:
    config = AgentConfig(offload_root_path=tmp_path, session_id="s")
    async with Agent(ScriptedModel(["yes"]), config) as agent:
        await agent.query("go")
        assert not (await prune_session(agent.context.fs)).collect
        assert await agent.context.fs.items()


@pytest.mark.anyio
async def test_files_that_a_fork_shares_are_counted_once(tmp_path: Path) -> None:
    async with ContextFileSystem("old", root_path=tmp_path) as fs:
        await fs.writer.store([tool_result(fs, "x" * 20_000)])
    content = (await anyio.Path(tmp_path / "old/tool_result/Read/call_1.json").stat()).st_size
    await fork_session("old", new_id="new", root_path=tmp_path)
    os.utime(tmp_path / "old" / "journal.jsonl", (1e9, 1e9))
    by_name = {usage.name: usage for usage in await usage_by_session(tmp_path)}
    assert (by_name["old"].shared_bytes, by_name["new"].shared_bytes) == (content, 0)
    total = sum(usage.size_bytes for usage in by_name.values()) - content
    assert await keep_quota(total, root_path=tmp_path) is None
    with pytest.raises(QuotaExceeded):
        await keep_quota(total - 1, root_path=tmp_path)
    (old,) = (
        one
        for one in (await forget_plan(ForgetPolicy(keep_last=1), root_path=tmp_path)).verdicts
        if one.session_id == "old"
    )
    assert old.size_bytes == by_name["old"].size_bytes - content


@pytest.mark.anyio
async def test_tags_are_in_the_journal(tmp_path: Path) -> None:
    await made(tmp_path, "a", "b")
    assert await tag_session("a", add=["x", "y"], root_path=tmp_path) == ("x", "y")
    assert await tag_session("a", add=["z"], remove=["x", "none"], root_path=tmp_path) == ("y", "z")
    assert await tag_session("a", root_path=tmp_path) == ("y", "z")
    with pytest.raises(SessionNotFound):
        await tag_session("none", add=["x"], root_path=tmp_path)
    done = await forget(ForgetPolicy(tags=("z",)), root_path=tmp_path)
    assert [verdict.session_id for verdict in done.removed] == ["a"]


@pytest.mark.anyio
async def test_a_tag_leaves_its_session_as_old_as_it_was(tmp_path: Path) -> None:
    await made(tmp_path, "old", "new")
    journal = tmp_path / "old" / "journal.jsonl"
    os.utime(journal, (1e9, 1e9))
    for change in ({"add": ["x"]}, {"remove": ["x"]}):
        await tag_session("old", root_path=tmp_path, **change)
        assert (await anyio.Path(journal).stat()).st_mtime == 1e9
    done = await forget(ForgetPolicy(keep_last=1), root_path=tmp_path)
    assert [verdict.session_id for verdict in done.removed] == ["old"]


@pytest.mark.anyio
async def test_a_forgotten_session_without_contents_held_bytes_only(tmp_path: Path) -> None:
    async with ContextFileSystem("a", root_path=tmp_path):
        pass
    await forget(ForgetPolicy(keep_last=0), root_path=tmp_path)
    with pytest.raises(SessionNotFound, match=r"; it held [\d,]+ bytes$"):
        await tag_session("a", add=["x"], root_path=tmp_path)


@pytest.mark.anyio
async def test_usage_by_session_tool_and_item(tmp_path: Path) -> None:
    async with ContextFileSystem("a", root_path=tmp_path) as fs:
        await fs.writer.store([tool_result(fs, "x" * 1_000, "one"), tool_result(fs, "x" * 5_000, "two", tool="Bash")])
    await made(tmp_path, "b")
    (tmp_path / "broken").mkdir(mode=0o777)
    (tmp_path / "broken").chmod(0o777)
    await anyio.Path(tmp_path / "broken" / "journal.jsonl").write_text("")
    assert [usage.name for usage in await usage_by_session(tmp_path)][:2] == ["a", "b"]
    tools = {usage.name: usage for usage in await usage_by_tool(root_path=tmp_path)}
    assert (tools["Bash"].contents, tools["Bash"].content_bytes, tools["Read"].contents) == (1, 5_000, 2)
    items = await usage_by_item(root_path=tmp_path)
    assert [(usage.session_id, usage.name) for usage in items] == [("a", "two"), ("a", "one"), ("b", "call_1")]
    path = tmp_path / "a" / "tool_result" / "Bash" / "two.json"
    assert items[0].size_bytes == (await anyio.Path(path).stat()).st_size
    assert [usage.name for usage in await usage_by_tool("b", root_path=tmp_path)] == ["Read"]
    with pytest.raises(SessionNotFound):
        await usage_by_item("none", root_path=tmp_path)


class ClosedDirectories(OsFileSystem):
    """A system in which some directories belong to somebody else."""

    def open_dir(self, dir_fd: int, name: str) -> int:
        if name.startswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied")
        return super().open_dir(dir_fd, name)


@pytest.mark.anyio
async def test_checking_names_a_session_that_may_not_be_read(tmp_path: Path) -> None:
    await made(tmp_path, "a", "closed")
    stores = LocalSessions(tmp_path, fs=ClosedDirectories())
    assert [one.session_id for one in await stores.sessions()] == ["a"]
    found = {one.session_id: one async for one in check(root_path=stores)}
    assert (found["a"].ok, found["closed"].ok) == (True, False)
    assert "cannot be read: Permission denied" in found["closed"].error


@pytest.mark.not_measured
@pytest.mark.anyio
async def test_checking_all_sessions_or_a_sample(tmp_path: Path) -> None:
    async with ContextFileSystem("a", root_path=tmp_path) as fs:
        await fs.writer.store([tool_result(fs, f"content {n}", f"call_{n}") for n in range(40)])
    await made(tmp_path, "b", "c")
    await anyio.Path(tmp_path / "b" / "tool_result" / "Read" / "call_1.json").unlink()
    (tmp_path / "c").chmod(0o777)
    found = {one.session_id: one async for one in check(root_path=tmp_path)}
    assert (found["a"].ok, found["a"].report.checked, found["a"].contents) == (True, 40, 40)
    assert (found["b"].ok, len(found["b"].report.problems)) == (False, 1)
    assert (found["c"].ok, "others" in found["c"].error) == (False, True)
    counts = [
        [one.report.checked async for one in check(["a"], root_path=tmp_path, share=0.25, seed=seed)]
        for seed in (1, 1, 2)
    ]
    assert counts[0] == counts[1] != [40]
    assert 0 < counts[0][0] < 25
    for share in (0, 1.5, -1, "half"):
        with pytest.raises(ConfigError):
            _ = [one async for one in check(root_path=tmp_path, share=share)]  # type: ignore[arg-type]
    async with ContextFileSystem("a", root_path=tmp_path, read_only=True) as fs:
        with pytest.raises(UnknownItem):
            await fs.verify(["none"])


@pytest.mark.anyio
async def test_a_session_that_was_used_while_it_was_tagged_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with ContextFileSystem("s", root_path=tmp_path):
        pass
    journal = tmp_path / "s" / "journal.jsonl"
    os.utime(journal, (1e9, 1e9))
    make_old = os.utime

    def used_meanwhile(path: Path, ns: tuple[int, int] | None = None) -> None:
        if ns is None:
            make_old(path)
        else:
            journal.write_bytes(journal.read_bytes() + b"\n")
            make_old(path, ns=ns)

    monkeypatch.setattr(os, "utime", used_meanwhile)
    await tag_session("s", root_path=tmp_path, add=["keep"])
    assert journal.stat().st_mtime > 1e9


@pytest.mark.anyio
async def test_a_session_without_its_journal_can_be_tagged(tmp_path: Path) -> None:
    async with ContextFileSystem("s", root_path=tmp_path):
        pass
    (tmp_path / "s" / "journal.jsonl").unlink()
    assert await tag_session("s", root_path=tmp_path, add=["keep"]) == ("keep",)
