"""Small recorded sessions, written by hand, and a strategy for more of them."""

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ctxfs.recordings.recording import Block, Kind, Message, Recording, Role
from ctxfs.replay.session import Session, prepare

WORDS = ("alpha_function", "beta_constant", "gamma.module.name", "src/delta/file.py", "epsilon-option-x", "zeta", "eta")


def chars(text: str) -> int:
    """Count one token a character, so that tests can add up."""
    return len(text)


def text(role: Role, words: str) -> Message:
    return Message(role, (Block(kind=Kind.TEXT, text=words),))


def call(number: int, tool: str, arguments: dict[str, Any], words: str = "") -> Message:
    said = (Block(kind=Kind.TEXT, text=words),) if words else ()
    strings = "\n".join(str(v) for v in arguments.values())
    counted = json.dumps(arguments, separators=(",", ":"))
    made = Block(
        kind=Kind.TOOL_INPUT, text=strings, counted=counted, tool=tool, call_id=f"c{number}", arguments=arguments
    )
    return Message(Role.ASSISTANT, (*said, made))


def result(number: int, tool: str, content: str, arguments: dict[str, Any] | None = None) -> Message:
    block = Block(kind=Kind.TOOL_RESULT, text=content, tool=tool, call_id=f"c{number}", arguments=arguments or {})
    return Message(Role.USER, (block,))


def session(messages: Sequence[Message], name: str = "sample") -> Session:
    return prepare(Recording(name=name, messages=tuple(messages)), chars)


@st.composite
def recordings(draw: st.DrawFn, max_calls: int = 25) -> Recording:
    """Sessions of an agent that reads, writes and quotes a handful of words, with results from tiny to huge."""
    messages = [text(Role.USER, "do it with alpha_function")]
    for number in range(draw(st.integers(1, max_calls))):
        tool = draw(st.sampled_from(("Read", "Bash", "Grep", "Write")))
        path = draw(st.sampled_from(("a.py", "b.py")))
        words = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=3)))
        arguments = {"path": path, "content": words * draw(st.integers(0, 20))}
        messages.append(call(number, tool, arguments, words))
        line = " ".join(draw(st.lists(st.sampled_from(WORDS), max_size=4))) + f" line {number}\n"
        messages.append(result(number, tool, line * draw(st.integers(0, 300)), arguments))
    messages.append(text(Role.ASSISTANT, "done: " + " ".join(WORDS)))
    return Recording(name="drawn", messages=tuple(messages))
