"""``explain`` as a function: what ``ctxfs explain`` prints, as a value, of a session that is open in any way."""

from pathlib import Path

import pytest

from ctxfs import Context, ContextFileSystem, ItemType
from ctxfs.errors import SessionClosed
from ctxfs.replay import Explanation, explain

pytestmark = pytest.mark.anyio


async def made(root: Path) -> Context:
    """An open session whose bash results are kept exactly: all but the last one have left."""
    context = Context(root_path=root, keep_recent={"bash": 1}, pricing=None)
    await context.open()
    await context.add({"role": "user", "content": "do it"})
    for number in range(3):
        call = {"type": "tool_use", "id": f"call_{number}", "name": "bash", "input": {}}
        result = {"type": "tool_result", "tool_use_id": f"call_{number}", "content": f"{number} of it\n" * 400}
        await context.add({"role": "assistant", "content": [call]}, {"role": "user", "content": [result]})
        await context.messages()
    return context


async def reopened(root: Path, session_id: str, *, read_only: bool) -> Explanation:
    async with ContextFileSystem(session_id, root_path=root, read_only=read_only) as fs:
        return await explain(fs)


async def test_it_says_of_each_item_where_it_is_and_why(tmp_path: Path) -> None:
    context = await made(tmp_path)
    await context.close()
    explained = await reopened(tmp_path, context.session_id, read_only=True)
    items = {item.item_id: item for item in explained.items}
    assert [items[f"call_{number}"].place for number in range(3)] == ["file", "file", "context"]
    assert items["call_0"].why == "bash keeps its last 1"
    assert items["call_2"].why == "stays: bash keeps its last 1"
    assert items["call_2"].item_type is ItemType.TOOL_RESULT
    assert (items["call_2"].left_after_reply, items["call_2"].replies_since) == (None, None)
    assert explained.context_tokens == context.token_count
    assert explained.effect.evictions == 2
    assert explained.effect.net_usd is None
    assert explained.billed.calls == 0
    assert not explained.next


async def test_reading_only_writing_and_a_context_that_goes_on_are_explained_alike(tmp_path: Path) -> None:
    context = await made(tmp_path)
    while_open = await explain(context.fs)
    journal = (while_open.session_path / "journal.jsonl").read_bytes()
    assert await reopened(tmp_path, context.session_id, read_only=True) == while_open
    assert (while_open.session_path / "journal.jsonl").read_bytes() == journal
    await context.close()
    assert await reopened(tmp_path, context.session_id, read_only=False) == while_open


async def test_a_session_that_is_not_open_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SessionClosed):
        await explain(ContextFileSystem(root_path=tmp_path))
