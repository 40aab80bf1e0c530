"""The clients of MCP that people use: where their configuration is, and how a server in it is wrapped. Pure.

The servers in a configuration are read and replaced, and all else in its text stays as it is.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

from ctxfs.adapters.extras import needs
from ctxfs.errors import ConfigError
from ctxfs.errors.spelling import did_you_mean

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""What may stand between two tokens. Many clients read comments; the others refuse a file that has any."""

Entry = Mapping[str, Any]
"""What a client knows of one server."""


class ClientFile(Protocol):
    """A configuration. ``servers``: the entries of its MCP servers, by name, in the order of the file."""

    servers: Mapping[str, Entry]

    def replaced(self, entries: Mapping[str, Entry]) -> str:
        """The text with these entries in place of those of the same names."""

    def restored(self, names: Collection[str], before: str) -> str:
        """The text with these entries as the text ``before`` has them, character for character."""


class JsonFile(ClientFile):
    """A configuration in JSON, with or without comments; the servers are in the object ``key``.

    Raises:
        ConfigError: the text is not JSON, or has no such object of objects.

    """

    def __init__(self, text: str, key: str) -> None:
        self._text = text
        self._key = key
        self._spans: dict[tuple[str, ...], tuple[int, int]] = {}
        self._at = 0
        try:
            whole = self._all()
        except json.JSONDecodeError as error:
            raise ConfigError(f"not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
        except RecursionError as error:
            raise ConfigError("not a configuration: its JSON is nested too deeply") from error
        self.servers = _checked_servers(whole, key)

    @override
    def replaced(self, entries: Mapping[str, Entry]) -> str:
        return self._with({name: self._shown(entry, name) for name, entry in entries.items()})

    @override
    def restored(self, names: Collection[str], before: str) -> str:
        old = JsonFile(before, self._key)
        texts = {}
        for name in names:
            start, end = old._spans[self._key, name]
            texts[name] = before[start:end]
        return self._with(texts)

    def _with(self, texts: Mapping[str, str]) -> str:
        new = self._text
        spans = sorted((*self._spans[self._key, name], text) for name, text in texts.items())
        for start, end, text in reversed(spans):  # from the end, so that the places before stay
            new = new[:start] + text + new[end:]
        return new

    def _shown(self, entry: Entry, name: str) -> str:
        """An entry as JSON, indented as the line in which it begins."""
        start = self._spans[self._key, name][0]
        line = self._text[self._text.rfind("\n", 0, start) + 1 : start]
        indent = line[: len(line) - len(line.lstrip())]
        step: int | str = "\t" if indent.startswith("\t") else 2
        return json.dumps(entry, indent=step, ensure_ascii=False).replace("\n", f"\n{indent}")

    def _all(self) -> Any:
        """The whole value. Raises ``json.JSONDecodeError``."""
        whole, end = self._value(_after_space(self._text, 0), ())
        end = _after_space(self._text, end)
        if end < len(self._text):
            raise json.JSONDecodeError("more follows", self._text, end)
        return whole

    def _value(self, start: int, path: tuple[str, ...]) -> tuple[Any, int]:
        """The value that begins at ``start``, and where it ends. The places of the servers' entries are kept."""
        opening = self._text[start : start + 1]
        value: Any
        if opening == "{":
            value, end = self._object(start + 1, path)
        elif opening == "[":
            value, end = self._array(start + 1, path)
        else:
            value, end = json.JSONDecoder().raw_decode(self._text, start)
        if len(path) <= 2:
            self._spans[path] = (start, end)
        return value, end

    def _object(self, start: int, path: tuple[str, ...]) -> tuple[dict[str, Any], int]:
        found: dict[str, Any] = {}
        for at in self._members(start, "}"):
            key, end = json.JSONDecoder().raw_decode(self._text, at)
            if not isinstance(key, str):
                raise json.JSONDecodeError("the name of a field must be a text", self._text, at)
            colon = _after_space(self._text, end)
            if self._text[colon : colon + 1] != ":":
                raise json.JSONDecodeError("a colon is missing", self._text, colon)
            found[key], self._at = self._value(_after_space(self._text, colon + 1), (*path, key))
        return found, self._at

    def _array(self, start: int, path: tuple[str, ...]) -> tuple[list[Any], int]:
        found = []
        for at in self._members(start, "]"):
            value, self._at = self._value(at, (*path, "", ""))
            found.append(value)
        return found, self._at

    def _members(self, start: int, closing: str) -> Iterator[int]:
        """Where each member begins; at the end, ``_at`` is after the closing bracket. A last comma is allowed."""
        at = _after_space(self._text, start)
        while self._text[at : at + 1] != closing:
            yield at
            at = _after_space(self._text, self._at)
            if self._text[at : at + 1] == ",":
                at = _after_space(self._text, at + 1)
            elif self._text[at : at + 1] != closing:
                raise json.JSONDecodeError(f"a comma or {closing} is missing", self._text, at)
        self._at = at + 1


class TomlFile(ClientFile):
    """A configuration in TOML; the servers are in the table ``key``.

    Raises:
        ConfigError: the text is not TOML, or has no such table of tables.
        MissingExtra: tomlkit, which keeps comments and order, is not installed.

    """

    def __init__(self, text: str, key: str) -> None:
        with needs("mcp"):
            import tomlkit  # noqa: PLC0415 - of an extra, and for one client only
            from tomlkit.exceptions import ParseError  # noqa: PLC0415
        try:
            self._whole = tomlkit.parse(text)
        except ParseError as error:
            raise ConfigError(f"not TOML: {error}") from error
        self._key = key
        self.servers = _checked_servers(self._whole.unwrap(), key)

    @override
    def replaced(self, entries: Mapping[str, Entry]) -> str:
        for name, entry in entries.items():
            table: Any = self._whole[self._key][name]
            for gone in [field for field in table if field not in entry]:
                del table[gone]
            for field, value in entry.items():
                if field not in table or table.unwrap()[field] != value:
                    table[field] = value
        return self._whole.as_string()

    @override
    def restored(self, names: Collection[str], before: str) -> str:
        old = TomlFile(before, self._key)
        for name in names:
            self._whole[self._key][name] = old._whole[self._key][name]
        return self._whole.as_string()


def _after_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    assert found is not None  # it matches nothing, too
    return found.end()


def _checked_servers(whole: Any, key: str) -> Mapping[str, Entry]:
    """The servers in a configuration. Raises ``ConfigError`` if there are none, or one is not an object."""
    servers = whole.get(key) if isinstance(whole, dict) else None
    if not isinstance(servers, dict) or not servers:
        raise ConfigError(f"it has no MCP servers ({key!r}): add one to the client first")
    for name, entry in servers.items():
        if not isinstance(entry, dict):
            raise ConfigError(f"the server {name!r} is not an object: correct it first")
    return servers


_WRAP = ["mcp", "wrap"]
_OWN = re.compile(r"(?:.*[/\\])?ctxfs(?:\.exe)?")
_SETTINGS = {"darwin": "Library/", "win32": "AppData/"}
"""Where programs with windows have their settings, under the user's home; elsewhere ``.config/``."""
_HEADER = "CTXFS_HEADER_"
"""Values of headers are often secrets, so they stand in the environment; these are the names of their variables."""


class Client(NamedTuple):
    """A client. ``paths``: where its configuration may be, under the user's home.

    ``key``: the object with its servers. ``urls``: the fields that hold a URL which it reaches by Streamable HTTP.
    """

    title: str
    paths: tuple[str, ...]
    key: str = "mcpServers"
    urls: tuple[str, ...] = ("url",)
    environment: str = "env"

    def places(self, platform: str) -> tuple[str, ...]:
        """Those of its paths that a system has (``sys.platform``); the first that is there counts."""
        own = _SETTINGS.get(platform, ".config/")
        return tuple(path for path in self.paths if path.startswith(own)) or self.paths


CLIENTS: Mapping[str, Client] = {
    "claude-code": Client("Claude Code", (".claude.json",)),
    "claude-desktop": Client(
        "Claude Desktop",
        (
            "Library/Application Support/Claude/claude_desktop_config.json",
            "AppData/Roaming/Claude/claude_desktop_config.json",
            ".config/Claude/claude_desktop_config.json",
        ),
    ),
    "codex": Client("Codex", (".codex/config.toml",), key="mcp_servers"),
    "cursor": Client("Cursor", (".cursor/mcp.json",)),
    "vscode": Client(
        "VS Code",
        (
            "Library/Application Support/Code/User/mcp.json",
            "AppData/Roaming/Code/User/mcp.json",
            ".config/Code/User/mcp.json",
        ),
        key="servers",
    ),
    "gemini": Client("Gemini CLI", (".gemini/settings.json",), urls=("httpUrl",)),
    "opencode": Client(
        "opencode",
        (".config/opencode/opencode.json", ".config/opencode/opencode.jsonc"),
        key="mcp",
        environment="environment",
    ),
    "windsurf": Client("Windsurf", (".codeium/windsurf/mcp_config.json",), urls=("serverUrl", "url")),
}
"""By the name that the command line takes."""


def client_named(name: str) -> Client:
    """The client. Raises ``ConfigError`` for a name that is not in the table."""
    if name not in CLIENTS:
        raise ConfigError(f"unknown client {name!r}{did_you_mean(name, CLIENTS)}: use one of {', '.join(CLIENTS)}")
    return CLIENTS[name]


def file_of(client: Client, text: str, path: Path) -> ClientFile:
    """A client's configuration. Raises ``ConfigError``, which names the file, if it is not one."""
    kind: Callable[[str, str], ClientFile] = TomlFile if path.suffix == ".toml" else JsonFile
    try:
        return kind(text, client.key)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def is_wrapped(entry: Entry) -> bool:
    """Whether a server is already started by ``ctxfs mcp wrap``."""
    words = _command(entry)
    return any(words[place : place + 2] == _WRAP for place in (1, 3)) and _is_ctxfs(words)


def wrappable(file: ClientFile, name: str | None) -> list[str]:
    """The servers to wrap: the one with this name, or all that are not wrapped yet (None); ctxfs's own are left out.

    Raises:
        ConfigError: there is no server of this name, or it need not be wrapped.

    """
    if name is None:
        return [one for one, entry in file.servers.items() if not _is_ctxfs(_command(entry))]
    if name not in file.servers:
        known = ", ".join(file.servers)
        raise ConfigError(
            f"there is no server {name!r}{did_you_mean(name, file.servers)}: the configuration names {known}"
        )
    if is_wrapped(file.servers[name]):
        raise ConfigError(f"the server {name!r} is wrapped already")
    if _is_ctxfs(_command(file.servers[name])):
        raise ConfigError(f"the server {name!r} is one of ctxfs: it need not be wrapped")
    return [name]


def wrapped(client: Client, name: str, entry: Entry, program: Sequence[str]) -> dict[str, Any]:
    """The entry with which the client starts ``program`` (ctxfs), which then starts or reaches the server.

    Raises ``ConfigError`` if it cannot be told how the client reaches the server.
    """
    if _has_words(entry):
        return {**entry, "command": [*program, *_WRAP, "--", *entry["command"]]}
    if _has_program(entry):
        arguments = [*program[1:], *_WRAP, "--", entry["command"], *entry.get("args", [])]
        return {**entry, "command": program[0], "args": arguments}
    url = _url_of(client, entry)
    if url is None:
        raise ConfigError(
            f"the server {name!r} has neither a command nor a URL for Streamable HTTP, so it cannot be wrapped: "
            "choose others with --server"
        )
    return _wrapped_url(client, entry, url, program)


def can_be_wrapped(client: Client, entry: Entry) -> bool:
    """Whether it can be told how the client reaches a server: by a command, or by a URL for Streamable HTTP."""
    return _has_words(entry) or _has_program(entry) or _url_of(client, entry) is not None


def _has_words(entry: Entry) -> bool:
    """Whether the command and its arguments are one list."""
    return isinstance(entry.get("command"), list) and bool(entry["command"]) and "args" not in entry


def _has_program(entry: Entry) -> bool:
    return isinstance(entry.get("command"), str) and isinstance(entry.get("args", []), list)


def _url_of(client: Client, entry: Entry) -> str | None:
    """The URL for Streamable HTTP; None: there is none, as where the server speaks the older HTTP with SSE."""
    if entry.get("type") == "sse":
        return None
    return next((entry[field] for field in client.urls if isinstance(entry.get(field), str)), None)


def _wrapped_url(client: Client, entry: Entry, url: str, program: Sequence[str]) -> dict[str, Any]:
    headers: list[str] = []
    environment = dict(entry.get(client.environment) or {})
    passed = list(entry.get("env_vars") or ())
    given = {**(entry.get("headers") or {}), **(entry.get("http_headers") or {})}
    for number, (header, value) in enumerate(given.items(), 1):
        environment[f"{_HEADER}{number}"] = value
        headers += ["--header", f"{header}={{{_HEADER}{number}}}"]
    for header, variable in (entry.get("env_http_headers") or {}).items():
        headers += ["--header", f"{header}={{{variable}}}"]
        passed.append(variable)
    if (variable := entry.get("bearer_token_env_var")) is not None:
        headers += ["--header", f"Authorization=Bearer {{{variable}}}"]
        passed.append(variable)
    words = [*program, *_WRAP, "--url", url, *headers]
    gone = {*client.urls, "headers", "http_headers", "env_http_headers", "bearer_token_env_var", "type", "env_vars"}
    new: dict[str, Any] = {}
    if "type" in entry:
        new["type"] = "local" if entry["type"] == "remote" else "stdio"
    if client.key == "mcp":  # opencode has the command and its arguments in one list
        new["command"] = words
    else:
        new["command"] = words[0]
        new["args"] = words[1:]
    if environment:
        new[client.environment] = environment
    if passed:
        new["env_vars"] = passed
    rest = {field: value for field, value in entry.items() if field not in gone and field != client.environment}
    return {**new, **rest}


def with_wrapped(client: Client, file: ClientFile, names: Collection[str], program: Sequence[str]) -> str:
    """The configuration's text with these servers wrapped."""
    return file.replaced({name: wrapped(client, name, file.servers[name], program) for name in names})


def without_wrapped(client: Client, text: str, path: Path, before: str | None, program: Sequence[str]) -> str:
    """The configuration's text as it is without ctxfs. ``before``: the copy of it from before, if there is one.

    If nothing else was changed since, that is the copy. Otherwise only the entries are restored.

    Raises:
        ConfigError: a server is wrapped that the copy does not have, so that its entry is not known.

    """
    file = file_of(client, text, path)
    names = [name for name, entry in file.servers.items() if is_wrapped(entry)]
    if not names:
        return text
    old = None if before is None else file_of(client, before, path)
    if before is None or old is None or (missing := [name for name in names if name not in old.servers]):
        lacking = ", ".join(names if old is None else missing)
        raise ConfigError(f"{path}: no copy has the entries of before of {lacking}: change them by hand")
    if with_wrapped(client, old, names, program) == text:
        return before
    return file.restored(names, before)


def _command(entry: Entry) -> list[str]:
    """The words with which a server is started; []: it is reached by a URL."""
    command = entry.get("command")
    words = command if isinstance(command, list) else [command, *(entry.get("args") or ())]
    return [word for word in words if isinstance(word, str)]


def _is_ctxfs(words: Sequence[str]) -> bool:
    return bool(words) and (_OWN.fullmatch(words[0]) is not None or words[1:3] == ["-m", "ctxfs"])
