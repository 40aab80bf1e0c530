"""``ctxfs chat``: talk to a real model about a directory; needs a key."""

import sys
import threading
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import anyio
import typer
from anyio.from_thread import BlockingPortal, start_blocking_portal

from ctxfs.agent.agent import Agent
from ctxfs.agent.config import AgentConfig
from ctxfs.cli.chat_output import ChatOutput, JsonLines, ReadableText
from ctxfs.cli.completion import known_sessions
from ctxfs.cli.explore import exploration_tools
from ctxfs.cli.options import Root, StoreUrl
from ctxfs.cli.session import find_session, sessions_at, stores_of
from ctxfs.errors import ConfigError, CtxfsError
from ctxfs.messages.base import ChatModel

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
