"""mini-swe-agent: ``.traj.json``, chat messages with each response beside them.

Its first format has no calls of tools: a command stands in a reply's only block of shell code, and the next message is
what it printed.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ctxfs.lab.recordings.formats.builder import Builder, Document, model_call, plain, seconds, text
from ctxfs.lab.recordings.formats.openai_chat import add_message
from ctxfs.lab.recordings.recording import ModelCall, Recording, Role

_COMMAND = re.compile(r"```(?:bash|sh|mswea_bash_command)\s*\n(.*?)\n```", re.DOTALL)


def is_mini_swe(doc: Document) -> bool:
    """Whether the file names the format."""
    return str(doc.head.get("trajectory_format", "")).startswith("mini-swe-agent")


def read(doc: Document) -> Iterable[Recording]:
    """The one run of the file."""
    info = doc.head.get("info") or {}
    model = ((info.get("config") or {}).get("model") or {}).get("model_name") or ""
    builder = Builder()
    asked = ""  # the id of the command that waits for its output
    for number, row in enumerate(doc.rows):
        call = _billed(row)
        at = call.at if call is not None else seconds((row.get("extra") or {}).get("timestamp"))
        command = _COMMAND.search(plain(row.get("content"))) if row.get("role") == "assistant" else None
        if command is not None and not row.get("tool_calls"):
            said, asked = plain(row["content"]), f"call_{number}"
            before = [text(said[: command.start()] + said[command.end() :])]
            made = builder.call(asked, "bash", {"command": command[1]})
            builder.add(Role.ASSISTANT, [*before, made], at=at, call=call)
        elif asked and row.get("role") == "user":
            builder.add(Role.USER, [builder.result(asked, plain(row["content"]))], at=at)
            asked = ""
        elif row.get("role") != "exit":
            add_message(row, builder, at=at, call=call)
    yield builder.finish(name=str(doc.head.get("instance_id") or doc.name), model=str(model))


def _billed(row: Mapping[str, Any]) -> ModelCall | None:
    extra = row.get("extra") or {}
    response = extra.get("response")
    if row.get("role") != "assistant" or not isinstance(response, Mapping):
        return None
    usage = response.get("usage") or {}
    return model_call(
        usage,
        reply_id=response.get("id"),
        model=response.get("model"),
        at=response.get("created"),
        usd=usage.get("cost", extra.get("cost")),
    )
