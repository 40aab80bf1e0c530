"""``ctxfs proxy -- COMMAND…``: run a program whose requests to models are rewritten on their way out."""

import logging
import os
import signal
import subprocess
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import anyio
import typer

from ctxfs.adapters.serve.programs import program_of, told
from ctxfs.cli.lines import to_stderr
from ctxfs.cli.options import STORE_VARIABLE, PreviewAbove, Root, StoreUrl, known_sessions
from ctxfs.cli.session import find_history_session, sessions_at, stores_of
from ctxfs.errors import ConfigError
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.eviction.preview import DEFAULT_PREVIEW_ABOVE_TOKENS
from ctxfs.lab.shadow import DEFAULT_BUDGET_USD, Sampler
from ctxfs.storage.port import DIR_MODE

_KILLED = 128
_NOTHING_CAME = 1
_NOTE_CHARS = 300
_FORWARDED = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]

Command = Annotated[list[str], typer.Argument(metavar="COMMAND", help="The program, and its arguments.")]
KeepRecent = Annotated[
    list[str] | None,
    typer.Option(
        "--keep-recent", metavar="TOOL=N", help="Keep the last N results of a tool, and replace older ones; repeatable."
    ),
]
Repeats = Annotated[
    bool,
    typer.Option(
        "--repeats",
        help="Send a line for a result that the model sees already, and a short diff for a newer version of one.",
    ),
]
ReadTool = Annotated[
    str | None,
    typer.Option(
        "--read-tool",
        metavar="NAME",
        help="The program's own tool that opens what was stored (default: the one that it is known to have, else Read; "
        "with --store context_read).",
        show_default=False,
    ),
]
InSession = Annotated[
    str | None,
    typer.Option(
        "--session",
        metavar="ID",
        autocompletion=known_sessions,
        help="Keep everything in this session, or 'last' (default: one for each conversation that requests name).",
        show_default=False,
    ),
]
Window = Annotated[
    int | None,
    typer.Option("--window", min=1, metavar="N", help="Tokens that a prompt may take (default: the model's window)."),
]
ShadowShare = Annotated[
    str | None,
    typer.Option(
        "--shadow",
        metavar="SHARE",
        help="Send this share of the rewritten requests again as they came, to compare what the model does, as in 2%.",
        show_default=False,
    ),
]
ShadowBudget = Annotated[
    float,
    typer.Option("--shadow-budget", min=0, metavar="USD", help="Dollars that --shadow may cost, by list prices."),
]
Anthropic = Annotated[
    str | None,
    typer.Option(
        "--upstream-anthropic",
        metavar="URL",
        envvar="ANTHROPIC_BASE_URL",
        help="Where requests to the Messages API go (default: https://api.anthropic.com).",
    ),
]
OpenAI = Annotated[
    str | None,
    typer.Option(
        "--upstream-openai",
        metavar="URL",
        envvar=["OPENAI_BASE_URL", "OPENAI_API_BASE"],
        help="Where requests to OpenAI's APIs go (default: https://api.openai.com/v1).",
    ),
]

Gemini = Annotated[
    str | None,
    typer.Option(
        "--upstream-gemini",
        metavar="URL",
        envvar="GOOGLE_GEMINI_BASE_URL",
        help="Where requests to Gemini go (default: https://generativelanguage.googleapis.com).",
    ),
]

ReadingTurns = Annotated[
    int,
    typer.Option(
        "--reading-turns",
        min=0,
        metavar="N",
        help="Offer the tools that read back to the model, and answer up to N turns of reading inside of a request; 0: "
        "the program's own tools read.",
    ),
]


def proxy(
    command: Command,
    *,
    root: Root = None,
    store: StoreUrl = None,
    session: InSession = None,
    keep_recent: KeepRecent = None,
    read_tool: ReadTool = None,
    window: Window = None,
    preview_above_tokens: PreviewAbove = DEFAULT_PREVIEW_ABOVE_TOKENS,
    repeats: Repeats = False,
    reading_turns: ReadingTurns = 0,
    upstream_anthropic: Anthropic = None,
    upstream_openai: OpenAI = None,
    upstream_gemini: Gemini = None,
    shadow: ShadowShare = None,
    shadow_budget: ShadowBudget = DEFAULT_BUDGET_USD,
) -> None:
    """Run a program and evict from its requests to models.

    Its environment (ANTHROPIC_BASE_URL, OPENAI_BASE_URL, GOOGLE_GEMINI_BASE_URL) points its requests at a proxy on
    this machine, which replaces what is due for eviction and forwards them. At the end, it prints what that saved; if
    no request came, it says so, and fails. Needs the extra ctxfs[proxy].
    """
    given = {"anthropic": upstream_anthropic, "openai": upstream_openai, "gemini": upstream_gemini}
    settings: dict[str, Any] = {
        "keep_recent": _kept(keep_recent or ()),
        "preview_above_tokens": preview_above_tokens or None,
    }
    if repeats:
        if not preview_above_tokens:
            raise ConfigError("--repeats has no effect with --preview-above-tokens 0: leave one out")
        settings["offload_policy"] = OffloadPolicy(repeats=True)
    if read_tool is not None:
        settings["read_tool"] = read_tool
    elif store is None:  # elsewhere, only ctxfs's own tool opens what is stored
        settings["read_tool"] = program_of(command).read_tool
    if window is not None:
        settings["window"] = window
    beside_it = None if shadow is None else Sampler(share=_share(shadow), budget_usd=shadow_budget)
    place = sessions_at(root, store, may_be_new=True)
    # Here, since it needs the extra `proxy`, and the help does not.
    from ctxfs.adapters.serve.proxy import Proxy  # noqa: PLC0415

    stores = stores_of(place)
    if stores.directory is not None:
        _make(stores.directory)
    running = Proxy(
        stores,
        settings,
        {name: checked_url(url) for name, url in given.items() if url is not None},
        None if session is None else anyio.run(find_history_session, place, session),
        one_session=session is not None,
        reading_turns=reading_turns,
        shadow=beside_it,
    )
    beside = {} if store is None else {STORE_VARIABLE: store}
    with _quiet() as noted, running:
        told_command = told(command, running.environment, stores.directory)
        code = _run(told_command, {**os.environ, **beside, **running.environment})
        if beside_it is not None:
            beside_it.close()
    for line in (*noted, *running.savings.lines()):
        to_stderr(f"ctxfs: {line}")
    if running.requests == 0:
        to_stderr(f"ctxfs: error: {unreached(code)}")
        raise typer.Exit(code or _NOTHING_CAME)
    raise typer.Exit(code)


def _make(root: Path) -> None:
    """Make the directory of the sessions now: a program is let only into one that is there when it begins."""
    try:
        root.mkdir(mode=DIR_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"{root} cannot be made: {error.strerror}; give another directory with --root") from error


def unreached(code: int) -> str:
    """What to tell the user if no request came through the proxy; ``code``: the program's exit code."""
    before = f"the program ended with exit code {code} before any of its" if code else "none of the program's"
    return (
        f"{before} requests came through the proxy. If it made some, they went to the provider directly: its "
        "environment had ANTHROPIC_BASE_URL, OPENAI_BASE_URL and GOOGLE_GEMINI_BASE_URL; if the program has a setting "
        "for its base URL, give it one of them"
    )


class _Notes(logging.Handler):
    """Keeps the first line of each message."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the message; a traceback is left out."""
        self.lines[record.getMessage().partition("\n")[0][:_NOTE_CHARS]] = None


@contextmanager
def _quiet() -> Iterator[Iterable[str]]:
    """Keep the terminal to the program until it ends: collect warnings and log lines, to be shown afterwards."""
    notes, lines = _Notes(), dict[str, None]()
    logging.getLogger().addHandler(notes)
    try:
        with warnings.catch_warnings(record=True) as warned:
            yield lines
    finally:
        logging.getLogger().removeHandler(notes)
        lines |= dict.fromkeys(str(one.message) for one in warned) | notes.lines


def _kept(given: Sequence[str]) -> dict[str, int]:
    kept: dict[str, int] = {}
    for one in given:
        tool, _, number = one.rpartition("=")
        if not tool or not number.isdecimal():
            raise ConfigError(f"--keep-recent {one!r}: give TOOL=N, as in Bash=3")
        kept[tool] = int(number)
    return kept


def _share(given: str) -> float:
    """A share as it is typed: 2%, or 0.02."""
    try:
        share = float(given.removesuffix("%")) / (100 if given.endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise ConfigError(f"--shadow {given!r}: give a share, as in 2%")
    return share


def checked_url(url: str) -> str:
    """The URL of an upstream. Raises ``ConfigError`` if it is not one."""
    if not url.startswith(("http://", "https://")):
        raise ConfigError(f"the upstream {url!r} is not a URL: it must begin with https:// or http://")
    return url


def _run(command: Sequence[str], environment: dict[str, str]) -> int:
    """Run the command to its end and return its exit code, as a shell would."""
    try:
        process = subprocess.Popen(command, env=environment)  # noqa: S603 - what the user asked for
    except OSError as error:
        raise ConfigError(f"{command[0]} cannot be run: {error.strerror}") from error
    with _forwarding(process):
        code = process.wait()
    return code if code >= 0 else _KILLED - code


@contextmanager
def _forwarding(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Leave signals to the command: the terminal sends it interrupts, and others are forwarded from here."""
    before = {number: signal.signal(number, lambda given, _: process.send_signal(given)) for number in _FORWARDED}
    before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
