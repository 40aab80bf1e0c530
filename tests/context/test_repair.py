"""A session whose journal was damaged goes on: what is sent is still a transcript that a provider takes."""

from pathlib import Path

import pytest

from ctxfs.context.context import Context
from ctxfs.messages import CharsCounter
from ctxfs.messages.messages import AssistantMessage, Message, ToolMessage, UserMessage
from ctxfs.testing.invariants import violations

pytestmark = pytest.mark.anyio


def calls(*ids: str) -> AssistantMessage:
    return AssistantMessage(tuple({"type": "tool_use", "id": each, "name": "t", "input": {}} for each in ids))


MESSAGES: tuple[Message, ...] = (
    UserMessage("first"),
    calls("c1", "c2"),
    ToolMessage("c1", "t", "one"),
    ToolMessage("c2", "t", "two"),
    calls("c3"),
    ToolMessage("c3", "t", "three"),
    AssistantMessage("done"),
    UserMessage("again"),
)


def damage_line(journal: Path, number: int) -> None:
    lines = journal.read_bytes().split(b"\n")
    lines[number] = lines[number].replace(b'"crc":"', b'"crc":"x', 1)
    journal.write_bytes(b"\n".join(lines))


@pytest.mark.parametrize("number", range(9))
async def test_any_one_line_may_be_lost(tmp_path: Path, number: int) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        for message in MESSAGES:
            await context.add(message)
    damage_line(tmp_path / "s" / "journal.jsonl", number)
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        assert context.fs.recovery.damages
        body = await context.request(cache=False)
        assert violations({"model": "m", "max_tokens": 1, **body}) == []
        await context.add(AssistantMessage("going on"))
        left = context.items
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        assert context.items == left


class Uncountable(CharsCounter):
    def count(self, text: str) -> int:
        raise ValueError("no tokens today")


async def test_a_session_that_cannot_be_resumed_is_not_held(tmp_path: Path) -> None:
    async with Context("s", root_path=tmp_path, counter=CharsCounter()) as context:
        await context.add(UserMessage("hello"))
        await context.add(AssistantMessage("hello"))
    damage_line(tmp_path / "s" / "journal.jsonl", 2)  # what is said instead of it is counted
    for _ in range(2):
        with pytest.raises(ValueError, match="no tokens today"):
            await Context("s", root_path=tmp_path, counter=Uncountable()).open()
