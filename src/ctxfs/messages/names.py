"""How things are named: session ids, item ids and the files of a session. Pure.

Ids come from models, servers and users. A readable safe id keeps its name; any other becomes a readable prefix, "~" and
a hash, which no safe id can be. Follows "Context FileSystem 上下文卸载功能" for the shapes of paths and session ids.
"""

import base64
import hashlib
import random
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal, get_args

from ctxfs.errors import ConfigError
from ctxfs.errors.checks import names_settings, require_int
from ctxfs.messages.items import ItemType
from ctxfs.messages.messages import Content
from ctxfs.text.jsontext.write_stream import is_longer

ARTIFACTS = "artifacts/"

TERMINAL = f"{ARTIFACTS}terminal/"

MESSAGE = "msg_"
"""The beginnings of message ids, since messages bring no ids."""

COMPRESSED_SUFFIX = ".zst"
"""The end of a compressed file's name."""

SHORT = "stored/"
"""The beginning of the short names of stored contents. No file has such a name."""

SHORT_LENGTH = 8

SESSION_SCHEME = "ctxfs://"

MAX_NAME = 120

PREFIX_LENGTH = 80

HASH_BYTES = 15

RANDOM_LENGTH = 6

RANDOM_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"

SAFE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,119}")

UNSAFE_CHARACTER = re.compile(r"[^A-Za-z0-9_.-]")

HASHED = re.compile(r"\.[a-z2-7]{24}\Z")
"""The end of a session id that was made from a text which is not a valid id."""

RESERVED = frozenset({"con", "prn", "aux", "nul", *(f"{port}{n}" for port in ("com", "lpt") for n in range(10))})


def safe_name(raw: str) -> str:
    """Return a file name for ``raw``: ASCII, at most 120 characters, safe on every file system.

    Distinct ids give distinct names, which may differ in case only: see ``NameAllocator``.
    """
    if _is_safe(raw):
        return raw
    prefix = UNSAFE_CHARACTER.sub("_", raw[:PREFIX_LENGTH]).lstrip(".-") or "_"
    if _is_reserved(prefix):
        prefix = f"_{prefix}"
    return f"{prefix}~{_hash(raw)}"


def _hash(raw: str) -> str:
    digest = hashlib.sha256(raw.encode("utf-8", "surrogatepass")).digest()[:HASH_BYTES]
    return base64.b32encode(digest).decode().lower()


def _is_safe(raw: str) -> bool:
    return SAFE.fullmatch(raw) is not None and raw[-1] != "." and not _is_reserved(raw)


def _is_reserved(name: str) -> bool:
    return name.partition(".")[0].lower() in RESERVED


def short_name(item_id: str) -> str:
    """Return a second name for the content of ``item_id``, always the same for the same id.

    Two ids may have the same one, though this hardly ever happens; it then names neither.
    """
    return f"{SHORT}{_hash(item_id)[:SHORT_LENGTH]}"


def artifact_name(item_id: str, *, is_json: bool) -> str:
    """Name a tool's whole output, as in "Tool Output Materialization"; ``item_id`` is safe already."""
    return f"{ARTIFACTS}tool/{item_id}.{'json' if is_json else 'txt'}"


LayoutName = Literal["envelope", "text"]

_COMPRESSED_FROM: Mapping[str, int] = MappingProxyType({"envelope": 32_768, "text": 0})
"""Compressing smaller envelopes would gain nothing: they take a few blocks of the disk in any case. Files of the layout
"text" are for tools that know nothing of ctxfs."""


@names_settings()
@dataclass(frozen=True, slots=True)
class Layout:
    """In which form contents are stored.

    ``name``: "envelope" is JSON with metadata; "text" is the content as it is, with its metadata in the index, for
    tools that are not part of ctxfs. Artifacts are stored as they are in both. ``compress_from_chars``: content whose
    JSON has more than about this many characters is compressed (zstd), and its file's name ends in ``.zst``; 0: none
    is. None: 32,768 for "envelope", 0 for "text". Artifacts never are.

    Raises:
        ConfigError: an unknown name, or a size that is not a whole number of 0 or more.
    """

    name: LayoutName
    compress_from_chars: int | None = None

    def __post_init__(self) -> None:
        if self.name not in get_args(LayoutName):
            raise ConfigError(f"layout is {self.name!r}: use one of {', '.join(get_args(LayoutName))}")
        if self.compress_from_chars is not None:
            require_int("compress_from_chars", self.compress_from_chars, at_least=0)

    @property
    def compressed_from_chars(self) -> int:
        """``compress_from_chars``, or what the layout has in its place; 0: nothing is compressed."""
        if self.compress_from_chars is None:
            return _COMPRESSED_FROM[self.name]
        return self.compress_from_chars

    @property
    def raw(self) -> bool:
        """Whether the files of all contents are the contents as they are."""
        return self.name == "text"

    @property
    def extension(self) -> str:
        """The end of the names of files that are not compressed."""
        return ".txt" if self.raw else ".json"

    def file_name(
        self, item_type: ItemType, item_id: str, tool_name: str | None, content: Content | None = None
    ) -> str:
        """Return the name of an item's file; ``item_id`` is safe already; ``content``: None means that it is small."""
        directory = f"{item_type}" if tool_name is None else f"{item_type}/{safe_name(tool_name)}"
        limit = self.compressed_from_chars
        compressed = content is not None and limit > 0 and is_longer(content, limit)
        return f"{directory}/{item_id}{self.extension}{COMPRESSED_SUFFIX if compressed else ''}"

    def is_raw(self, name: str) -> bool:
        """Whether the file ``name`` is its content as it is."""
        return self.raw or name.startswith(ARTIFACTS)


ENVELOPE = Layout("envelope")

TEXT = Layout("text")


def as_layout(layout: Layout | LayoutName) -> Layout:
    """The setting ``layout`` as a ``Layout``. Raises ``ConfigError`` for another name."""
    return layout if isinstance(layout, Layout) else Layout(layout)


def layout_of(recorded: str | None, wanted: Layout) -> Layout:
    """Return the layout of a session whose journal names ``recorded``, None if it names none.

    A session keeps its layout. If ``wanted`` has the same name, it sets from which size on contents are compressed.
    """
    if recorded in (None, wanted.name):
        return wanted
    return TEXT if recorded == TEXT.name else ENVELOPE


def is_compressed(name: str) -> bool:
    """Whether the file that a session gave this name is compressed."""
    return name.endswith(COMPRESSED_SUFFIX)


class NameAllocator:
    """The names that a session has given out: no two are equal, even where case does not count.

    ``layout``: that of the session's files.
    """

    def __init__(self, taken: Iterable[str] = (), *, layout: Layout = ENVELOPE) -> None:
        self.layout = layout
        # Taken names are written to the first layer; a draft puts its own layer on top of those that it came from.
        self._layers: tuple[set[str], ...] = (set(),)
        self._repeats: tuple[dict[str, int], ...] = ({},)  # up to which number repeats are taken, without a gap
        self._messages = 0  # the same for msg_001, msg_002, ...
        self._terminals = 0
        self.take(taken)

    @property
    def drafted(self) -> Collection[str]:
        """The ids that were taken here, and not in what this is a draft of; case does not count."""
        return self._layers[0]

    def draft(self) -> "NameAllocator":
        """Return a draft that gives out names provisionally: they are taken here only by ``take``."""
        draft = NameAllocator(layout=self.layout)
        draft._layers = (set(), *self._layers)
        draft._repeats = ({}, *self._repeats)
        draft._messages = self._messages
        return draft

    def is_free(self, item_id: str) -> bool:
        """Whether no item has this id, whatever its case."""
        key = item_id.casefold()
        for layer in self._layers:  # noqa: SIM110 - asked for every name, often
            if key in layer:
                return False
        return True

    def take(self, item_ids: Iterable[str]) -> None:
        """Never give out these ids."""
        taken = self._layers[0]
        for item_id in item_ids:
            key = item_id.casefold()
            if key in taken:
                continue
            taken.add(key)
            if "~" in key:
                name = key.rpartition("~")[0]
                while not self.is_free(f"{name}~{self._repeated(name) + 1}"):
                    self._repeats[0][name] = self._repeated(name) + 1
            elif key.startswith(MESSAGE):
                # It counts up, so that no draft has to do it again.
                self._next_message()

    def allocate(
        self, item_type: ItemType, raw_id: str | None, tool_name: str | None = None, content: Content | None = None
    ) -> tuple[str, str]:
        """Return a new item id and the name of the file for its ``content`` (None: it will be small).

        Without a ``raw_id`` (None or empty) a message gets the next of msg_001, msg_002, ... A repeated id becomes
        ``id~2``, ``id~3``, ...
        """
        if raw_id or item_type is ItemType.TOOL_RESULT:
            item_id = self._free_id(safe_name(raw_id or ""))
        else:
            item_id = self._next_message()
        self.take([item_id])
        return item_id, self.layout.file_name(item_type, item_id, tool_name, content)

    def allocate_terminal(self) -> tuple[str, str]:
        """Return a new id for what a command prints, terminal_001, terminal_002, ..., and the name of its file."""
        while True:
            self._terminals += 1
            snippet_id = f"terminal_{self._terminals:03}"
            if self.is_free(snippet_id):
                self.take([snippet_id])
                return snippet_id, f"{TERMINAL}{snippet_id}.log"

    def _next_message(self) -> str:
        while not self.is_free(item_id := f"{MESSAGE}{self._messages + 1:03}"):
            self._messages += 1
        return item_id

    def _repeated(self, name: str) -> int:
        return next((layer[name] for layer in self._repeats if name in layer), 1)

    def _free_id(self, name: str) -> str:
        if self.is_free(name):
            return name
        number = self._repeated(name.casefold())
        while True:
            number += 1
            suffix = f"~{number}"
            item_id = name[: MAX_NAME - len(suffix)] + suffix
            if self.is_free(item_id):
                return item_id


def new_session_id(now: datetime, rng: random.Random) -> str:
    """Return ``session_YYYYMMDD_HHMMSS_xxxxxx``, in UTC. ``now`` must know its time zone."""
    stamp = now.astimezone(UTC).strftime("%Y%m%d_%H%M%S")
    return f"session_{stamp}_{''.join(rng.choices(RANDOM_ALPHABET, k=RANDOM_LENGTH))}"


def session_name(raw: str) -> str:
    """Return a session id for ``raw``, such as a framework's id of a thread; distinct ones give distinct ids."""
    name = safe_name(raw)
    if name == raw and not HASHED.search(raw):
        return name
    prefix = name.partition("~")[0][:PREFIX_LENGTH]
    return f"{prefix}.{_hash(raw)}"


def path_of(base: str, name: str) -> str:
    """The path of a file of the session whose paths begin with ``base``: see ``ContextFileSystem.base``."""
    return f"{base}/{name}"


def logical_base(session_id: str) -> str:
    """The beginning of the paths of a session that is in no directory of this machine: the same on every machine."""
    return f"{SESSION_SCHEME}{session_id}"


def check_session_id(session_id: str) -> str:
    """Return ``session_id`` if it can name a directory on every system. Raises ``ConfigError``."""
    given: object = session_id
    if not isinstance(given, str) or not _is_safe(given):
        raise ConfigError(
            f"session id {session_id!r}: use letters, digits, '_', '.' and '-', at most {MAX_NAME}, "
            "not starting with '.' or '-', and not a name that Windows reserves"
        )
    return session_id
