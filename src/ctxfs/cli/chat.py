"""``ctxfs chat``: talk to a real model about a directory; needs a key."""

import sys
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import anyio
import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal
from rich.console import Console

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.agent.events import AgentEvent, Done, ToolEnded, ToolStarted, UsageReported
from ctxfs.cli.explore import exploration_tools
from ctxfs.cli.options import Root
from ctxfs.cli.output import console, for_terminal
from ctxfs.cli.session import find_session, sessions_directory
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.events import Compacted, Evicted, OffloadFailed, RecordFailed, SummaryFailed
from ctxfs.llm.base import ChatModel, Retrying, TextDelta

__all__ = ["chat"]

_SYSTEM_PROMPT = (
    "You help with the directory that the user is in. Look with list_dir, read_file and search before you answer. "
    "Old results leave your context for files: their placeholders say what was there, and Read shows them again."
)
_SHOWN_CHARS = 80
_OPENAI_PREFIXES = ("gpt-", "o1", "o3", "o4", "chatgpt-")


def chat(  # noqa: PLR0917 - typer calls it by name
    prompt: Annotated[str | None, typer.Argument(metavar="PROMPT", help="Answer this prompt and exit.")] = None,
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
        str | None, typer.Option("--session", metavar="SESSION", help="Continue this session ('last': the newest).")
    ] = None,
    root: Root = None,
) -> None:
    """Talk to a model that can list, read and search a directory. Needs ANTHROPIC_API_KEY, or OPENAI_API_KEY."""
    if not directory.is_dir():
        raise ConfigError(f"{directory} is not a directory")
    config = AgentConfig(
        tools=exploration_tools(directory),
        system_prompt=_SYSTEM_PROMPT,
        offload_root_path=root,
        session_id=None if session is None else anyio.run(find_session, sessions_directory(root), session),
    )
    agent = Agent(_model(model, base_url), config)
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(agent):
        _chat(portal, agent, prompt)


def _model(name: str | None, base_url: str | None) -> ChatModel:
    """The model of that name. The SDKs are heavy, and only one of them is needed."""
    if base_url is None and (name is None or not name.startswith(_OPENAI_PREFIXES)):
        from ctxfs.llm.anthropic import ChatAnthropic  # noqa: PLC0415

        return ChatAnthropic() if name is None else ChatAnthropic(model=name)
    if name is None:
        raise ConfigError("--base-url needs --model: the name that the server knows the model by")
    from ctxfs.llm.openai import ChatOpenAI  # noqa: PLC0415

    return ChatOpenAI(model=name, base_url=base_url)


def _chat(portal: BlockingPortal, agent: Agent, prompt: str | None) -> None:
    """Ask here, in the main thread, where Ctrl-C arrives; the agent lives in the portal's."""
    out = console()
    notes = Console(stderr=True, markup=False, highlight=False)
    if prompt is not None:
        _answer(portal, agent, prompt, out, notes)
        return
    notes.print(f"session {agent.session_id}; Ctrl-C stops an answer, Ctrl-D ends", style="dim")
    while (line := _ask()) is not None:
        if not line.strip():
            continue
        try:
            _answer(portal, agent, line, out, notes)
        except CtxfsError as error:  # the transcript is valid, and the next question goes on from it
            notes.print(f"ctxfs: {error}", style="red")
        except KeyboardInterrupt:  # so it is here
            notes.print("\nstopped", style="dim")


def _ask() -> str | None:
    try:
        return input("> " if sys.stdin.isatty() else "")
    except EOFError:
        return None


def _answer(portal: BlockingPortal, agent: Agent, question: str, out: Console, notes: Console) -> None:
    """Answer one question; when it is interrupted, wait until the agent has put everything in order."""
    ended = threading.Event()

    async def answer() -> None:
        try:
            await _print_answer(agent, question, out, notes)
        finally:
            ended.set()

    future = portal.start_task_soon(answer)
    try:
        future.result()
    except KeyboardInterrupt:
        future.cancel()
        ended.wait()
        raise


async def _print_answer(agent: Agent, question: str, out: Console, notes: Console) -> None:
    in_line = False
    async with aclosing(agent.stream(question)) as events:
        async for event in events:
            if isinstance(event, TextDelta):
                out.out(for_terminal(event.text), end="", highlight=False)
                in_line = not event.text.endswith("\n")
                continue
            note = _note(event)
            if in_line and (note is not None or isinstance(event, Done)):
                out.print()
                in_line = False
            if note is not None:
                notes.print(note, style="dim")


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
            note = f"no summary: {event.reason}"
        case OffloadFailed() | RecordFailed():
            note = str(event.error)
        case Retrying():
            note = f"trying again in {event.delay_s:.0f} s: {event.reason}"
        case UsageReported():
            note = f"the context holds {event.context_tokens:,} tokens"
    return None if note is None else for_terminal(f"· {note}")
