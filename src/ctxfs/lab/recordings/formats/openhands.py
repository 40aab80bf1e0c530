"""OpenHands: ``output.jsonl`` of an evaluation (a run a line), and a trajectory (a list of events).

An action of the agent carries the whole response of the model that asked for it; an observation follows each action.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, arguments, model_call, plain, seconds, text
from ctxfs.lab.recordings.recording import Block, ModelCall, Recording, Role

_Event = Mapping[str, Any]


def is_openhands(doc: Document) -> bool:
    """Whether its rows are events of actions and observations, or runs that hold them."""
    history = doc.rows[0].get("history")
    events = history if isinstance(history, list) else doc.rows
    return any("source" in e and ("action" in e or "observation" in e) for e in events if isinstance(e, Mapping))


def read(doc: Document) -> Iterable[Recording]:
    """The runs of an evaluation, or the one of a trajectory."""
    if "history" not in doc.rows[0]:
        yield _run(doc.name, doc.rows)
        return
    for row in doc.rows:
        yield _run(str(row.get("instance_id") or doc.name), row["history"])


def _run(name: str, events: Sequence[_Event]) -> Recording:
    builder = Builder()
    replied: object = None  # the id of the response whose actions are being read: parallel calls share one
    for event in events:
        at = seconds(event.get("timestamp"))
        metadata = event.get("tool_call_metadata") or {}
        response = metadata.get("model_response") or {}
        if event.get("action") == "system":
            builder.add(Role.SYSTEM, [text(_content(event))], at=at)
        elif event.get("action") == "message" and event.get("source") == "user":
            builder.add(Role.USER, [text(_content(event))], at=at)
        elif "action" in event and response and response.get("id") != replied:
            replied = response.get("id")
            builder.add(Role.ASSISTANT, _blocks(response, builder), at=at, call=_billed(response))
        elif event.get("action") == "message" and event.get("source") == "agent":
            builder.add(Role.ASSISTANT, [text(_content(event))], at=at)
        elif "observation" in event and metadata:
            builder.add(
                Role.USER, [builder.result(metadata["tool_call_id"], event.get("content"))], group="results", at=at
            )
        elif event.get("observation") == "error":
            builder.add(Role.USER, [text(plain(event.get("content")))], at=at)
    return builder.finish(name=name)


def _content(event: _Event) -> str:
    return plain((event.get("args") or {}).get("content") or event.get("message"))


def _blocks(response: Mapping[str, Any], builder: Builder) -> Iterable[Block]:
    message = response["choices"][0]["message"]
    yield text(plain(message.get("content")))
    for call in message.get("tool_calls") or []:
        yield builder.call(call["id"], call["function"]["name"], arguments(call["function"].get("arguments")))


def _billed(response: Mapping[str, Any]) -> ModelCall:
    return model_call(
        response.get("usage") or {},
        reply_id=response.get("id"),
        model=response.get("model"),
        at=response.get("created"),
    )
