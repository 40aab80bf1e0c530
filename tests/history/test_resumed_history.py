"""A history that is resumed at each call plans as one that goes on: its decisions say what the planner knew."""

import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from ctxfs.context.history.history import History
from ctxfs.context.history.parts import Edits, Part
from ctxfs.eviction.economics.parameters import EvictionParameters
from ctxfs.eviction.events import ContextEvent, Evicted
from ctxfs.messages import CharsCounter, Usage
from ctxfs.testing.pricing import pricing_on
from ctxfs.tools import Materialize

CALLS = 30


@dataclass
class Server:
    """One conversation, whose history is opened for each request, or once. It has what it was shown and sent."""

    root: Path
    resumes: bool
    settings: dict[str, Any] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=lambda: [Part("user", "go " * 20_000, "u")])
    evicted: list[Evicted] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.history = self.opened()

    def opened(self) -> History:
        pricing = pricing_on(lambda: 0.0, parameters=EvictionParameters())  # the cache never expires
        settings = {"pricing": pricing, "digest_tokens": 0, "window": None, **self.settings}
        return History("s", root_path=self.root, counter=CharsCounter(), on_event=self.told, **settings)

    def told(self, event: ContextEvent) -> None:
        if isinstance(event, Evicted):
            self.evicted.append(event)

    def call(self, number: int, draw: random.Random) -> Edits:
        """Send what is there, and add a reply with its result: of a command, a file, a patch, or read back."""
        if self.resumes:
            self.history.close()
            self.history = self.opened()
        edits = self.history.rewrite(self.parts)
        self.sent.append(f"{sorted(map(str, edits))} {edits.tokens}")
        missed = draw.random() < 0.1
        read = 0 if missed else edits.tokens
        usage = Usage(cache_read_input_tokens=read, cache_creation_input_tokens=edits.tokens - read)
        self.history.replied(usage, None)
        lines = draw.choice([20, 200, 900, 2_000])
        tool = draw.choice(["Read", "Bash", "Write"])
        text = f"{number} {draw.random()} and more\n" * lines
        arguments: dict[str, Any] = {"n": number}
        if draw.random() < 0.1 and self.evicted:
            path = self.evicted[draw.randrange(len(self.evicted))].path
            tool = "Read"
            text = str(self.history.run_tool("Read", {"file_path": path}).content)
        elif tool == "Write":
            arguments["text"] = text
            text = "ok"
        call_id = f"c{number}"
        self.parts.append(Part("call", arguments, ("c", number), call_id, tool))
        if "materialize" in self.settings:
            text = str(self.history.arrive(text, tool=tool, call_id=call_id))
        self.parts.append(Part("result", text, ("o", number), call_id, tool))
        return edits

    def keep_what_is_sent(self, edits: Edits) -> None:
        """As a framework does that stores its requests."""
        self.parts = [part._replace(content=edits.get(part.place, part.content)) for part in self.parts]


@pytest.mark.parametrize(
    ("seed", "keeps", "settings"),
    [
        (0, False, {}),
        (1, True, {}),
        (3, True, {"materialize": Materialize()}),
    ],
)
def test_it_plans_as_one_that_goes_on(tmp_path: Path, seed: int, keeps: bool, settings: dict[str, Any]) -> None:
    servers = [Server(tmp_path / name, resumes, settings) for name, resumes in (("one", False), ("two", True))]
    for server in servers:
        draw = random.Random(seed)
        for number in range(CALLS):
            edits = server.call(number, draw)
            if keeps and number % 7 == 0:
                server.keep_what_is_sent(edits)
        economy = server.history._core._branches[""].view.transcript.economy  # noqa: SLF001 - no figure shows it
        assert economy is not None
        assert economy.ledger.total_tokens == edits.tokens
        server.history.close()
    going_on, again = servers
    for number, (one, other) in enumerate(zip(going_on.sent, again.sent, strict=True)):
        assert one == other, f"call {number}"
    assert len(going_on.evicted) >= 5
