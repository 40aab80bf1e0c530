"""The command line's entry: the commands, and what an error becomes."""

import io
import logging
import sys
from collections.abc import Sequence

import typer

from ctxfs.cli import chat, demo, explain, grep, items, replay, sessions, transfer
from ctxfs.errors import ArchiveError, CorruptContent, CorruptJournal, CtxfsError

__all__ = ["app", "run"]

CHECK_FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130

app = typer.Typer(
    name="ctxfs",
    help="Keep an LLM agent inside its context window without losing a byte, and look at what it keeps.",
    epilog="Exit codes: 0; 1 a check failed, or nothing matched; 2 wrong use.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
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
        app(arguments)
    except CtxfsError as error:
        sys.stderr.write(f"ctxfs: {error}\n")
        return CHECK_FAILED if isinstance(error, CorruptContent | CorruptJournal | ArchiveError) else WRONG_USE
    except OSError as error:
        sys.stderr.write(f"ctxfs: {error.filename}: {error.strerror}\n" if error.filename else f"ctxfs: {error}\n")
        return WRONG_USE
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        return INTERRUPTED
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0
