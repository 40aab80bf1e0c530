"""The text of a client's configuration: its MCP servers are read and replaced, and all else stays as it is. Pure."""

import json
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from typing_extensions import override

from ctxfs.adapters.extras import needs
from ctxfs.errors import ConfigError

_SPACE = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
"""What may stand between two tokens; clients that read comments are many, and those that do not refuse them."""

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
