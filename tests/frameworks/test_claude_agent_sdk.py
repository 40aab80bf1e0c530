"""The adapter of the Claude Agent SDK, with the Claude Code that it brings, over loopback against a Messages API."""

import asyncio
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, InMemorySessionStore, ResultMessage, SessionStore, query

from ctxfs.adapters.claude_agent_sdk import CtxfsHooks
from ctxfs.context import Histories, History, Part
from ctxfs.errors import ConfigError
from ctxfs.messages import ToolCall
from ctxfs.messages.tokens import default_counter
from ctxfs.testing import MessagesServer
from frameworks import flow
from frameworks.conformance import AdapterConformance

READ = "mcp__ctxfs__context_grep"


def results_of(body: dict[str, Any]) -> list[str]:
    blocks = [b for message in body["messages"] if isinstance(message["content"], list) for b in message["content"]]
    contents = [block["content"] for block in blocks if block["type"] == "tool_result"]
    return [c if isinstance(c, str) else "".join(b.get("text", "") for b in c) for c in contents]


def turns(move: Callable[[Sequence[str]], Any]) -> list[Any]:
    """A script: ``move`` says what the model does after these results; requests beside the conversation get a word."""

    def turn(body: dict[str, Any]) -> Any:
        return move(results_of(body)) if any(tool.get("name") == "Bash" for tool in body.get("tools", ())) else "ok"

    return [turn] * 80


def cat(folder: Path, n: int) -> list[ToolCall]:
    return [ToolCall("Bash", {"command": f"cat {folder}/log{n}.txt", "description": "Read a log"})]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "work"
    made.mkdir()
    for n in (1, 2, 3):
        (made / f"log{n}.txt").write_text(flow.service_log(n))
    return made


async def ask(
    folder: Path, url: str, question: str, ctxfs: CtxfsHooks, *, hooks: bool = True, turns: int = 8, **options: Any
) -> Any:
    """What the SDK says at the end of a turn."""
    environment = {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "any",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "ENABLE_TOOL_SEARCH": "false",
        "MAX_THINKING_TOKENS": "0",
    }
    given = ClaudeAgentOptions(
        mcp_servers={**ctxfs.mcp_servers},
        hooks=ctxfs.hooks if hooks else {},
        allowed_tools=["Bash", *ctxfs.allowed_tools],
        cwd=folder,
        model="claude-sonnet-5-5",
        setting_sources=[],
        max_turns=turns,
        env=environment,
        **options,
    )
    found = None
    async for message in query(prompt=question, options=given):
        if isinstance(message, ResultMessage):
            found = message
    assert found is not None
    assert found.subtype == "success", found
    return found


def test_large_output_goes_to_a_file_before_the_model_sees_it(folder: Path, tmp_path: Path) -> None:
    def move(results: Sequence[str]) -> Any:
        if not results:
            return cat(folder, 1)
        if len(results) == 1:
            assert flow.NEEDLE not in results[0]
            ref = re.search(r'context_grep\(ref="([^"]+)"', results[0])
            assert ref is not None, results[0][:300]
            return [ToolCall(READ, {"ref": ref[1], "pattern": "WARNING"})]
        return f"The log says: {results[1]}"

    with MessagesServer(turns(move)) as server, History("t", root_path=tmp_path / "sessions") as history:
        said = asyncio.run(ask(folder, server.url, flow.QUESTION, CtxfsHooks(history)))
    assert server.refusals == []
    assert flow.NEEDLE in said.result


def test_old_results_are_replaced_when_a_conversation_is_resumed(folder: Path, tmp_path: Path) -> None:
    """Three results are sent as they are; resumed by another process, twice, the first two are placeholders."""

    def move(results: Sequence[str]) -> Any:
        if len(results) < 3:
            return cat(folder, len(results) + 1)
        if "[Content offloaded]" not in results[0]:
            return "I have read them."
        if len(results) == 3:
            assert path_in(results[0]).read_text() == flow.service_log(1)
            return [ToolCall(READ, {"ref": path_in(results[0]).stem, "pattern": "WARNING"})]
        return f"The log says: {results[3]}"

    store, sent = InMemorySessionStore(), []
    with MessagesServer(turns(move)) as server:
        session_id = None
        for question in ("Read them.", flow.QUESTION, flow.THANKS):
            with History("t", root_path=tmp_path / "sessions", keep_recent={"Bash": 1}) as history:
                ctxfs = CtxfsHooks(history)
                said = asyncio.run(
                    ask(
                        folder,
                        server.url,
                        question,
                        ctxfs,
                        hooks=False,
                        session_store=ctxfs.session_store(store),
                        resume=session_id,
                    )
                )
                session_id = said.session_id
                sent.append([body for body in server.requests if results_of(body)][-1])
    assert server.refusals == []
    assert flow.service_log(1) in results_of(sent[0])[0]
    assert flow.NEEDLE in said.result
    placeholders = [results_of(body)[:2] for body in sent[1:]]
    assert placeholders[0] == placeholders[1], "the same bytes in each later load"
    keys = [key for key in store._store if str(session_id) in key]  # noqa: SLF001 - what is stored
    assert any(flow.NEEDLE in json.dumps(entry) for key in keys for entry in store._store[key])  # noqa: SLF001


def path_in(placeholder: str) -> Path:
    found = re.search(r"^Path: (.+)$", placeholder, re.MULTILINE)
    assert found is not None, placeholder[:200]
    return Path(found[1])


def hook(history: History, **event: Any) -> Any:
    given = {"tool_name": "Bash", "tool_use_id": "c1", "tool_response": {"stdout": flow.service_log(1), "stderr": ""}}
    (matcher,) = CtxfsHooks(history).hooks["PostToolUse"]
    context: Any = {"signal": None}
    return asyncio.run(matcher.hooks[0]({**given, **event}, "c1", context))  # type: ignore[arg-type]


def test_the_hook_keeps_the_shape_of_a_response(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path) as history:
        new = hook(history)["hookSpecificOutput"]["updatedToolOutput"]
        assert new.keys() == {"stdout", "stderr"}
        assert new["stdout"].startswith("[Output stored in full: Bash, call c1]")
        assert hook(history, tool_response={"stdout": "small"}) == {}
        assert hook(history, tool_name=READ) == {}


def test_the_hook_says_what_could_not_be_stored(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path / "file" / "x") as history:
        (tmp_path / "file").write_text("no directory")
        assert "could not store" in hook(history)["systemMessage"]


def test_a_tool_says_what_is_wrong(tmp_path: Path) -> None:
    with History("t", root_path=tmp_path) as history:
        tools = {tool.name: tool for tool in CtxfsHooks(history).tools}
        run: Any = tools["context_grep"].handler
        wrong = asyncio.run(run({"pattern": 5}))
        unknown = asyncio.run(run({"ref": "nothing", "pattern": "x"}))
    assert wrong["is_error"]
    assert "pattern" in wrong["content"][0]["text"]
    assert "no item 'nothing' in this session" in unknown["content"][0]["text"]


def test_what_claude_code_sends_besides_a_transcript_is_counted(tmp_path: Path, seen: flow.Seen) -> None:
    """By what its first request was billed for: the transcript has neither its prompt nor its tools."""
    usage = {"input_tokens": 4, "cache_creation_input_tokens": 20_000, "cache_read_input_tokens": 3_000}
    question = {"role": "user", "content": "Go on. " * 1_000}
    later = {"role": "assistant", "content": "More.", "usage": {"input_tokens": 90_000}}
    messages = [question, {"role": "assistant", "content": "Done.", "usage": usage}, question, later, question]

    class Kept(InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            return [{"type": "said", "message": message} for message in messages]

    with History("t", root_path=tmp_path) as history:
        store = CtxfsHooks(history).session_store(Kept())
        asyncio.run(store.load({"project_key": "p", "session_id": "s"}))
    beside = 23_004 - default_counter().count("Go on. " * 1_000)
    assert beside - 100 < seen.last.beside <= beside


def test_the_transcript_of_a_subagent_is_a_branch_of_its_own(tmp_path: Path, seen: flow.Seen) -> None:
    """Each is loaded with what fits the window beside the prompt and the tools of its own; the last one is rewound."""
    billed = {"": 18_000, "subagents/agent-1": 9_000}
    logs = [4, 4, 3]

    class Kept(InMemorySessionStore):
        async def load(self, key: Any) -> Any:
            said: list[Any] = [{"role": "user", "content": "Go on."}]
            usage = {"input_tokens": billed[key.get("subpath") or ""]}
            for n in range(1, logs.pop(0) + 1):
                call = {"type": "tool_use", "id": f"call_{n}", "name": "Bash", "input": {"command": f"cat log{n}"}}
                result = {"type": "tool_result", "tool_use_id": f"call_{n}", "content": flow.service_log(n)}
                said += [
                    {"role": "assistant", "content": [call], "usage": usage},
                    {"role": "user", "content": [result]},
                ]
            return [{"type": "said", "message": one} for one in (*said, {"role": "assistant", "content": "Done."})]

    with History("t", root_path=tmp_path, **flow.SHARED) as history:
        store = CtxfsHooks(history).session_store(Kept())
        main: Any = {"project_key": "p", "session_id": "s"}
        helper: Any = {**main, "subpath": "subagents/agent-1"}
        for key in (main, helper, main):
            asyncio.run(store.load(key))
    assert [one.branch for one in seen.requests] == ["", "subagents/agent-1", ""]
    for one in seen.requests:
        assert billed[one.branch] - 100 < one.beside <= billed[one.branch]
        assert one.tokens + one.beside <= flow.LIMIT_TOKENS
        assert one.replaced


def test_a_store_has_what_the_store_behind_it_has(tmp_path: Path) -> None:
    class Least:
        async def append(self, key: Any, entries: Any) -> None: ...

        async def load(self, key: Any) -> Any:
            return None

    ctxfs, inherits = CtxfsHooks(History("t", root_path=tmp_path)), type("Inherits", (Least, SessionStore), {})
    full, least = ctxfs.session_store(InMemorySessionStore()), ctxfs.session_store(Least())  # type: ignore[arg-type]
    assert not hasattr(ctxfs.session_store(inherits()), "delete")
    assert hasattr(full, "list_subkeys")
    assert not hasattr(least, "list_subkeys")
    assert asyncio.run(least.load({"session_id": "s", "project_key": "p"})) is None


def test_what_is_no_history_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use History"):
        CtxfsHooks(Histories(tmp_path))  # type: ignore[arg-type]


class TestConformance(AdapterConformance):
    """Claude Code rewinds and forks a transcript by loading it: what is loaded has placeholders."""

    def message(self, part: Part) -> Any:
        content: Any = part.content
        role = "assistant" if part.kind in ("reply", "call") else "user"
        if part.stays:
            return {"role": "system", "content": content}
        if part.kind == "call":
            content = [{"type": "tool_use", "id": part.id, "name": part.tool, "input": content}]
        elif part.kind == "result":
            content = [{"type": "tool_result", "tool_use_id": part.id, "content": content}]
        return {"role": role, "content": content}

    def sent(self, history: History, messages: list[Any], branch: str) -> Any:
        class Kept(InMemorySessionStore):
            async def load(self, key: Any) -> Any:
                return [{"type": "said", "message": message} for message in messages]

        store = CtxfsHooks(history).session_store(Kept())
        loaded: Any = asyncio.run(store.load({"project_key": "p", "session_id": "s", "subpath": branch}))
        return [entry["message"] for entry in loaded]

    def content(self, part: Part, message: Any) -> Any:
        if part.kind in ("user", "reply") or part.stays:
            return message["content"]
        return message["content"][0]["input" if part.kind == "call" else "content"]
