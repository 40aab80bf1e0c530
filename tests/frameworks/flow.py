"""The flow that every adapter plays, and what it shows.

Three large results come in. The first one is replaced, since one of that tool is kept. The model takes the path from
the placeholder, and reads the one line that it needs. Then a new process goes on with what the framework kept, and
sends the same bytes as before.

A framework's test gives an ``Agent``: the framework's own agent, with a model that asks ``next_move`` what to do.
"""

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from ctxfs import ContextFileSystem
from ctxfs.context import History, HostCache
from ctxfs.messages import Usage
from ctxfs.messages.tokens import default_counter
from ctxfs.tools import Materialize

TOOL = "service_log"
NEEDLE = "WARNING the mail queue of host-7f3a9c is 4711 long"
NEEDLE_LINE = 418
QUESTION = "How long is the mail queue?"
THANKS = "Thanks."
WELCOME = "You are welcome."
SETTINGS: dict[str, Any] = {"keep_recent": {TOOL: 1}, "preview_above_tokens": 20_000, "materialize": Materialize()}
"""The settings of the history: results are seen whole, the last one of the tool stays, all others are replaced.

Where results are replaced at the source, that is by stricter limits."""


def host_cache_seen(history: History) -> HostCache:
    """What the history takes its framework to ask of the prompt cache, in the branch that was used last."""
    *_, used = history._core._branches.values()  # noqa: SLF001 - a history so small shows it by no decision
    return used.view.host


LONG_PROMPT = "Answer in one sentence, and name the line of the log that says so. " * 300


def check_overhead(history: History) -> None:
    """The system prompt, and the tools of the history, are known to take a part of the window."""
    count = default_counter().count
    *_, used = history._core._branches.values()  # noqa: SLF001 - a history so small shows it by no decision
    beside = count(LONG_PROMPT) + sum(count(tool.description) for tool in history.tools)
    assert beside <= used.overhead_tokens < 1.5 * beside + 2_000


def service_log(n: int) -> str:
    """The tool's result number ``n``: 27,000 characters, and only the first one says how long the queue is."""
    lines = [f"service-{n}: request {i} of client {i * n * 31} served" for i in range(1, 601)]
    if n == 1:
        lines[NEEDLE_LINE - 1] = f"service-1: {NEEDLE}"
    return "\n".join(lines)


class Call(NamedTuple):
    """The scripted model calls a tool."""

    name: str
    arguments: dict[str, Any]
    id: str


def next_move(question: str, results: Sequence[str], *, logs: int = 3) -> Call | str:
    """What the scripted model does: calls a tool, or says a text.

    ``question`` is the last thing that the user said, ``results`` are the texts of all tool results in the request.
    """
    if question == THANKS:
        return WELCOME
    if len(results) < logs:
        n = len(results) + 1
        return Call(TOOL, {"n": n}, f"call_{n}")
    if len(results) == logs:
        return _reads(results[0], f"call_{logs + 1}")
    assert NEEDLE in results[-1], results[-1][:200]
    return f"The log says: {NEEDLE}"


def _reads(placeholder: str, call_id: str) -> Call:
    """How the model reads back what a placeholder stands for, by what this one says."""
    if path := re.search(r"^Path: (.+)$", placeholder, re.MULTILINE):
        return Call("Read", {"file_path": path[1], "offset": NEEDLE_LINE, "limit": 1}, call_id)
    ref = re.search(r'context_grep\(ref="([^"]+)"', placeholder)
    assert ref is not None, f"the first result is no placeholder: {placeholder[:100]!r}"
    return Call("context_grep", {"ref": ref[1], "pattern": "WARNING"}, call_id)


class Agent(Protocol):
    """A framework's agent around the scripted model. A new one stands for a new process: nothing else is shared."""

    @property
    def requests(self) -> list[list[str]]:
        """Each request that the model got: its messages as text, all that is sent of them but the system prompt."""

    def ask(self, question: str) -> str:
        """Run one turn of the user, and return what the model said at the end."""

    def kept(self) -> Any:
        """What the framework keeps of the conversation, as it would in a database."""

    def close(self) -> None:
        """Let go of everything, as a process does at its end."""


MakeAgent = Callable[[Path, Any], Agent]
"""Makes an agent whose sessions are under a directory, and that goes on with what was kept; None: it is new."""


@dataclass(frozen=True)
class Played:
    """What a flow showed: the requests before and after the restart, and what the framework kept in between."""

    before: list[list[str]]
    after: list[list[str]]
    kept: Any


def play(make: MakeAgent, root: Path, *, breaks: Sequence[int] = (2, 3)) -> Played:
    """Play the flow on the wire, and check what every adapter promises.

    ``breaks``: in which requests something is replaced, by their number from 0.
    """
    agent = make(root, None)
    answer = agent.ask(QUESTION)
    kept, before = agent.kept(), agent.requests
    agent.close()
    assert NEEDLE in answer
    assert len(before) == 5
    assert broken_prefixes(before) == list(breaks), (
        "a request changes what was sent before only where a result was replaced"
    )
    seen = "".join(before[3])
    assert seen.count("[Content offloaded]") == 2
    assert NEEDLE not in seen
    assert service_log(3).splitlines()[-1] in seen
    again = make(root, kept)
    assert again.ask(THANKS) == WELCOME
    after = again.requests
    again.close()
    assert after[0][: len(before[-1])] == before[-1], "the same bytes before the change, also after a restart"
    return Played(before, after, kept)


def play_at_source(make: MakeAgent, root: Path) -> Played:
    """Play the flow with results that are replaced where they are made: no request changes what was sent before."""
    agent = make(root, None)
    answer = agent.ask(QUESTION)
    kept, before = agent.kept(), agent.requests
    agent.close()
    assert NEEDLE in answer
    assert broken_prefixes(before) == []
    assert not any(service_log(n) in text for request in before for text in request for n in (1, 2, 3))
    again = make(root, kept)
    assert again.ask(THANKS) == WELCOME
    after = again.requests
    again.close()
    assert after[0][: len(before[-1])] == before[-1]
    return Played(before, after, kept)


def broken_prefixes(requests: Sequence[Sequence[str]]) -> list[int]:
    """The numbers of the requests, from 0, that do not begin with all that the one before them sent."""
    pairs = enumerate(pairwise(requests), 1)
    return [number for number, (old, new) in pairs if list(new[: len(old)]) != list(old)]


def tokens_sent(requests: Sequence[Sequence[str]]) -> int:
    """The tokens of all requests together, by the counter of ctxfs."""
    counter = default_counter()
    return sum(counter.count(text) for request in requests for text in request)


def bills(root: Path) -> list[Usage]:
    """The bill of each call that is recorded in the one session under ``root``."""
    (session,) = root.iterdir()

    async def read() -> list[Usage]:
        async with ContextFileSystem(session.name, root_path=root, read_only=True) as fs:
            return [call.usage for call in fs.state.calls]

    return asyncio.run(read())


def billed_tokens(root: Path) -> list[int]:
    """The prompt tokens of each of these calls."""
    return [usage.total_input_tokens for usage in bills(root)]


def page_of(framework: str) -> Path:
    """The page of the documentation that has the framework's section."""
    docs = Path(__file__).resolve().parents[2] / "docs"
    page = docs / "frameworks.md"
    return page if f"\n## {framework}\n" in page.read_text() else docs / "frameworks-without-adapter.md"


def blocks_of(page: Path, section: str) -> list[str]:
    """The Python of a section of a page."""
    text = page.read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
    return re.findall(r"(?ms)^```python\n(.*?)^```", text)


def run_page(page: Path, section: str) -> dict[str, Any]:
    """Run the Python of a section of a page, top to bottom, and return the names that it defined."""
    names: dict[str, Any] = {"__name__": "__page__"}
    for block in blocks_of(page, section):
        exec(compile(block, f"{page.name}: {section}", "exec"), names)
    return names
