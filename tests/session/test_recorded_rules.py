"""The rules by which results leave, as the journal keeps them: what ``ctxfs explain`` tells them from."""

from dataclasses import replace

import pytest

from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.session.record_json import from_json, to_json
from ctxfs.session.records import Closed, EvictionSet
from ctxfs.storage.memory import MemoryStore

pytestmark = pytest.mark.anyio


def session(store: MemoryStore) -> ContextFileSystem:
    return ContextFileSystem("session_1", store=store.peer(), clock=lambda: 9.5)


async def test_the_rules_by_which_results_leave_are_recorded_once_and_found_again() -> None:
    store = MemoryStore("session_1")
    rules = EvictionSet(keep_recent={"Read": 2}, parameters=None, rates={}, ttl_s=300.0)
    async with session(store) as fs:
        await fs.writer.record_eviction(rules)
        assert fs.state.eviction == rules
        written = len(store.disk.log)
        await fs.writer.record_eviction(rules)
        assert len(store.disk.log) == written
    other = replace(rules, keep_recent={"Read": 3})
    async with session(store) as fs:
        assert fs.state.eviction == rules
        await fs.writer.record_eviction(other)
    async with session(store) as fs:
        assert fs.state.eviction == other
        history = await fs.history()
    assert [record for record in history if isinstance(record, EvictionSet)] == [rules, other]
    assert [record for record in history if isinstance(record, Closed)] == [Closed(closed_at=9.5)] * 2


def test_sessions_that_recorded_no_longest_digest_had_the_former_default() -> None:
    recorded = to_json(EvictionSet())
    recorded.pop("digest_tokens", None)
    assert from_json(recorded) == EvictionSet(digest_tokens=200)
