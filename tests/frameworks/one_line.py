"""The flow with the transport in the client of the model, which answers the reading: no adapter is needed.

Three large results come in, and the first one is replaced. The model reads back the line that it needs inside of one
request, so the framework never sees that call. Then a new process goes on with what the framework kept.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ctxfs.adapters.transport import history_transport
from ctxfs.context import History
from ctxfs.messages import ToolCall
from ctxfs.testing import ChatCompletionsServer, MessagesServer, ResponsesServer
from frameworks import flow

MODEL = "gpt-5"


def _turn(results: list[str], question: str) -> Any:
    move = flow.next_move(question, results)
    return move if isinstance(move, str) else [ToolCall(move.name, move.arguments, id=move.id)]


def chat_turn(body: dict[str, Any]) -> Any:
    """The scripted model, as a turn of Chat Completions."""
    last = body["messages"][-1]
    return _turn(_results(body), text_of(last["content"]) if last["role"] == "user" else "")


def responses_turn(body: dict[str, Any]) -> Any:
    """The scripted model, as a turn of the Responses API."""
    last = body["input"][-1]
    return _turn(_results(body), text_of(last["content"]) if last.get("role") == "user" else "")


def messages_turn(body: dict[str, Any]) -> Any:
    """The scripted model, as a turn of the Messages API."""
    return _turn(_results(body), text_of(body["messages"][-1]["content"]))


def text_of(content: Any) -> str:
    """A content as text."""
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content or ())


Server = ChatCompletionsServer | MessagesServer | ResponsesServer


@contextmanager
def chat_server() -> Iterator[ChatCompletionsServer]:
    """Chat Completions that play the flow; nothing may be refused."""
    with ChatCompletionsServer([chat_turn] * 12) as server:
        yield server
    assert server.refusals == []


@contextmanager
def responses_server() -> Iterator[ResponsesServer]:
    """The Responses API that plays the flow; nothing may be refused."""
    with ResponsesServer([responses_turn] * 12) as server:
        yield server
    assert server.refusals == []


@contextmanager
def messages_server() -> Iterator[MessagesServer]:
    """The Messages API that plays the flow; nothing may be refused."""
    with MessagesServer([messages_turn] * 12) as server:
        yield server
    assert server.refusals == []


Ask = Callable[[str, str, Any, Any], tuple[str, Any]]
"""Runs one turn of the user: by the server's URL, the question, the transport, and what was kept (None: it is new).

Returns what the model said, and what the framework keeps.
"""


def play(ask: Ask, server: Server, root: Path, *, seen: Callable[[Any], str] = json.dumps) -> None:
    """Play the flow, and check it. ``seen``: all that the framework keeps, as text: no reading call may be in it."""
    with History("thread-1", root_path=root, model=MODEL, **flow.SETTINGS) as history:
        transport = history_transport(history, reading_turns=8)
        answer, kept = ask(server.url, flow.QUESTION, transport, None)
    assert flow.NEEDLE in answer
    assert transport.savings.problems == {}
    assert (transport.savings.calls, transport.savings.reading_turns) == (5, 1)
    before = [_shown(request) for request in server.requests]
    assert flow.broken_prefixes(before) == [2, 3], "only where a result was replaced"
    assert "".join(before[3]).count("[Content offloaded]") == 2
    assert flow.NEEDLE not in "".join(before[3])
    assert flow.NEEDLE in "".join(before[4])
    text = seen(kept)
    assert "context_grep" not in text
    assert "[Content offloaded]" not in text, "the framework's own history is as it was"
    assert len(flow.billed_tokens(root)) == 5
    with History("thread-1", root_path=root, model=MODEL, **flow.SETTINGS) as history:
        answer, _ = ask(server.url, flow.THANKS, history_transport(history, reading_turns=8), kept)
    assert answer == flow.WELCOME
    # Some frameworks change fields of their own in a later turn of the user; what was replaced must not change.
    replaced = _results(server.requests[3])
    assert _results(server.requests[-1])[: len(replaced)] == replaced


def _results(request: dict[str, Any]) -> list[str]:
    """The texts of all results in a request."""
    if "messages" not in request:
        return [text_of(item["output"]) for item in request["input"] if item.get("type") == "function_call_output"]
    results = []
    for message in request["messages"]:
        if message["role"] == "tool":
            results.append(text_of(message["content"]))
        elif isinstance(message.get("content"), list):  # a reply with calls may have none
            blocks = [block for block in message["content"] if block["type"] == "tool_result"]
            results += [text_of(block["content"]) for block in blocks]
    return results


def _shown(request: dict[str, Any]) -> list[str]:
    return [json.dumps(item, sort_keys=True) for item in request.get("messages") or request["input"]]
