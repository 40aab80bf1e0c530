"""``ctxfs chat``: talk to a real model about a directory; needs a key.

An agent's events are printed as text for people, or as a line of JSON each.
"""

import re
import sys
import threading
from collections.abc import Mapping
from contextlib import aclosing
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import anyio
import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.cli.explore import exploration_tools
from ctxfs.cli.options import Root, StoreUrl, known_sessions
from ctxfs.cli.output import console, print_json
from ctxfs.cli.session import find_session, sessions_at, stores_of
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.eviction.events import Compacted, Evicted, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.messages.base import ChatModel, Retrying, TextDelta
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


_SYSTEM_PROMPT = (
    "You help with the directory that the user is in. Look with list_dir, read_file and search before you answer. "
    "Old results leave your context for files: their placeholders say what was there, and Read shows them again."
)
_OPENAI_PREFIXES = ("gpt-", "o1", "o3", "o4", "chatgpt-")


def chat(
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Answer this prompt and exit.")] = None,
    *,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="The model; gpt-* is OpenAI's, others Anthropic's.")
    ] = None,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="An OpenAI-compatible server; needs --model.")
    ] = None,
    directory: Annotated[
        Path, typer.Option("--dir", metavar="DIR", help="The directory that the model may read.")
    ] = Path(),
    session: Annotated[
        str | None,
        typer.Option(
            "--session",
            metavar="SESSION",
            autocompletion=known_sessions,
            help="Continue this session ('last': the newest).",
        ),
    ] = None,
    root: Root = None,
    store: StoreUrl = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object per line: the session, then each event as it comes.")
    ] = False,
) -> None:
    """Talk to a model that looks through a directory.

    It can list, read and search it. Needs ANTHROPIC_API_KEY, or OPENAI_API_KEY.
    """
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory")
    place = sessions_at(root, store, may_be_new=True)
    config = AgentConfig(
        tools=exploration_tools(directory),
        system_prompt=_SYSTEM_PROMPT,
        offload_root_path=stores_of(place),
        session_id=None if session is None else anyio.run(find_session, place, session),
    )
    agent = Agent(_model(model, base_url), config)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(agent):
        _chat(portal, agent, prompt, JsonLines() if as_json else ReadableText(asks=prompt is None))


def _model(name: str | None, base_url: str | None) -> ChatModel:
    """The model of that name. The SDKs are slow to import, and only one is needed."""
    if base_url is None and (name is None or not name.startswith(_OPENAI_PREFIXES)):
        from ctxfs.agent.llm.anthropic import ChatAnthropic  # noqa: PLC0415

        return ChatAnthropic() if name is None else ChatAnthropic(model=name)
    if name is None:
        raise ConfigError("--base-url needs --model: the name that the server knows the model by")
    from ctxfs.agent.llm.openai import ChatOpenAI  # noqa: PLC0415

    return ChatOpenAI(model=name, base_url=base_url)


def _chat(portal: BlockingPortal, agent: Agent, prompt: str | None, output: ChatOutput) -> None:
    """Ask in this thread, the main one, where Ctrl-C arrives; the agent runs in the portal's thread."""
    output.opened(agent)
    if prompt is not None:
        _answer(portal, agent, prompt, output)
        return
    while (line := _ask(output.prompt)) is not None:
        if not line.strip():
            continue
        try:
            _answer(portal, agent, line, output)
        except CtxfsError as error:  # the transcript is valid, and the next question continues it
            output.failed(error)
        except KeyboardInterrupt:  # the same holds here
            output.stopped()


def _ask(prompt: str) -> str | None:
    try:
        return input(prompt if sys.stdin.isatty() and sys.stdout.isatty() else "")
    except EOFError:
        return None


def _answer(portal: BlockingPortal, agent: Agent, question: str, output: ChatOutput) -> None:
    """Answer one question; when it is interrupted, wait until the agent has put everything in order."""
    ended = threading.Event()

    async def answer() -> None:
        try:
            async with aclosing(agent.stream(question)) as events:
                async for event in events:
                    output.show(event)
        finally:
            ended.set()

    future = portal.start_task_soon(answer)
    try:
        future.result()
    except KeyboardInterrupt:
        future.cancel()
        ended.wait()
        raise
