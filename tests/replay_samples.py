"""Small recorded sessions, written by hand, and a strategy for more of them."""

import json
from collections.abc import Sequence
from itertools import product
from typing import Any

from hypothesis import strategies as st

from ctxfs.lab.recordings.recording import Block, Kind, Message, Recording, Role
from ctxfs.lab.replay.session import Session, prepare

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


def _phrases(most: int) -> st.SearchStrategy[str]:
    """Up to ``most`` of the words, in two draws: how many, and which. Drawing is most of what these tests cost."""
    by_count = [st.sampled_from([" ".join(words) for words in product(WORDS, repeat=n)]) for n in range(most + 1)]
    return st.sampled_from(range(most + 1)).flatmap(by_count.__getitem__)


_EXCHANGE = st.tuples(
    st.sampled_from(("Read", "Bash", "Grep", "Write")),
    st.sampled_from(("a.py", "b.py")),
    _phrases(3),
    st.integers(0, 20),
    _phrases(4),
    st.integers(0, 300),
)
_MOST_CALLS = 25
_EXCHANGES = [st.lists(_EXCHANGE, min_size=n, max_size=n) for n in range(_MOST_CALLS + 1)]


def _recording(exchanges: Sequence[tuple[str, str, str, int, str, int]]) -> Recording:
    messages = [text(Role.USER, "do it with alpha_function")]
    for number, (tool, path, words, times, said, lines) in enumerate(exchanges):
        arguments = {"path": path, "content": words * times}
        messages.append(call(number, tool, arguments, words))
        messages.append(result(number, tool, f"{said} line {number}\n" * lines, arguments))
    messages.append(text(Role.ASSISTANT, "done: " + " ".join(WORDS)))
    return Recording(name="drawn", messages=tuple(messages))


def recordings() -> st.SearchStrategy[Recording]:
    """Sessions of an agent that reads, writes and quotes a handful of words, with results from tiny to huge."""
    return st.integers(1, _MOST_CALLS).flatmap(_EXCHANGES.__getitem__).map(_recording)
