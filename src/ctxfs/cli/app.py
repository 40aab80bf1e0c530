"""The command line's entry: the commands, and what an error becomes."""

import io
import logging
import sys
from collections.abc import Sequence
from importlib.metadata import version
from typing import Annotated, Any

import typer

from ctxfs.cli import chat, demo, explain, grep, items, replay, sessions, transfer
from ctxfs.cli.output import for_terminal
from ctxfs.errors import ArchiveError, CorruptContent, CorruptJournal, CtxfsError, NotStored

__all__ = ["app", "run"]

CHECK_FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
_FAILED = (ArchiveError, CorruptContent, CorruptJournal, NotStored, typer.Abort)
_UsageError: Any = typer.BadParameter.__mro__[1]  # newer versions of typer have a click of their own

app = typer.Typer(
    name="ctxfs",
    help="Keep an LLM agent inside its context window without losing a byte, and look at what it keeps.",
    epilog="Exit codes: 0; 1 a check failed, or nothing matched; 2 wrong use.",
    invoke_without_command=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _main(
    context: typer.Context,
    *,
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.", is_eager=True)] = False,
) -> None:
    if show_version:
        sys.stdout.write(f"ctxfs {version('ctxfs')}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{context.get_help()}\n")
        raise typer.Exit(WRONG_USE)


for _command in (
    demo.demo,
    chat.chat,
    sessions.sessions,
    items.ls,
    items.cat,
    items.tail,
    grep.grep,
    explain.explain,
    replay.replay,
    replay.tune,
    sessions.verify,
    transfer.export,
):
    app.command()(_command)
app.command("import")(transfer.import_)
app.command()(sessions.rm)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an error is one line on stderr, never a traceback.

    ``arguments`` None: those of the process.
    """
    logging.getLogger("ctxfs").addHandler(logging.NullHandler())  # commands tell what happens themselves
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal that cannot show a character is no error
    try:
        code = app(arguments, prog_name="ctxfs", standalone_mode=False)
    except (CtxfsError, OSError, typer.Abort, _UsageError) as error:
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
