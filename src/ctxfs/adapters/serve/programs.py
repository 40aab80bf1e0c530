"""What the proxy knows of programs: how they are told where it is, and which of their tools opens a file. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import PurePath
from typing import NamedTuple


class Program(NamedTuple):
    """A program that people run.

    ``read_tool``: its own tool that opens the file which a placeholder names, wherever that is. ``options``: those that
    tell it the proxy's address, with the variables of ``Proxy.environment`` in braces; (): its environment is enough.
    ``root_options``: options that let the program open stored files; {ROOT} in them stands for the sessions' directory.
    """

    read_tool: str
    options: tuple[str, ...] = ()
    root_options: tuple[str, ...] = ()


ANY = Program("Read")
"""A program that is not known: it takes its base URL from its environment, as the SDKs do."""

PROGRAMS: Mapping[str, Program] = {
    # It asks before it reads outside of its project. With "=", since words that follow are more directories.
    "claude": Program("Read", root_options=("--add-dir={ROOT}",)),
    # Codex takes no base URL from its environment; its shell is all it has to open files with.
    "codex": Program("exec_command", ("-c", 'openai_base_url="{OPENAI_BASE_URL}"')),
    "opencode": Program("read"),
    # Its read_file opens files of the workspace only.
    "gemini": Program("run_shell_command"),
    "goose": Program("shell"),
    "cline": Program("run_commands"),
}
"""By the name of the command."""

PACKAGES: Mapping[str, str] = {
    "@anthropic-ai/claude-code": "claude",
    "@openai/codex": "codex",
    "opencode-ai": "opencode",
    "@google/gemini-cli": "gemini",
    "cline": "cline",
    "@aaif/goose-sdk": "goose",
}
"""The command that each package of npm has."""

_STARTERS = frozenset({"npx", "bunx", "pnpx"})
"""Programs that run a package of npm, whose name follows their own options."""

_NAMES_A_PACKAGE = frozenset({"-p", "--package"})
"""Their options whose value is a package; then a command of it follows."""


def program_of(command: Sequence[str]) -> Program:
    """The program that ``command`` runs."""
    return PROGRAMS.get(_name(command[_place(command)]), ANY)


def told(command: Sequence[str], environment: Mapping[str, str], root: PurePath | None) -> list[str]:
    """The command to run instead of ``command``, so that its program finds the proxy, and may open what is stored.

    ``root``: the directory of the sessions; None: they are elsewhere.
    """
    after = _place(command) + 1
    program = program_of(command)
    options = [option.format_map(environment) for option in program.options]
    if root is not None:
        options += [option.format(ROOT=root) for option in program.root_options]
    return [*command[:after], *options, *command[after:]]


def _place(command: Sequence[str]) -> int:
    """Where the name of the program stands."""
    if _name(command[0]) not in _STARTERS:
        return 0
    words = enumerate(command[1:], 1)
    return next((n for n, word in words if not word.startswith("-") and command[n - 1] not in _NAMES_A_PACKAGE), 0)


def _name(word: str) -> str:
    """The name of a command without its folder and suffix; of a package of npm, the name of its command."""
    package = f"@{word[1:].partition('@')[0]}" if word.startswith("@") else word.partition("@")[0]
    return PACKAGES.get(package) or PurePath(package).name.removesuffix(".exe").removesuffix(".cmd")
