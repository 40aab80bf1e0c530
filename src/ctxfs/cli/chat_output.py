"""How ``ctxfs chat`` prints an agent's events: as text for people, or as a line of JSON for each event."""

import re
import sys
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, Protocol

from rich.console import Console

from ctxfs.agent.agent import Agent
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.cli.output import console, print_json
from ctxfs.errors import CtxfsError
from ctxfs.eviction.events import Compacted, Evicted, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.messages.base import Retrying, TextDelta
from ctxfs.session.content.visible import visible_text as for_terminal

_SHOWN_CHARS = 80
_WORD_START = re.compile(r"(?<!^)(?=[A-Z])")


class ChatOutput(Protocol):
    """How a chat is shown. ``prompt`` asks for a question on a terminal."""

    prompt: str

    def opened(self, agent: Agent) -> None:
        """Called when the session is open."""

    def show(self, event: AgentEvent) -> None:
        """Show an event of an answer."""

    def failed(self, error: CtxfsError) -> None:
        """Called when an answer failed; the next question is then read."""

    def stopped(self) -> None:
        """Called when the user stopped an answer; the next question is then read."""


class ReadableText:
    """Answers go to stdout, and notes about everything else to stderr; ``asks``: questions are read until EOF."""

    prompt = "> "

    def __init__(self, *, asks: bool) -> None:
        self._asks = asks
        self._out = console()
        self._notes = Console(stderr=True, markup=False, highlight=False)
        self._in_line = False

    def opened(self, agent: Agent) -> None:
        """Show the session, and how to end the chat."""
        if self._asks:
            self._notes.print(f"session {agent.session_id}; Ctrl-C stops an answer, Ctrl-D ends", style="dim")

    def show(self, event: AgentEvent) -> None:
        """Print text as it comes, and notes about other events that matter."""
        if isinstance(event, TextDelta):
            self._out.out(for_terminal(event.text), end="", highlight=False)
            self._in_line = not event.text.endswith("\n")
            return
        note = _note(event)
        if self._in_line and (note is not None or isinstance(event, Done)):
            self._out.print()
            self._in_line = False
        if note is not None:
            self._notes.print(note, style="dim")

    def failed(self, error: CtxfsError) -> None:
        """Say what went wrong."""
        self._in_line = False
        self._notes.print(for_terminal(f"ctxfs: {error}"), style="red")

    def stopped(self) -> None:
        """Say that the answer ends here."""
        self._in_line = False
        self._notes.print("\nstopped", style="dim")


class JsonLines:
    """Prints one JSON object per line to stdout as soon as something happens; its ``type`` says what."""

    prompt = ""

    def opened(self, agent: Agent) -> None:
        """Print the session."""
        self._print({"type": "session", "session_id": agent.session_id, "path": agent.context.fs.base})

    def show(self, event: AgentEvent) -> None:
        """Print an event."""
        self._print(event_as_dict(event))

    def failed(self, error: CtxfsError) -> None:
        """Print the error."""
        self._print({"type": "failed", "error": str(error)})

    def stopped(self) -> None:
        """Print that the answer ends here."""
        self._print({"type": "stopped"})

    def _print(self, line: Mapping[str, Any]) -> None:
        print_json(line)
        sys.stdout.flush()


def event_as_dict(event: AgentEvent) -> dict[str, Any]:
    """An event for JSON: its fields, and as ``type`` the name of its class in lower case, such as ``text_delta``."""
    kind = _WORD_START.sub("_", type(event).__name__).lower()
    return {"type": kind} | {field.name: _plain(getattr(event, field.name)) for field in fields(event)}


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    return str(value) if isinstance(value, CtxfsError) else value


def _note(event: AgentEvent) -> str | None:
    note: str | None = None
    match event:
        case ToolStarted(call):
            note = f"{call.name} {dict(call.arguments)}"[:_SHOWN_CHARS]
        case ToolEnded(call=call, whole=result) if result.is_error:
            note = f"{call.name} failed: {result.content}"[:_SHOWN_CHARS]
        case Evicted():
            note = f"{event.item_id} left the context: {event.tokens_before:,} → {event.tokens_after:,} tokens"
        case Compacted():
            steps = ", ".join(event.steps)
            note = f"the context was compacted ({steps}): {event.tokens_before:,} → {event.tokens_after:,} tokens"
        case SummaryFailed():
            note = f"no summary: {event.reason if event.error is None else event.error}"
        case OffloadFailed() | RecordFailed():
            note = str(event.error)
        case Retrying():
            note = f"trying again in {event.delay_s:.0f} s: {event.reason}"
        case UsageReported():
            note = f"the context holds {event.context_tokens:,} tokens"
    return None if note is None else for_terminal(f"· {note}")
