"""The command line's entry point: the commands, and how errors are reported."""

import contextlib
import io
import logging
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from importlib import import_module
from typing import Annotated, Any, TextIO

import typer
from typer.core import TyperCommand, TyperGroup
from typing_extensions import override

from ctxfs.cli.commands import COMMANDS, COMPLETE_VARIABLE, GROUPS, REPLACED, SUBCOMMANDS
from ctxfs.cli.lines import to_stderr, wrapped
from ctxfs.cli.pager import paged
from ctxfs.errors import ArchiveError, ContentGone, CorruptContent, CorruptJournal, CtxfsError, NotStored
from ctxfs.errors.spelling import nearest
from ctxfs.session.content.visible import visible_text as for_terminal
from ctxfs.version import VERSION_LINE

CHECK_FAILED = 1
WRONG_USE = 2
INTERRUPTED = 130
_FAILED = (ArchiveError, ContentGone, CorruptContent, CorruptJournal, NotStored, typer.Abort)
_IN_A_DIRECTORY = (
    "takes no --store: it works on sessions in a directory. `ctxfs copy SESSION --from URL` brings one there, "
    "and `ctxfs copy SESSION --to URL` brings it back"
)
_GONE_OPTIONS = {"--keep-within": "give --older-than, so that only sessions unchanged for longer are removed"}
"""What to write for an option that there is no more."""
_EXTRA = re.compile(r"Got unexpected extra arguments?(?:\(s\))? \((.*)\)")
_LISTING = ("ls", "show")
"""Commands that show all of a session, so that a word more is meant to be an item."""
_WHERE = {"SESSION": "`ctxfs sessions` lists them, and 'last' is the newest", "ITEM": "`ctxfs ls SESSION` lists them"}
"""Where the values of an argument are found, by its name in the help."""
_PROGRAMS = ("COMMAND", "SERVER")
"""The arguments that are a program to run, by their names in the help."""
_BOUNDS = (
    (re.compile(r"Input should be greater than or equal to (\S+)"), r"use \1 or more"),
    (re.compile(r"Input should be less than or equal to (\S+)"), r"use \1 or less"),
    (re.compile(r"Input should be a valid integer.*"), "use a whole number"),
)
"""What typer says of a number, and what the rest of ctxfs says."""
_HELP_COLUMNS = 80
"""The most that help takes, and what it takes in a pipe, whatever ``COLUMNS`` says."""
_MARGIN_COLUMNS = 2
"""What typer leaves free at the right of each line of help; the list of commands uses it."""
_LEAST_COLUMNS = 38
"""The least that help takes: below it, words are broken."""
_NARROW_COLUMNS = 60
"""On a terminal that is narrower, there is no room for long names of options beside what they mean."""
_TYPE = re.compile(r" <[^|>]*>$")
"""The type that newer versions of typer write after an argument, such as <list[str]>; a choice has its values there."""
_OF_COMMANDS = ("--root", "--store", "--json")
_UsageError: Any = typer.BadParameter.__mro__[1]  # newer versions of typer have a click of their own


_Formatter: Any = TyperCommand.context_class.formatter_class


class _HelpFormatter(_Formatter):  # type: ignore[misc]
    """Help as wide as the terminal; typer's own is never narrower than 50 columns."""

    def __init__(self, columns: int) -> None:
        super().__init__(width=max(min(columns, _HELP_COLUMNS) - _MARGIN_COLUMNS, _LEAST_COLUMNS))
        self._names_columns = 10 if columns < _NARROW_COLUMNS else 30

    def write_dl(self, rows: Any, col_max: int = 30, col_spacing: int = 2) -> None:
        """Write names, and what they mean; see ``click.HelpFormatter.write_dl``."""
        shown = [(_TYPE.sub("", name), meaning) for name, meaning in rows]
        super().write_dl(shown, min(col_max, self._names_columns), col_spacing)


def _help(command: Any, context: Any, stream: TextIO) -> str:
    formatter = _HelpFormatter(shutil.get_terminal_size().columns if stream.isatty() else _HELP_COLUMNS)
    command.format_help(context, formatter)
    return str(formatter.getvalue()).rstrip("\n")


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


class _Command(TyperCommand):
    """A command that refuses an option where a value is expected: ``--root --json`` lacks a directory."""

    @override
    def get_help(self, ctx: Any) -> str:
        return _help(self, ctx, sys.stdout)

    @override
    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The names of the arguments: typer puts a required one in braces, which look as if they were to be typed."""
        return [re.sub(r"^\{(.*)\}", r"\1", piece) for piece in super().collect_usage_pieces(ctx)]

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        options: list[Any] = [option for option in self.get_params(ctx) if option.param_type_name == "option"]
        takes_value = {name: not (option.is_flag or option.count) for option in options for name in option.opts}
        words = iter(args)
        for word in words:
            if word == "--":
                break
            if takes_value.get(word) and (value := next(words, "")) in takes_value:
                ctx.fail(f"{word} needs a value before {value}")
        rest = super().parse_args(ctx, args)
        if any(option.name == "store" and option.envvar for option in options):
            _choose_place(ctx)
        return rest


def _choose_place(ctx: Any) -> None:
    """Choose one place: an option comes before an environment variable, and a store before a directory.

    Both options together are refused when the place is opened.
    """
    sources = {name: ctx.get_parameter_source(name) for name in ("root", "store") if ctx.params[name] is not None}
    if len(sources) < 2 or all(source.name == "COMMANDLINE" for source in sources.values()):
        return
    ctx.params["store" if sources["root"].name == "COMMANDLINE" else "root"] = None


class _Commands(Mapping[str, Any]):
    """The commands by name; each one is imported when it is first used, so that --help and --version are quick."""

    def __getitem__(self, name: str) -> Any:
        command = SUBCOMMANDS[name] if name in SUBCOMMANDS else COMMANDS[name]
        module, _, function_name = command.place.partition(".")
        function = getattr(import_module(f"ctxfs.cli.{module}"), function_name)
        alone = typer.Typer(add_completion=False, rich_markup_mode=None)
        shown = paged(function) if command.paged else function
        alone.command(name, cls=_Command, context_settings=_HELP, epilog=command.epilog)(shown)
        return typer.main.get_command(alone)

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class _Group(TyperGroup):
    """The ``ctxfs`` command itself; ``ctxfs help ls`` is ``ctxfs ls --help``."""

    @override
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        return super().parse_args(ctx, args)

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands: Any = _Commands()

    @override
    def get_help(self, ctx: Any) -> str:
        return _help(self, ctx, sys.stdout)

    @override
    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        both = " ".join(args[:2])
        if both in SUBCOMMANDS:
            args = [both, *args[2:]]
        for word in (both, args[0]):
            if word in REPLACED:
                ctx.fail(f"no such command '{word}': use `ctxfs {REPLACED[word]}`")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Offer the commands without importing them; see ``click.Group.shell_complete``."""
        command: Any = TyperCommand  # what a group inherits would import each command
        options = command.shell_complete(self, ctx, incomplete if incomplete.startswith("-") else "--help")
        if incomplete.startswith("-"):
            return options
        item = type(options[0])  # of click, or of the click that newer versions of typer have of their own
        names = [name for name in COMMANDS if name.startswith(incomplete)]
        return [item(name, help=COMMANDS[name].summary) for name in names]

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as typer calls it
        """List the commands in their groups, without importing them: the whole help fits one screen."""
        formatter.write_paragraph()
        for group, commands in GROUPS.items():
            heading = group
            for name, command in commands.items():
                line = f"  {heading:11}{name:10}{command.summary}"
                shown = wrapped(line, formatter.width + _MARGIN_COLUMNS, indent=" " * 23)
                formatter.write(f"{shown}\n")
                heading = ""


_LOG = logging.getLogger("ctxfs")
_HELP = {"help_option_names": ["-h", "--help"]}

app = typer.Typer(
    cls=_Group,
    name="ctxfs",
    help="Keep an LLM agent inside its context window without losing a byte.",
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
    completion: Annotated[
        Shell | None, typer.Option("--completion", help="Print the script that completes in this shell.")
    ] = None,
    verbose: Annotated[
        int,
        typer.Option(
            "--verbose", "-v", count=True, help="Log what happens to stderr; -vv also logs why.", show_default=False
        ),
    ] = 0,
) -> None:
    if verbose:
        _log_to_stderr(logging.INFO if verbose == 1 else logging.DEBUG)
    if show_version:
        sys.stdout.write(VERSION_LINE)
        raise typer.Exit
    if completion is not None:
        _print_completion(completion)
        raise typer.Exit
    if context.invoked_subcommand is None:
        sys.stderr.write(f"{_help(context.command, context, sys.stderr)}\n")
        raise typer.Exit(WRONG_USE)


def _print_completion(shell: Shell) -> None:
    # Slow to import, and only asked for once.
    from typer.completion import get_completion_script  # type: ignore[attr-defined]  # noqa: PLC0415

    script = get_completion_script(prog_name="ctxfs", complete_var=COMPLETE_VARIABLE, shell=shell.value)
    sys.stdout.write(f"{script}\n")


class _Safe(logging.Formatter):
    """Lines of the log in which nothing moves the cursor or hides text."""

    def format(self, record: logging.LogRecord) -> str:
        return for_terminal(super().format(record))


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Safe("%(asctime)s %(levelname)-7s %(name)s: %(message)s", "%H:%M:%S"))
    _LOG.addHandler(handler)
    _LOG.setLevel(level)


def _log_nothing() -> None:
    """Log nothing unless ``--verbose`` is given: the commands themselves print what happens."""
    for handler in list(_LOG.handlers):
        if isinstance(handler.formatter, _Safe):
            _LOG.removeHandler(handler)
    _LOG.setLevel(logging.NOTSET)
    _LOG.addHandler(logging.NullHandler())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code; an error is one line on stderr, never a traceback.

    ``arguments``: None means those of the process.
    """
    _log_nothing()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a character that the terminal cannot show is replaced
    if COMPLETE_VARIABLE in os.environ:
        # Slow to import, and only a shell asks for it.
        from typer.completion import completion_init  # type: ignore[attr-defined]  # noqa: PLC0415

        completion_init()
    try:
        code = app(arguments, prog_name="ctxfs", standalone_mode=False)
        sys.stdout.flush()
    except BrokenPipeError:
        return _reader_left()
    except (CtxfsError, OSError, typer.Abort, _UsageError) as error:
        to_stderr(f"ctxfs: {_message(error, sys.argv[1:] if arguments is None else arguments)}")
        return CHECK_FAILED if isinstance(error, _FAILED) else WRONG_USE
    except KeyboardInterrupt:
        if sys.stderr.isatty():
            sys.stderr.write("\n")
        return INTERRUPTED
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # how typer ends then
            return _reader_left()
        return ended.code if isinstance(ended.code, int) else 0
    return code if isinstance(code, int) else 0


def _reader_left() -> int:
    """Ignore the rest of the output, since its reader closed the pipe; this is not an error."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _is_for_directories(context: Any) -> bool:
    """Whether a command is about sessions, and only about those in a directory."""
    options = set() if context is None else {option.name for option in context.command.params}
    return "root" in options and "store" not in options


def _message(error: Any, given: Sequence[str]) -> str:
    """What went wrong, and what to do, in one line; ``given``: the arguments."""
    if isinstance(error, typer.Abort):
        return "nothing was done"
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    if not isinstance(error, _UsageError):
        return str(error)
    return _usage(error, given)


def _usage(error: Any, given: Sequence[str]) -> str:
    """What is wrong in the words of a command line, and what to do."""
    if getattr(error, "option_name", None) == "--store" and _is_for_directories(error.ctx):
        return f"{error.ctx.command_path} {_IN_A_DIRECTORY}"
    if error.ctx is not None and error.ctx.parent is None and getattr(error, "option_name", None) in _OF_COMMANDS:
        return f"{error.option_name} goes after the command, as in `ctxfs ls last --root DIR`: see `ctxfs --help`"
    message = " ".join(error.format_message().split()).rstrip(".").replace(": Value error, ", ": ")
    kind = type(error).__name__
    argument = getattr(getattr(error, "param", None), "metavar", None)
    if kind == "NoSuchOption":
        message = f"no such option: {error.option_name}{_option_meant(error) or _program_meant(error, given)}"
    session = _session_given(error)
    extra = _EXTRA.fullmatch(message)
    if extra is not None:
        takes = " ".join(param.metavar for param in error.ctx.command.params if param.param_type_name == "argument")
        message = f"unexpected {extra[1]}: `{error.ctx.command_path}` takes {takes or 'options only'}"
        if session != "SESSION" and error.ctx.command.name in _LISTING:
            message = f"unexpected {extra[1]}: `ctxfs cat {session} ITEM` prints an item"
            message += f", and `ctxfs explain {session} ITEM` says why it left or stays"
    if kind == "MissingParameter" and argument is not None:
        argument = argument.split()[-1]  # of "[SESSION] PATTERN"
        where = f": {_WHERE[argument].replace('SESSION', session)}" if argument in _WHERE else ""
        message = f"{argument} is missing{where}"
    for said, better in _BOUNDS:
        message = said.sub(better, message)
    command = error.ctx.command_path if error.ctx is not None else "ctxfs"
    if not message.startswith(str(argument)):
        message = f"{message[:1].lower()}{message[1:]}"
    return f"{message}: see `{command} --help`"


def _session_given(error: Any) -> str:
    """The session that a command line names, as it is typed; "SESSION": none, or several."""
    given = None if error.ctx is None else error.ctx.params.get("session")
    return shlex.quote(given) if isinstance(given, str) and given else "SESSION"


def _program_meant(error: Any, given: Sequence[str]) -> str:
    """Where the options of a program go, for a command that runs one; who wrote the -- knows it."""
    if error.ctx is None or "--" in given:
        return ""
    runs = [each.metavar for each in error.ctx.command.params if each.metavar in _PROGRAMS]
    return f": an option of the program goes after --, as in `{error.ctx.command_path} -- {runs[0]} …`" if runs else ""


def _option_meant(error: Any) -> str:
    """The option that was meant; its dashes alone make no option like another."""
    if error.ctx is None:
        return ""
    if error.option_name in _GONE_OPTIONS:
        return f": {_GONE_OPTIONS[error.option_name]}"
    names = {name.lstrip("-"): name for option in error.ctx.command.params for name in option.opts if name[:2] == "--"}
    meant = nearest(error.option_name.lstrip("-"), names)
    return "" if meant is None else f": did you mean {names[meant]}?"
