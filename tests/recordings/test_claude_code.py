"""Claude Code's own: threads, rewinds, compactions, errors that it made up, results that it persisted, and bills."""

import json
from typing import Any

import pytest

from ctxfs.lab.recordings.formats.table import parse
from ctxfs.lab.recordings.recording import Kind, Recording
from ctxfs.messages.base import Usage

USAGE = {
    "input_tokens": 3,
    "cache_read_input_tokens": 1_000,
    "cache_creation_input_tokens": 200,
    "cache_creation": {"ephemeral_5m_input_tokens": 50, "ephemeral_1h_input_tokens": 150},
    "output_tokens": 7,
}


def line(uuid: str, parent: str | None, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message: dict[str, Any] = {"role": role, "content": content}
    if role == "assistant":
        message |= {"id": more.pop("id", f"msg_{uuid}"), "model": more.pop("model", "claude-opus-4-6"), "usage": USAGE}
    at = f"2026-02-08T05:00:{len(uuid):02}.500Z"
    return {"type": role, "uuid": uuid, "parentUuid": parent, "timestamp": at, "message": message, "cwd": "/p", **more}


def use(call_id: str) -> list[dict[str, Any]]:
    return [{"type": "tool_use", "id": call_id, "name": "Read", "input": {"path": call_id}}]


def result(call_id: str, content: Any = "found") -> list[dict[str, Any]]:
    return [{"type": "tool_result", "tool_use_id": call_id, "content": content}]


def read(*rows: dict[str, Any]) -> Recording:
    (recording,) = parse("\n".join(json.dumps(row) for row in rows), name="session")
    return recording


def texts(recording: Recording) -> list[list[str]]:
    return [[b.text for m in thread.messages for b in m.blocks] for thread in recording.threads()]


def test_lines_of_one_reply_are_one_call_with_the_last_lines_bill() -> None:
    first = line("a", "u", "assistant", [{"type": "text", "text": "one"}], id="m")
    first["message"]["usage"] = USAGE | {"output_tokens": 1}
    recording = read(
        line("u", None, "user", "do it"), first, line("bb", "a", "assistant", use("c"), id="m", parentUuid="a")
    )
    (call,) = recording.calls
    assert call.usage == Usage(
        input_tokens=3, cache_creation_input_tokens=200, cache_read_input_tokens=1_000, output_tokens=7
    )
    assert (call.id, call.model, call.hour_tokens, call.at) == ("m", "claude-opus-4-6", 150, 1770526802.5)
    assert (recording.model, recording.project) == ("claude-opus-4-6", "/p")


def test_parallel_calls_and_their_results_are_no_rewind() -> None:
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", use("c1"), id="m"),
        line("b", "a", "assistant", use("c2"), id="m"),
        line("r1", "a", "user", result("c1", "first")),
        line("r2", "b", "user", result("c2", "second")),
        line("d", "r2", "assistant", [{"type": "text", "text": "done"}]),
    )
    assert texts(recording) == [["do it", "c1", "c2", "first", "second", "done"]]
    assert recording.asides == ()


def test_results_between_the_calls_of_one_reply_come_after_it() -> None:
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", use("c1"), id="m"),
        line("r1", "a", "user", result("c1", "first")),
        line("b", "r1", "assistant", use("c2"), id="m"),
        line("r2", "b", "user", result("c2", "second")),
        line("d", "r2", "assistant", [{"type": "text", "text": "done"}]),
    )
    assert texts(recording) == [["do it", "c1", "c2", "first", "second", "done"]]
    assert len(list(recording.calls)) == 2


def test_a_rewind_takes_the_branch_that_went_on_and_keeps_the_others_bill() -> None:
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", [{"type": "text", "text": "yes"}]),
        line("v", "a", "user", "wrong way"),
        line("b", "v", "assistant", [{"type": "text", "text": "lost"}]),
        line("w", "a", "user", "other way"),
        line("c", "w", "assistant", [{"type": "text", "text": "found"}]),
    )
    assert texts(recording) == [["do it", "yes", "other way", "found"]]
    assert [call.id for call in recording.asides] == ["msg_b"]
    assert len(list(recording.calls)) == 3


def test_a_compaction_begins_again_with_its_summary() -> None:
    boundary = {"type": "system", "subtype": "compact_boundary", "uuid": "s", "parentUuid": None}
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", [{"type": "text", "text": "yes"}]),
        {**boundary, "logicalParentUuid": "a"},
        line("v", "s", "user", "summary of it", isCompactSummary=True),
        line("b", "v", "assistant", [{"type": "text", "text": "on"}]),
    )
    assert texts(recording) == [["do it", "yes"], ["summary of it", "on"]]


def test_a_line_whose_parent_is_missing_goes_on() -> None:
    recording = read(
        line("u", "not-here", "user", "do it"),
        line("a", "u", "assistant", [{"type": "text", "text": "yes"}]),
        line("v", "nor-this", "user", "more"),
        line("b", "v", "assistant", [{"type": "text", "text": "on"}]),
    )
    assert texts(recording) == [["do it", "yes", "more", "on"]]


def test_a_micro_compaction_names_what_was_cleared() -> None:
    boundary = {"type": "system", "subtype": "microcompact_boundary", "uuid": "s", "parentUuid": "r"}
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", use("c1")),
        line("r", "a", "user", result("c1")),
        {**boundary, "microcompactMetadata": {"compactedToolIds": ["c1"]}},
        line("b", "s", "assistant", [{"type": "text", "text": "on"}]),
    )
    assert [m.cleared for m in recording.messages] == [(), (), (), ("c1",)]


def test_side_chains_are_threads_after_the_main_one() -> None:
    recording = read(
        line("u", None, "user", "do it"),
        line("x", None, "user", "sub task", isSidechain=True),
        line("a", "u", "assistant", [{"type": "text", "text": "yes"}]),
        line("y", "x", "assistant", [{"type": "text", "text": "sub answer"}], isSidechain=True, model="small"),
    )
    assert texts(recording) == [["do it", "yes"], ["sub task", "sub answer"]]
    assert [thread.model for thread in recording.threads()] == ["claude-opus-4-6", "small"]


@pytest.mark.parametrize("mark", [{"isApiErrorMessage": True}, {"model": "<synthetic>"}])
def test_what_claude_code_said_itself_is_no_call(mark: dict[str, Any]) -> None:
    recording = read(
        line("u", None, "user", "do it"),
        line("e", "u", "assistant", [{"type": "text", "text": "API Error: 529"}], **mark),
        line("v", "e", "user", "again"),
        line("a", "v", "assistant", [{"type": "text", "text": "yes"}]),
    )
    assert texts(recording) == [["do it", "again", "yes"]]
    assert len(list(recording.calls)) == 1


def test_a_result_that_was_persisted_counts_as_the_model_saw_it() -> None:
    shown = "<persisted-output>\nFull output saved to: /nowhere/big.txt\nPreview:\nhead\n</persisted-output>"
    recording = read(
        line("u", None, "user", "do it"),
        line("a", "u", "assistant", use("c1")),
        line("r", "a", "user", result("c1", shown), toolUseResult={"persistedOutputPath": "/nowhere/big.txt"}),
        line("b", "r", "assistant", [{"type": "text", "text": "on"}]),
    )
    assert recording.messages[2].blocks[0].text == shown


def test_an_image_takes_what_an_image_takes() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 400_000}}
    recording = read(
        line("u", None, "user", [{"type": "text", "text": "look"}, image]),
        line("a", "u", "assistant", use("c1")),
        line("r", "a", "user", result("c1", [{"type": "text", "text": "shot"}, image])),
        line("b", "r", "assistant", [{"type": "text", "text": "on"}]),
    )
    question, _, shot = (
        b for m in recording.messages[:3] for b in m.blocks if b.media_tokens or b.kind is Kind.TOOL_INPUT
    )
    assert (question.text, shot.text) == ("", "shot")
    assert 1_000 < question.media_tokens == shot.media_tokens < 5_000
