"""Every command that a message, a docstring, a page, an example or a plug-in names is there, with its options."""

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import typer

from ctxfs.cli.app import app
from ctxfs.cli.commands import COMMANDS, SUBCOMMANDS

ROOT = Path(__file__).resolve().parent.parent.parent
GROUP: Any = typer.main.get_command(app)
_NOT_ONE = {"help"}
"""`ctxfs help ls` is `ctxfs ls --help`."""

FILES = [
    *(ROOT / "src").rglob("*.py"),
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / "examples").rglob("*.py"),
    *(ROOT / "plugins").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile")),
]
MENTION = re.compile(r"(?:`|^\s*(?:\$ |> |\")?)ctxfs (?P<words>[^`\n\"]*)", re.MULTILINE)
"""In backticks, or at the beginning of a line, as in a block of commands."""
END = re.compile(r" (?:--|>|\||#|&&) ")
"""What follows is another program's, or a comment."""


def mentions(text: str) -> Iterator[tuple[str, list[str]]]:
    """The word after each ``ctxfs`` that begins a command, and the options behind it."""
    for found in MENTION.finditer(text):
        words = END.split(f"{found['words']} ")[0].split()
        # Prose that begins a line with the name of the library has no command in it, and so no such word.
        if words and re.fullmatch(r"[a-z][a-z-]*", words[0]) and (found[0].startswith("`") or words[0] in COMMANDS):
            both = " ".join(words[:2])
            yield both if both in SUBCOMMANDS else words[0], re.findall(r"(?<!\S)(--[a-z-]+)", " ".join(words[1:]))


@cache
def options_of(command: str) -> set[str]:
    options = {name for param in GROUP.commands[command].params for name in (*param.opts, *param.secondary_opts)}
    return options | {"--help"}


def test_every_command_that_a_file_names_is_there() -> None:
    wrong = []
    for path in FILES:
        for command, options in mentions(path.read_text()):
            if command not in {*COMMANDS, *SUBCOMMANDS, *_NOT_ONE}:
                wrong.append(f"{path.relative_to(ROOT)}: ctxfs {command}")
            elif command not in _NOT_ONE and not set(options) <= options_of(command):
                wrong.append(f"{path.relative_to(ROOT)}: ctxfs {command} {' '.join(options)}")
    assert wrong == []


def test_the_mentions_are_found() -> None:
    text = "see `ctxfs ls last --json`, or\n    $ ctxfs proxy --window 5 -- claude --verbose\nctxfs is a library"
    assert list(mentions(text)) == [("ls", ["--json"]), ("proxy", ["--window"])]
    assert len([command for path in FILES for command, _ in mentions(path.read_text())]) > 150


def test_the_plug_in_starts_a_command_that_is_there() -> None:
    (server,) = json.loads((ROOT / "plugins" / "claude-code" / ".mcp.json").read_text())["mcpServers"].values()
    command, *arguments = server["args"]
    GROUP.commands[command].make_context(command, arguments)
