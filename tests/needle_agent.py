"""A program and a model that look for one code in many logs: what the model needs may have been hidden from it."""

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ctxfs.messages import ToolCall
from ctxfs.testing import MessagesServer
from ctxfs.testing.scripted import Turn

MODEL = "claude-sonnet-5-5"
LOGS = 6

PROGRAM = (
    f"MODEL = {MODEL!r}"
    """
import json, os, sys, urllib.request

prompt = sys.argv[1]
names = ("read_log", "Read")
tools = [{"name": name, "description": name, "input_schema": {"type": "object"}} for name in names]
messages = [{"role": "user", "content": prompt}]

def result(call):
    if call["name"] == "Read":
        with open(call["input"]["file_path"]) as file:
            return file.read()
    day = call["input"]["day"]
    first = f"{prompt} has CODE-{len(prompt) * 7 + 1000}\\n" if day == 0 else ""
    return first + f"day {day}: request served\\n" * 700

while True:
    cache = [{"type": "text", "text": "You read logs.", "cache_control": {"type": "ephemeral"}}]
    body = {"model": MODEL, "max_tokens": 500, "system": cache, "messages": messages, "tools": tools}
    headers = {"x-api-key": "of the user", "content-type": "application/json"}
    url = os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    reply = json.load(urllib.request.urlopen(request))
    messages.append({"role": "assistant", "content": reply["content"]})
    calls = [block for block in reply["content"] if block["type"] == "tool_use"]
    if not calls:
        break
    made = [{"type": "tool_result", "tool_use_id": call["id"], "content": result(call)} for call in calls]
    messages.append({"role": "user", "content": made})
with open("answer.txt", "w") as file:
    file.write(reply["content"][-1]["text"])
"""
)


def results_in(body: Mapping[str, Any]) -> list[str]:
    """The text of each result in a request."""
    found = []
    for message in body["messages"]:
        if isinstance(message["content"], list):
            for block in message["content"]:
                if block["type"] == "tool_result":
                    content = block["content"]
                    found.append(content if isinstance(content, str) else json.dumps(content))
    return found


def looks(body: dict[str, Any]) -> Turn:
    """What a model does that knows only what it is shown: reads all logs, then answers, or opens what was stored."""
    results = results_in(body)
    asked = body["messages"][0]["content"]
    if len(results) < LOGS:
        return [ToolCall("read_log", {"day": len(results)}, id=f"call_{len(results)}")]
    if found := re.search(rf"{asked} has (CODE-\d+)", "\n".join(results)):
        return found[1]
    if (stored := re.search(r"Path: (\S+)", results[0])) and len(results) == LOGS:
        return [ToolCall("Read", {"file_path": stored[1]}, id=f"call_{len(results)}")]
    return "I do not know."


def loops(body: dict[str, Any]) -> Turn:
    """A model that asks for the same log for ever."""
    return [ToolCall("read_log", {"day": 0}, id=f"call_{len(results_in(body))}")]


def server(turn: Any, turns: int = 5_000) -> MessagesServer:
    """A server whose model does the same whenever it is asked."""
    return MessagesServer([turn] * turns, min_cache_tokens=0)


def written(folder: Path, tasks: int) -> Path:
    """A file of tasks."""
    path = folder / "tasks.jsonl"
    lines = []
    for number in range(tasks):
        prompt = f"server{'x' * number}"
        check = f"grep -qx CODE-{len(prompt) * 7 + 1000} answer.txt"
        lines.append(json.dumps({"id": f"task{number}", "prompt": prompt, "check": check, "timeout_s": 120}))
    path.write_text("\n".join(lines) + "\n")
    return path


def command(program: str = PROGRAM) -> list[str]:
    """How the program is run."""
    return [sys.executable, "-c", program, "{prompt}"]
