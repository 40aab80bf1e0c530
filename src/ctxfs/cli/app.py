"""The command line's entry: the commands, and what an error becomes."""

import io
import logging
import sys
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from ctxfs.errors import ArchiveError, CorruptContent, CorruptJournal, CtxfsError, NotStored
from ctxfs.version import VERSION_LINE

__all__ = ["app", "run"]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "demo": ("demo.demo", "Watch an agent explore a directory; needs no key."),
    "chat": ("chat.chat", "Talk to a model that can list, read and search a directory."),
    "sessions": ("sessions.sessions", "List the sessions, newest first."),
    "ls": ("items.ls", "List what a session's context holds, and what was evicted."),
    "cat": ("items.cat", "Print an item's content, wherever it is now."),
    "tail": ("items.tail", "Print the last lines of an item's content."),
    "grep": ("grep.grep", "Search everything that a session holds."),
    "explain": ("explain.explain", "Show why each item was evicted or kept, and what that saved."),
    "replay": ("replay.replay", "Say what recorded sessions cost, and what they would have cost with ctxfs."),
    "tune": ("replay.tune", "Find eviction parameters on recorded sessions."),
    "mcp": ("mcp.mcp", "Serve a session to an MCP client, over standard input and output."),
    "claude-code": ("claude_code.claude_code", "Serve Claude Code's plug-in: its hook, and its reading tools."),
    "proxy": ("proxy.proxy", "Run a program whose requests to models are rewritten on their way out."),
    "verify": ("sessions.verify", "Check every stored byte against its checksum."),
    "export": ("transfer.export", "Write a session into one file, with everything that it stored."),
    "import": ("transfer.import_", "Make a session from an exported one."),
    "rm": ("sessions.rm", "Remove a session with everything that it stored."),
}
"""The function behind each command, and the first line of its docstring, which the list of commands shows."""

CHECK_FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
_FAILED = (ArchiveError, CorruptContent, CorruptJournal, NotStored, typer.Abort)
_UsageError: Any = typer.BadParameter.__mro__[1]  # newer versions of typer have a click of their own


class _Commands(Mapping[str, Any]):
    """The commands by name; each one is imported when it is first used, so that --help and --version are quick."""

    def __getitem__(self, name: str) -> Any:
        module, _, function = COMMANDS[name][0].partition(".")
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        alone.command(name, context_settings=_HELP)(getattr(import_module(f"ctxfs.cli.{module}"), function))
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """The ``ctxfs`` command itself."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """List the commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=_Group,
    name="ctxfs",
    help="Keep an LLM agent inside its context window without losing a byte, and look at what it keeps.",
    epilog="Exit codes: 0; 1 a check failed, or nothing matched; 2 wrong use.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=_HELP,
)


@app.callback()
def _main(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if show_version:
        sys.stdout.write(VERSION_LINE)
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(WRONG_USE)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an error is one line on stderr, never a traceback.

    ``arguments`` None: those of the process.
    """
    logging.getLogger("ctxfs").addHandler(logging.NullHandler())  # commands show themselves what happens
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal cannot show is replaced
    try:
        code = app(arguments, prog_name="ctxfs", standalone_mode=False)
    except (CtxfsError, OSError, typer.Abort, _UsageError) as error:
        from ctxfs.cli.output import for_terminal  # noqa: PLC0415 - rich is slow to import, and most runs end well

        sys.stderr.write(for_terminal(f"ctxfs: {_message(error)}\n"))
        return CHECK_FAILED if isinstance(error, _FAILED) else WRONG_USE
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return code if isinstance(code, int) else 0


def _message(error: Any) -> str:
    """What went wrong, and what to do, in one line."""
    if isinstance(error, typer.Abort):
        return "nothing was done"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, _UsageError):
        return str(error)
    message = " ".join(error.format_message().split()).rstrip(".")
    command = error.ctx.command_path if error.ctx is not None else "ctxfs"
    return f"{message[:1].lower()}{message[1:]}: see `{command} --help`"
