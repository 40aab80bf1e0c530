"""``ctxfs completion``: the words that a shell offers while a command is typed."""

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from enum import StrEnum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import anyio
import typer

from ctxfs.cli.commands import COMMANDS
from ctxfs.cli.options import ROOT_VARIABLE, STORE_VARIABLE
from ctxfs.cli.session import by_change, open_session, sessions_directory
from ctxfs.errors import CtxfsError
from ctxfs.session.entries import entries
from ctxfs.storage.local import is_session
from ctxfs.storage.threads import without_threads

__all__ = ["completion"]

_MOST = 200
"""The most candidates that are offered."""


class Shell(StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


_SCRIPTS: Mapping[Shell, str] = {
    Shell.BASH: """\
_ctxfs() {
    local IFS=$'\\n'
    COMPREPLY=($(ctxfs completion bash -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _ctxfs ctxfs
""",
    Shell.ZSH: """\
#compdef ctxfs
_ctxfs() {
    local -a found
    found=(${(f)"$(ctxfs completion zsh -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
    (( $#found )) && compadd -Q -- $found || _files
}
compdef _ctxfs ctxfs
""",
    Shell.FISH: """\
function __ctxfs_complete
    set -l words (commandline -opc) (commandline -ct)
    ctxfs completion fish -- $words[2..-1] 2>/dev/null
end
complete -c ctxfs -a '(__ctxfs_complete)'
""",
}


def completion(
    shell: Annotated[Shell, typer.Argument(help="The shell.", show_default=False)],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="WORD", help="Print the completions of the last of these words; the script calls this."),
    ] = None,
) -> None:
    """Print a script that completes commands, options, sessions and items.

    Sessions and items come from the directory that --root or CTXFS_ROOT names. Those in a store (--store or
    CTXFS_STORE) are not offered.
    """
    if not words:
        sys.stdout.write(_SCRIPTS[shell])
        return
    found = [word for word in _candidates(words) if word.startswith(words[-1])]
    sys.stdout.write("".join(f"{word}\n" for word in found[:_MOST] if word.isprintable()))


def _candidates(words: list[str]) -> Iterable[str]:
    """The words that could replace the last word."""
    *before, last = words
    if not before:
        return [*COMMANDS, "--help", "--version"]
    if before[0] not in COMMANDS:
        return []
    command = _command(before[0])
    options = {name: option for option in command.params for name in option.opts if name.startswith("-")}
    if last.startswith("-"):
        return sorted(name for name in [*options, "--help"] if name.startswith("--"))
    if (option := options.get(before[-1])) is not None and not option.is_flag:
        return _choices(before[0], option.name)
    given = _arguments(before[1:], options)
    root = None if _is_elsewhere(before) else sessions_directory(_root_in(before), may_be_new=True)
    taken = [param.metavar or "" for param in command.params if not param.opts[0].startswith("-")]
    wanted = taken[min(len(given), len(taken) - 1)] if taken else ""
    if wanted.startswith(("SESSION", "[SESSION]")):
        return ["last", *(name for name in by_change(root, last) if is_session(root, name))] if root else ["last"]
    return anyio.run(_items, root, given[0]) if root and wanted == "ITEM" else []


def _command(name: str) -> Any:
    from ctxfs.cli.app import app  # noqa: PLC0415 - it knows all commands, this one too

    group: Any = typer.main.get_command(app)
    return group.commands[name]


def _choices(command: str, parameter: str) -> list[str]:
    """The values of an option that is a choice; the shell itself completes paths and the like."""
    module, _, function = COMMANDS[command].place.partition(".")
    hints = get_type_hints(getattr(import_module(f"ctxfs.cli.{module}"), function))
    return [str(value) for kind in _types_in(hints[parameter]) if issubclass(kind, StrEnum) for value in kind]


def _types_in(hint: Any) -> Iterator[type]:
    if isinstance(hint, type) and not get_args(hint):
        yield hint
    for part in get_args(hint):
        yield from _types_in(part)


def _arguments(words: Iterable[str], options: Mapping[str, Any]) -> list[str]:
    """The words that are neither options nor values of options."""
    found: list[str] = []
    value = False
    for word in words:
        if value:
            value = False
        elif word.startswith("-") and word != "-":
            value = word in options and not options[word].is_flag
        else:
            found.append(word)
    return found


def _is_elsewhere(words: list[str]) -> bool:
    """Whether sessions are not in a directory; none are offered then, since each keystroke would make requests."""
    return "--store" in words or (STORE_VARIABLE in os.environ and "--root" not in words)


def _root_in(words: list[str]) -> Path | None:
    given = [after for word, after in pairwise(words) if word == "--root"]
    named = given[-1] if given else os.environ.get(ROOT_VARIABLE)
    return Path(named) if named else None


async def _items(root: Path, session: str) -> list[str]:
    with suppress(CtxfsError), without_threads():
        async with open_session(root, session) as fs:
            return [entry.item_id for entry in await entries(fs)]
    return []
