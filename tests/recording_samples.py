"""One small session in each format, with its bill: a question, a call of a tool, its result and an answer.

The first call was billed 2,000 tokens of prompt (500 read from the cache) and 20 of output, the second one 2,100 (2,000
read) and 10, by ``MODEL``, at ``TIMES``.
"""

import json
import sqlite3
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

MODEL = "gpt-5.4"
TIMES = (1_770_000_010.0, 1_770_000_020.0)
QUESTION, PATH, RESULT, ANSWER = "what is in it?", "a.py", "print(1)", "a print"

ISO = [datetime.fromtimestamp(at, UTC).isoformat() for at in TIMES]
ANTHROPIC_USAGE = [
    {"input_tokens": 1_500, "cache_read_input_tokens": 500, "output_tokens": 20},
    {"input_tokens": 100, "cache_read_input_tokens": 2_000, "output_tokens": 10},
]
CHAT_USAGE = [
    {"prompt_tokens": 2_000, "prompt_tokens_details": {"cached_tokens": 500}, "completion_tokens": 20, "cost": 0.25},
    {"prompt_tokens": 2_100, "prompt_tokens_details": {"cached_tokens": 2_000}, "completion_tokens": 10, "cost": 0.5},
]
RESPONSES_USAGE = [
    {"input_tokens": 2_000, "input_tokens_details": {"cached_tokens": 500}, "output_tokens": 20},
    {"input_tokens": 2_100, "input_tokens_details": {"cached_tokens": 2_000}, "output_tokens": 10},
]


def chat_call(name: str = "Read") -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": name, "arguments": json.dumps({"path": PATH})}}


def anthropic(path: Path) -> None:
    use = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": PATH}}
    found = {"type": "tool_result", "tool_use_id": "c1", "content": RESULT}
    rows = [
        {"role": "user", "content": QUESTION},
        {"role": "assistant", "model": MODEL, "timestamp": ISO[0], "usage": ANTHROPIC_USAGE[0], "content": [use]},
        {"role": "user", "content": [found]},
        {"role": "assistant", "model": MODEL, "timestamp": ISO[1], "usage": ANTHROPIC_USAGE[1], "content": ANSWER},
    ]
    path.write_text(json.dumps(rows))


def openai_chat(path: Path) -> None:
    first = {"role": "assistant", "model": MODEL, "created_at": TIMES[0], "usage": CHAT_USAGE[0], "content": None}
    rows = [
        {"role": "user", "content": QUESTION},
        first | {"tool_calls": [chat_call()]},
        {"role": "tool", "tool_call_id": "c1", "content": RESULT},
        {"role": "assistant", "model": MODEL, "created_at": TIMES[1], "usage": CHAT_USAGE[1], "content": ANSWER},
    ]
    path.write_text(json.dumps({"messages": rows}))


def responses(path: Path) -> None:
    asked = {"type": "function_call", "call_id": "c1", "name": "Read", "arguments": json.dumps({"path": PATH})}
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ANSWER}]}
    thought: dict[str, Any] = {"type": "reasoning", "summary": []}
    rows: list[dict[str, Any]] = [
        {"role": "user", "content": QUESTION},
        {"object": "response", "output": [thought, asked], "created_at": TIMES[0], "usage": RESPONSES_USAGE[0]},
        {"type": "function_call_output", "call_id": "c1", "output": RESULT},
        {"object": "response", "output": [said], "created_at": TIMES[1], "usage": RESPONSES_USAGE[1]},
    ]
    path.write_text("\n".join(json.dumps(row | ({"model": MODEL} if "output" in row else {})) for row in rows))


def codex(path: Path) -> None:
    def item(n: int, **payload: Any) -> dict[str, Any]:
        return {"timestamp": ISO[n], "type": "response_item", "payload": payload}

    def billed(n: int) -> dict[str, Any]:
        last = [
            {"input_tokens": 2_000, "cached_input_tokens": 500, "output_tokens": 20},
            {"input_tokens": 2_100, "cached_input_tokens": 2_000, "output_tokens": 10},
        ][n]
        info = {"last_token_usage": last, "total_token_usage": {"total_tokens": 2_020 + 2_110 * n}}
        return {"timestamp": ISO[n], "type": "event_msg", "payload": {"type": "token_count", "info": info}}

    arguments = json.dumps({"path": PATH})
    rows = [
        {"type": "session_meta", "payload": {"id": "s", "cwd": "/p"}},
        {"type": "turn_context", "payload": {"model": MODEL}},
        item(0, type="message", role="user", content=[{"type": "input_text", "text": QUESTION}]),
        item(0, type="function_call", name="Read", arguments=arguments, call_id="c1"),
        item(0, type="function_call_output", call_id="c1", output=RESULT),
        billed(0),
        billed(0),  # a running total that is told again is no call
        item(1, type="message", role="assistant", content=[{"type": "output_text", "text": ANSWER}]),
        billed(1),
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


def claude_code(path: Path) -> None:
    def line(uuid: str, parent: str | None, n: int, message: dict[str, Any]) -> dict[str, Any]:
        told = {"type": message["role"], "uuid": uuid, "parentUuid": parent, "timestamp": ISO[n], "cwd": "/p"}
        return told | {"message": message}

    use = {"type": "tool_use", "id": "c1", "name": "Read", "input": {"path": PATH}}
    found = {"type": "tool_result", "tool_use_id": "c1", "content": RESULT}
    reply = {"role": "assistant", "model": MODEL}
    rows = [
        line("a", None, 0, {"role": "user", "content": QUESTION}),
        line("b", "a", 0, reply | {"id": "m1", "usage": ANTHROPIC_USAGE[0], "content": [use]}),
        line("c", "b", 0, {"role": "user", "content": [found]}),
        line(
            "d",
            "c",
            1,
            reply | {"id": "m2", "usage": ANTHROPIC_USAGE[1], "content": [{"type": "text", "text": ANSWER}]},
        ),
    ]
    path.write_text("\n".join(map(json.dumps, rows)))


def mini_swe(path: Path) -> None:
    def reply(n: int, content: str) -> dict[str, Any]:
        response = {"id": f"g{n}", "model": MODEL, "created": TIMES[n], "usage": CHAT_USAGE[n]}
        return {"role": "assistant", "content": content, "extra": {"response": response}}

    rows = [
        {"role": "user", "content": QUESTION},
        reply(0, f"```bash\n{PATH}\n```"),
        {"role": "user", "content": RESULT},
        reply(1, ANSWER),
    ]
    path.write_text(json.dumps({"trajectory_format": "mini-swe-agent-1", "info": {}, "messages": rows}))


def atif(path: Path) -> None:
    metrics = [
        {"prompt_tokens": 2_000, "cached_tokens": 500, "completion_tokens": 20, "cost_usd": 0.25},
        {"prompt_tokens": 2_100, "cached_tokens": 2_000, "completion_tokens": 10, "cost_usd": 0.5},
    ]
    steps = [
        {"step_id": 1, "source": "user", "message": QUESTION},
        {
            "step_id": 2,
            "source": "agent",
            "message": "",
            "timestamp": ISO[0],
            "metrics": metrics[0],
            "tool_calls": [{"tool_call_id": "c1", "function_name": "Read", "arguments": {"path": PATH}}],
            "observation": {"results": [{"content": RESULT}]},
        },
        {"step_id": 3, "source": "agent", "message": ANSWER, "timestamp": ISO[1], "metrics": metrics[1]},
    ]
    agent = {"name": "mine", "version": "1", "model_name": MODEL}
    path.write_text(json.dumps({"schema_version": "ATIF-v1.7", "agent": agent, "steps": steps}))


def _opencode() -> list[tuple[dict[str, Any], list[dict[str, Any]]]]:
    tokens = [
        {"input": 1_500, "output": 15, "reasoning": 5, "cache": {"read": 500, "write": 0}},
        {"input": 100, "output": 10, "reasoning": 0, "cache": {"read": 2_000, "write": 0}},
    ]

    def reply(n: int) -> dict[str, Any]:
        time = {"created": TIMES[n] * 1_000 - 500, "completed": TIMES[n] * 1_000}
        return {
            "id": f"m{n}",
            "role": "assistant",
            "modelID": MODEL,
            "tokens": tokens[n],
            "cost": 0.25 + 0.25 * n,
            "time": time,
        }

    state = {"status": "completed", "input": {"path": PATH}, "output": RESULT}
    return [
        ({"id": "m", "role": "user", "time": {"created": TIMES[0] * 1_000}}, [{"type": "text", "text": QUESTION}]),
        (reply(0), [{"type": "step-start"}, {"type": "tool", "tool": "Read", "callID": "c1", "state": state}]),
        (reply(1), [{"type": "text", "text": ANSWER}]),
    ]


def opencode_export(path: Path) -> None:
    messages = [{"info": info, "parts": parts} for info, parts in _opencode()]
    path.write_text(json.dumps({"info": {"id": "ses_1", "directory": "/p"}, "messages": messages}))


def opencode_database(path: Path) -> None:
    opened = sqlite3.connect(path)
    opened.executescript(
        "CREATE TABLE session (id TEXT, directory TEXT, time_created INTEGER);"
        "CREATE TABLE message (id TEXT, session_id TEXT, time_created INTEGER, data TEXT);"
        "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);"
    )
    opened.execute("INSERT INTO session VALUES ('ses_1', '/p', 1)")
    for n, (info, parts) in enumerate(_opencode()):
        opened.execute("INSERT INTO message VALUES (?, 'ses_1', ?, ?)", (info["id"], n, json.dumps(info)))
        for k, part in enumerate(parts):
            opened.execute("INSERT INTO part VALUES (?, ?, 'ses_1', ?)", (f"p{k}", info["id"], json.dumps(part)))
    opened.commit()
    opened.close()


def _inspect_sample() -> dict[str, Any]:
    usage = [
        {"input_tokens": 1_500, "input_tokens_cache_read": 500, "output_tokens": 20, "total_tokens": 2_020},
        {"input_tokens": 2_100, "input_tokens_cache_read": 2_000, "output_tokens": 10, "total_tokens": 2_110},
    ]  # the second one's cached tokens are part of its input

    def event(n: int) -> dict[str, Any]:
        choices = [{"message": {"id": f"m{n}", "role": "assistant", "content": ""}}]
        return {
            "event": "model",
            "completed": ISO[n],
            "output": {"model": MODEL, "choices": choices, "usage": usage[n]},
        }

    messages = [
        {"id": "q", "role": "user", "content": QUESTION},
        {
            "id": "m0",
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": "c1", "function": "Read", "arguments": {"path": PATH}}],
        },
        {"id": "t", "role": "tool", "tool_call_id": "c1", "content": "attachment://abc"},
        {"id": "m1", "role": "assistant", "content": [{"type": "text", "text": ANSWER}]},
    ]
    return {"id": 1, "epoch": 1, "messages": messages, "events": [event(0), event(1)], "attachments": {"abc": RESULT}}


def inspect_json(path: Path) -> None:
    path.write_text(json.dumps({"eval": {"task": "t"}, "samples": [_inspect_sample()]}))


def inspect_eval(path: Path) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", "{}")
        archive.writestr("samples/1_epoch_1.json", json.dumps(_inspect_sample()))


def pi(path: Path) -> None:
    def reply(n: int, content: list[dict[str, Any]], usage: dict[str, Any]) -> dict[str, Any]:
        usage = {"cacheWrite": 0, "cost": {"total": 0.25 + 0.25 * n}} | usage
        return {"role": "assistant", "model": MODEL, "timestamp": TIMES[n] * 1_000, "usage": usage, "content": content}

    use = {"type": "toolCall", "id": "c1", "name": "Read", "arguments": {"path": PATH}}
    found = {
        "role": "toolResult",
        "toolCallId": "c1",
        "toolName": "Read",
        "content": [{"type": "text", "text": RESULT}],
    }
    said = [
        {"role": "user", "content": [{"type": "text", "text": QUESTION}]},
        reply(0, [use], {"input": 1_500, "cacheRead": 500, "output": 20}),
        found,
        reply(1, [{"type": "text", "text": ANSWER}], {"input": 100, "cacheRead": 2_000, "output": 10}),
    ]
    rows: list[dict[str, Any]] = [{"type": "session", "version": 3, "id": "s", "cwd": "/p"}]
    for n, message in enumerate(said):
        parent = f"e{n - 1}" if n else None
        rows.append({"type": "message", "id": f"e{n}", "parentId": parent, "timestamp": ISO[0], "message": message})
    path.write_text("\n".join(map(json.dumps, rows)))


def _gemini_messages() -> list[dict[str, Any]]:
    tokens = [
        {"input": 2_000, "cached": 500, "output": 15, "thoughts": 5, "tool": 0, "total": 2_020},
        {"input": 2_100, "cached": 2_000, "output": 10, "thoughts": 0, "tool": 0, "total": 2_110},
    ]
    response = {"functionResponse": {"id": "c1", "name": "Read", "response": {"output": RESULT}}}
    use = {"id": "c1", "name": "Read", "args": {"path": PATH}, "result": [response], "status": "success"}
    first = {"id": "m0", "type": "gemini", "content": "", "model": MODEL, "timestamp": ISO[0], "tokens": tokens[0]}
    return [
        {"id": "q", "type": "user", "content": QUESTION, "timestamp": ISO[0]},
        first | {"toolCalls": [use]},
        {"id": "r", "type": "user", "content": [response], "timestamp": ISO[0]},
        {"id": "m1", "type": "gemini", "content": ANSWER, "model": MODEL, "timestamp": ISO[1], "tokens": tokens[1]},
    ]


_GEMINI_HEAD = {"sessionId": "s", "projectHash": "h", "startTime": ISO[0], "lastUpdated": ISO[1]}


def gemini_cli(path: Path) -> None:
    path.write_text(json.dumps(_GEMINI_HEAD | {"messages": _gemini_messages()}))


def gemini_cli_lines(path: Path) -> None:
    """As newer versions write it: the reply stands there before its results, and once more with them."""
    question, reply, *rest = _gemini_messages()
    early = reply | {"toolCalls": [], "tokens": None}
    taken_back = {"id": "gone", "type": "user", "content": "never mind", "timestamp": ISO[0]}
    rows = [question, early, taken_back, {"$rewindTo": "gone"}, {"$set": {"lastUpdated": ISO[1]}}, reply, *rest]
    path.write_text("\n".join(map(json.dumps, [_GEMINI_HEAD, *rows])))


def copilot_cli(path: Path) -> None:
    request = {"toolCallId": "c1", "name": "Read", "arguments": {"path": PATH}}
    events = [
        ("session.start", {"sessionId": "s", "selectedModel": MODEL, "context": {"cwd": "/p"}}, ISO[0]),
        ("user.message", {"content": QUESTION}, ISO[0]),
        ("assistant.message", {"messageId": "m0", "content": "", "toolRequests": [request]}, ISO[0]),
        ("assistant.usage", {"inputTokens": 2_000, "cacheReadTokens": 500, "outputTokens": 20}, ISO[0]),
        ("tool.execution_complete", {"toolCallId": "c1", "success": True, "result": {"content": RESULT}}, ISO[0]),
        ("assistant.message", {"messageId": "m1", "content": ANSWER, "toolRequests": []}, ISO[1]),
        ("assistant.usage", {"inputTokens": 2_100, "cacheReadTokens": 2_000, "outputTokens": 10}, ISO[1]),
        ("session.shutdown", {"modelMetrics": {MODEL: {"usage": {"inputTokens": 4_100}}}}, ISO[1]),
    ]
    rows = [{"type": kind, "data": data, "timestamp": at} for kind, data, at in events]
    path.write_text("\n".join(map(json.dumps, rows)))


def _openhands_events() -> list[dict[str, Any]]:
    def metadata(n: int, message: dict[str, Any]) -> dict[str, Any]:
        response = {"id": f"m{n}", "created": TIMES[n], "model": MODEL, "usage": CHAT_USAGE[n]}
        return {"tool_call_id": f"c{n + 1}", "model_response": response | {"choices": [{"message": message}]}}

    first = metadata(0, {"role": "assistant", "content": "", "tool_calls": [chat_call()]})
    last = metadata(1, {"role": "assistant", "content": ANSWER})
    return [
        {"source": "user", "action": "message", "args": {"content": QUESTION}, "timestamp": ISO[0]},
        {"source": "environment", "observation": "recall", "content": "", "timestamp": ISO[0]},
        {"source": "agent", "action": "read", "tool_call_metadata": first, "args": {"path": PATH}, "timestamp": ISO[0]},
        {"source": "agent", "observation": "read", "tool_call_metadata": first, "content": RESULT, "timestamp": ISO[0]},
        {"source": "agent", "action": "finish", "tool_call_metadata": last, "args": {}, "timestamp": ISO[1]},
    ]


def openhands(path: Path) -> None:
    path.write_text(json.dumps({"instance_id": "i", "history": _openhands_events()}))


def openhands_trajectory(path: Path) -> None:
    path.write_text(json.dumps(_openhands_events()))


SAMPLES: dict[str, Callable[[Path], None]] = {
    "Anthropic messages": anthropic,
    "OpenAI chat messages": openai_chat,
    "OpenAI Responses": responses,
    "Codex rollout": codex,
    "Claude Code": claude_code,
    "mini-swe-agent": mini_swe,
    "ATIF": atif,
    "opencode exports": opencode_export,
    "opencode's database": opencode_database,
    "Inspect logs": inspect_json,
    "Inspect .eval": inspect_eval,
    "OpenHands": openhands,
    "pi": pi,
    "Gemini CLI": gemini_cli,
    "Copilot CLI": copilot_cli,
}
"""By the names of the formats, in ``recordings.formats.table``."""
