"""Random sessions of an agent, by number: the same number gives the same session.

Sizes are such that every policy has something to do: results from nothing to thousands of tokens, in all forms that
tools return, parallel calls, ids that repeat or that no file could be named after, thinking, images, documents.
"""

import base64
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ctxfs.messages.messages import AssistantMessage, Block, Content, ToolMessage, UserMessage
from ctxfs.testing.strategies import HOSTILE_IDS, TOOL_NAMES, pdf, png

__all__ = ["Session", "Skill", "Step", "Turn", "session"]

_WORDS = (
    "alpha",
    "beta",
    "Error: no such file",
    "def f(x):",
    "{",
    "}",
    "naïve",
    "\u2028",
    "日本語",
    "0x1f",
    "\t",
    "ok",
)
_EMPTY: tuple[Content, ...] = ("", " \n\t", (), ({"type": "text", "text": ""},))
_IMAGE: Block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": png(9, 9)}}
_LINK: Block = {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
_PDF: Block = {
    "type": "document",
    "source": {"type": "base64", "media_type": "application/pdf", "data": pdf(2)},
    "title": "a.pdf",
}
_NOTE: Block = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "a note"}}
_SIZES = (0, 20, 20, 120, 120, 600, 600, 2_400, 6_000, 20_000)
"""Characters of a text, about; one is drawn."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill's prompt."""

    text: str


@dataclass(frozen=True, slots=True)
class Step:
    """A reply that calls tools, and its results in call order."""

    reply: AssistantMessage
    results: tuple[ToolMessage, ...]


@dataclass(frozen=True, slots=True)
class Turn:
    """What the user says, the steps that follow, and the final answer."""

    user: UserMessage | Skill
    steps: tuple[Step, ...]
    answer: AssistantMessage


@dataclass(frozen=True, slots=True)
class Session:
    """A session: its system prompt (None: none) and its turns."""

    number: int
    system: str | None
    turns: tuple[Turn, ...]


def session(number: int, *, sizes: Sequence[int] = _SIZES) -> Session:
    """The session ``number``; a text has about one of ``sizes`` characters. Every tenth is long."""
    max_turns, max_steps = (4, 6) if number % 10 == 0 else (2, 3)
    return _Maker(random.Random(number), sizes).session(number, max_turns, max_steps)


class _Maker:
    def __init__(self, draw: random.Random, sizes: Sequence[int]) -> None:
        self._draw = draw
        self._sizes = sizes
        self._calls = 0
        self._hostile = draw.random() < 0.2

    def session(self, number: int, max_turns: int, max_steps: int) -> Session:
        draw = self._draw
        system = self._visible(draw.choice((30, 400))) if draw.random() < 0.6 else None
        turns = tuple(self._turn(max_steps) for _ in range(draw.randint(1, max_turns)))
        return Session(number, system, turns)

    def _turn(self, max_steps: int) -> Turn:
        draw = self._draw
        steps = tuple(self._step() for _ in range(draw.randint(0, max_steps)))
        answer = AssistantMessage(({"type": "text", "text": self._visible(draw.choice((20, 300)))},))
        return Turn(self._user(), steps, answer)

    def _user(self) -> UserMessage | Skill:
        draw = self._draw
        kind = draw.random()
        if kind < 0.1:
            return Skill(self._visible(draw.choice(self._sizes)))
        if kind < 0.25:
            return UserMessage((*self._blocks(), {"type": "text", "text": self._visible(40)}))
        return UserMessage(self._visible(draw.choice(self._sizes)))

    def _step(self) -> Step:
        draw = self._draw
        said: list[Block] = []
        if draw.random() < 0.3:
            said.append(self._thinking())
        if draw.random() < 0.4:
            said.append({"type": "text", "text": self._text(draw.choice((0, 20, 200)))})
        results: list[ToolMessage] = []
        for _ in range(draw.choice((1, 1, 1, 2, 3, 5))):
            self._calls += 1
            call_id = draw.choice(HOSTILE_IDS) if self._hostile and draw.random() < 0.5 else f"call_{self._calls:03d}"
            name = draw.choice(TOOL_NAMES)
            said.append({"type": "tool_use", "id": call_id, "name": name, "input": self._arguments()})
            results.append(ToolMessage(call_id, name, self._content(), is_error=draw.random() < 0.15))
        return Step(AssistantMessage(tuple(said)), tuple(results))

    def _thinking(self) -> Block:
        data = base64.b64encode(self._draw.randbytes(12)).decode()
        if self._draw.random() < 0.3:
            return {"type": "redacted_thinking", "data": data}
        return {"type": "thinking", "thinking": self._text(60).encode("utf-8", "ignore").decode(), "signature": data}

    def _arguments(self) -> dict[str, object]:
        draw = self._draw
        arguments: dict[str, object] = {"path": draw.choice(("a.py", "b/ключ.py", "")), "limit": draw.randint(0, 9)}
        if draw.random() < 0.2:
            arguments["content"] = self._text(min(2_400, draw.choice(self._sizes)))
        return arguments

    def _content(self) -> Content:
        draw = self._draw
        kind = draw.random()
        if kind < 0.07:
            return draw.choice(_EMPTY)
        if kind < 0.2:
            return (*self._blocks(), {"type": "text", "text": self._text(draw.choice(self._sizes))})
        return self._text(draw.choice(self._sizes))

    def _blocks(self) -> list[Block]:
        return self._draw.choices((_IMAGE, _LINK, _PDF, _NOTE), k=self._draw.randint(0, 2))

    def _visible(self, size: int) -> str:
        return self._text(size).strip() or "go on"

    def _text(self, size: int) -> str:
        draw = self._draw
        if not size:
            return ""
        kind = draw.randrange(5)
        if kind == 0:
            rows = [{"id": draw.randrange(10**6), "name": draw.choice(_WORDS)} for _ in range(size // 30 + 1)]
            return json.dumps(rows, ensure_ascii=False)
        if kind == 1:
            return (draw.choice(_WORDS) + " ") * (size // 6 + 1)
        words = draw.choices(_WORDS, k=max(1, size // 60))
        line = " ".join(words) + (" \ud800" if draw.random() < 0.05 else "")
        lines = [f"{n}: {line}" for n in range(max(1, size // (len(line) + 4)))]
        return "\n".join(lines)
