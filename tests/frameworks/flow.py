"""The flow that every adapter plays, and what it shows.

Three large results come in. The first one is replaced, since one of that tool is kept. The model takes the path from
the placeholder, and reads the one line that it needs. Then a new process goes on with what the framework kept, and
sends the same bytes as before.

A framework's test gives an ``Agent``: the framework's own agent, with a model that asks ``next_move`` what to do.
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest

from ctxfs import ContextFileSystem
from ctxfs.context import History, HostCache
from ctxfs.eviction import Window
from ctxfs.messages import Usage
from ctxfs.messages.models.prices import TTL_SECONDS, CacheTtl
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


LONG_PROMPT = "Answer in one sentence, and name the line of the log that says so. " * 300
HELPER_PROMPT = "You read logs for another agent, and say what stands in them. " * 900
"""The prompt of a subagent: of another size, so that neither can be taken for the other."""
LIMIT_TOKENS = 30_000
SHARED: dict[str, Any] = {
    "window": Window(window_tokens=LIMIT_TOKENS + 1_000, reply_tokens=1_000),
    "pricing": None,
    "preview_above_tokens": None,
}
"""The settings of the history of an agent and its subagent: results leave for the window alone."""
SHARED_LOGS = 4
"""So many logs does each of them read: more than the window has room for, and the messages alone nearly fit."""


class Sent(NamedTuple):
    """What the log of ctxfs says of a request that a history rewrote.

    ``tokens``: those of its parts; ``replaced``: how many parts are; ``beside``: the tokens that are in no part.
    """

    branch: str
    tokens: int
    replaced: int
    beside: int
    host: HostCache


class Seen:
    """What a user sees of the requests in the log, at its level DEBUG."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG, "ctxfs.context")
        self._log = caplog

    @property
    def requests(self) -> list[Sent]:
        """All of them, in their order."""
        found = [_LINE.match(line) for line in self._log.messages]
        return [
            Sent(
                one["branch"],
                int(one["tokens"]),
                int(one["replaced"]),
                int(one["beside"]),
                HostCache(one["at_end"] == "True", _TTLS[one["ttl"]]),
            )
            for one in found
            if one is not None
        ]

    @property
    def last(self) -> Sent:
        """The newest one."""
        return self.requests[-1]

    def check_overhead(self, history: History) -> None:
        """The system prompt, and the tools of the history, are known to take a part of the window."""
        count = default_counter().count
        beside = count(LONG_PROMPT) + sum(count(tool.description) for tool in history.tools)
        assert beside <= self.last.beside < 1.5 * beside + 2_000

    def check_subagent(self, besides: Sequence[str]) -> None:
        """Requests of an agent and of its subagent were counted with what each sends, in branches of their own.

        So each of them stays inside the window, which all that was read would not: in the agent, in its subagent, and
        when the whole is asked again from the start. ``besides``: what each request held beside its messages, as text.
        """
        count = default_counter().count
        assert len(self.requests) == len(besides)
        branches: dict[bool, set[str]] = {True: set(), False: set()}
        for one, text in zip(self.requests, besides, strict=True):
            assert 0.85 * count(text) <= one.beside <= 1.15 * count(text) + 100, (one, count(text))
            branches[HELPER_PROMPT.strip() in text].add(one.branch)
        self.check_window()
        assert len(branches[False]) == 1, branches
        assert branches[True], branches
        assert not branches[True] & branches[False], branches

    def check_window(self) -> None:
        """No request is larger than the window; each agent that read all the logs had some of them replaced."""
        for branch in {one.branch for one in self.requests}:
            own = [one for one in self.requests if one.branch == branch]
            assert max(one.tokens + one.beside for one in own) <= LIMIT_TOKENS, (branch, own)
            assert len(own) <= 2 or max(one.replaced for one in own) > 0, (branch, own)


_LINE = re.compile(
    r"session .*, branch '(?P<branch>.*)': \d+ parts take (?P<tokens>\d+) tokens, (?P<replaced>\d+) of them replaced; "
    r"(?P<beside>\d+) tokens beside them; "
    r"cache breakpoints at the end: (?P<at_end>\w+), kept for: (?P<ttl>\w+)$"
)
_TTLS: dict[str, CacheTtl | None] = {"None": None, **{ttl: ttl for ttl in TTL_SECONDS}}


_BESIDE = ("system", "systemInstruction", "instructions", "tools")
"""What requests hold beside their messages, by the APIs' names for it."""


def beside_in(body: Mapping[str, Any]) -> str:
    """What a request to a server holds beside its messages, as text."""
    return json.dumps([body[name] for name in _BESIDE if name in body], separators=(",", ":"))


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


def shared_move(hand_over: Call, results: Sequence[str], *, helps: bool) -> Call | str:
    """What the scripted model does as an agent that hands over to a helper (``hand_over``), and as that helper.

    Each of them then reads all logs. ``results`` are those of its own calls.
    """
    if not helps and not results:
        return hand_over
    n = len(results) + helps
    return Call(TOOL, {"n": n}, f"{'helper' if helps else 'main'}_{n}") if n <= SHARED_LOGS else THANKS


def counted_in_window(*texts: str) -> int:
    """The tokens of a request, given as text; it must not be larger than the window of ``SHARED``."""
    tokens = default_counter().count("".join(texts))
    assert tokens <= LIMIT_TOKENS
    return tokens


def window_of_server() -> dict[str, Any]:
    """The settings of a server that refuses what is larger than the window of ``SHARED``."""
    return {"context_window_tokens": LIMIT_TOKENS, "counter": default_counter()}


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
