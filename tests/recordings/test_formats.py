"""Every format that users have lying around, and files that are none of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from ctxfs.errors import ReplayFormatError
from ctxfs.lab.recordings.formats import table
from ctxfs.lab.recordings.recording import Kind, Recording, Role

CALL = {"type": "tool_use", "id": "t1", "name": "Read", "input": {"path": "a.py", "edits": [{"new": "one\ntwo"}]}}
RESULT = {"type": "tool_result", "tool_use_id": "t1", "content": [{"type": "text", "text": "print(1)"}]}
ANTHROPIC: list[dict[str, Any]] = [
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "I read"}, CALL],
    },
    {"role": "user", "content": [RESULT]},
    {"role": "assistant", "content": "done"},
]
CLAUDE_CODE: list[dict[str, Any]] = [
    {"type": "summary", "summary": "reading"},
    {"type": "user", "uuid": "u1", "message": {"role": "user", "content": "hello"}},
    {
        "type": "assistant",
        "message": {"id": "m1", "role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
    },
    {
        "type": "assistant",
        "message": {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": "I read"}]},
    },
    {"type": "assistant", "message": {"id": "m1", "role": "assistant", "content": [CALL]}},
    {"type": "assistant", "isSidechain": True, "message": {"id": "m9", "role": "assistant", "content": "other"}},
    {"type": "user", "uuid": "u2", "message": {"role": "user", "content": [RESULT]}},
    {"type": "assistant", "message": {"id": "m2", "role": "assistant", "content": [{"type": "text", "text": "done"}]}},
]
OPENAI: list[dict[str, Any]] = [
    {"role": "user", "content": "hello"},
    {
        "role": "assistant",
        "content": "I read",
        "tool_calls": [
            {"id": "t1", "type": "function", "function": {"name": "Read", "arguments": json.dumps(CALL["input"])}}
        ],
    },
    {"role": "tool", "tool_call_id": "t1", "content": "print(1)"},
    {"role": "assistant", "content": "done"},
]
CODEX: list[dict[str, Any]] = [
    {"type": "session_meta", "payload": {"id": "s"}},
    {"type": "event_msg", "payload": {"type": "token_count"}},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I read"}]},
    {"type": "function_call", "name": "Read", "arguments": json.dumps(CALL["input"]), "call_id": "t1"},
    {"type": "function_call_output", "call_id": "t1", "output": "print(1)"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]},
]


def parse(text: str, *, name: str) -> Recording:
    (recording,) = table.parse(text, name=name)
    return recording


def load(path: Path) -> Recording:
    (recording,) = table.load(path)
    return recording


def lines(rows: list[dict[str, Any]]) -> str:
    return "\n".join(json.dumps(row) for row in rows) + "\n"


def wrapped(row: dict[str, Any]) -> dict[str, Any]:
    return row if "payload" in row else {"type": "response_item", "payload": row}


FILES = {
    "messages in an object": json.dumps({"id": "mine", "model": "m", "messages": ANTHROPIC}),
    "a list of messages": json.dumps(ANTHROPIC),
    "messages by line": lines(ANTHROPIC),
    "Claude Code": lines(CLAUDE_CODE),
    "OpenAI": json.dumps({"messages": OPENAI}),
    "OpenAI by line": lines(OPENAI),
    "Codex": lines([wrapped(row) for row in CODEX]),
    "Codex, plain items": lines(CODEX),
}


def said(recording: Recording) -> list[tuple[Role, list[str]]]:
    """What was said, without thinking, which not every format has."""
    return [(m.role, [b.text for b in m.blocks if b.kind is not Kind.THINKING]) for m in recording.messages]


@pytest.mark.parametrize("name", FILES)
def test_every_format_reads_the_same(name: str) -> None:
    recording, *_ = parse(FILES[name], name="file").threads()
    assert said(recording) == [
        (Role.USER, ["hello"]),
        (Role.ASSISTANT, ["I read", "a.py\none\ntwo"]),
        (Role.USER, ["print(1)"]),
        (Role.ASSISTANT, ["done"]),
    ]
    answer = recording.messages[2].blocks[0]
    assert (answer.kind, answer.tool, answer.arguments["path"]) == (Kind.TOOL_RESULT, "Read", "a.py")


def test_the_name_and_the_model_are_the_files_own(tmp_path: Path) -> None:
    path = tmp_path / "session.json"
    path.write_text(FILES["messages in an object"])
    assert (load(path).name, load(path).model) == ("mine", "m")
    path.write_text(FILES["Codex"])
    assert (load(path).name, load(path).model) == ("session", "")


def test_a_system_prompt_comes_first() -> None:
    recording = parse(json.dumps({"system": [{"type": "text", "text": "rules"}], "messages": ANTHROPIC}), name="x")
    assert said(recording)[0] == (Role.SYSTEM, ["rules"])


def test_a_legacy_function_call_is_a_call_like_any_other() -> None:
    rows = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "I read", "function_call": {"name": "Read", "arguments": '{"path": "a.py"}'}},
        {"role": "function", "name": "Read", "content": "print(1)"},
        {"role": "assistant", "content": "done"},
    ]
    call, result = [b for m in parse(json.dumps(rows), name="x").messages for b in m.blocks if b.tool]
    assert (call.tool, call.arguments) == ("Read", {"path": "a.py"})
    assert (result.tool, result.arguments, result.text) == ("Read", {"path": "a.py"}, "print(1)")


def test_parallel_results_stand_in_one_message() -> None:
    calls = [{"id": i, "function": {"name": "ls", "arguments": "{}"}} for i in ("a", "b")]
    rows = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "2"},
    ]
    assert said(parse(json.dumps(rows), name="x"))[-1] == (Role.USER, ["1", "2"])


@pytest.mark.parametrize(
    "content",
    [
        "",
        "plain words",
        "42",
        "[]",
        '{"messages": "none"}',
        '{"some": "object"}',
        '[{"role": "robot", "content": "?"}, {"role": "assistant", "content": "!"}]',
        '[{"role": "assistant", "content": [{"text": "no type"}]}]',
        '{"a": 1}\n{"b": 2}',
        "[" * 100_000,
    ],
)
def test_anything_else_says_what_was_expected(content: str, tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(content)
    with pytest.raises(ReplayFormatError, match=r"Anthropic messages.* Codex rollout") as caught:
        load(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_message_alone_is_no_reply(role: str) -> None:
    assert not parse(json.dumps([{"role": role, "content": "to nothing"}]), name="x").has_reply


@pytest.mark.parametrize(
    "block",
    [
        {"type": "text", "text": 5},
        {"type": "thinking", "thinking": None},
        {"type": "tool_use", "id": ["t"], "name": "Read", "input": {}},
        {"type": "tool_use", "id": "t", "name": {}, "input": {}},
        {"type": "tool_result", "tool_use_id": 7, "content": "x"},
    ],
)
def test_what_should_be_text_is_checked(block: dict[str, Any]) -> None:
    rows = [{"role": "user", "content": "x"}, {"role": "assistant", "content": [block]}]
    with pytest.raises(ReplayFormatError, match="where text is expected"):
        parse(json.dumps(rows), name="x")


def test_a_cut_line_is_named_by_its_number() -> None:
    text = lines(CLAUDE_CODE)
    with pytest.raises(ReplayFormatError, match=f"the recording: line {len(CLAUDE_CODE)} .* cut or broken"):
        parse(text[:-10], name="x")


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_text(json.dumps(ANTHROPIC), encoding="utf-8-sig")
    assert said(load(path)) == said(parse(json.dumps(ANTHROPIC), name="x"))


@pytest.mark.parametrize(
    "row", [{"type": "summary", "summary": "reading", "leafUuid": "x"}, {"type": "file-history-snapshot"}]
)
def test_a_file_in_which_nothing_was_asked_is_known_by_its_lines(row: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "file.jsonl"
    path.write_text(lines([row, row]))
    assert not load(path).has_reply
    assert load(path).threads() == ()


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ReplayFormatError, match="not UTF-8"):
        load(path)
