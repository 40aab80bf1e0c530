"""What the workspace keeps: artifacts, and what is known of them without reading them. Pure.

Follows "Context Offload：Tool Result 落盘与访问" for the metadata: ``context_type``, ``biz_id``, ``agent_id``,
``task_id``, ``session_id``, ``tool_name`` and ``action_name``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, overload

from ctxfs.errors import ConfigError, UnknownItem
from ctxfs.errors.checks import require_int
from ctxfs.messages.messages import Content
from ctxfs.session.content.stored import Stored
from ctxfs.text.jsontext import codec as json_codec

TOOL_RESULT = "tool_result"
FIELDS = ("context_type", "biz_id", "agent_id", "task_id", "session_id", "tool_name", "action_name")
_MOST = 2**62  # SQLite and C count to the double, and one more than this must not be too many for them
_OURS = frozenset({"encoding", "tool_call_id", "artifact_type", "is_error", "label"})


class ArtifactType(StrEnum):
    """What an artifact's text is."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Artifact:
    """A text to keep in the workspace, whole.

    ``artifact_id`` is any text; for a tool result it is the tool call's id. ``metadata`` is JSON; ``session_id`` in it
    says which session keeps the artifact, ``context_type`` is "tool_result" where it is not given, ``biz_id`` the
    ``artifact_id``.

    Raises:
        ConfigError: ``metadata`` is not a mapping or has a key that the store itself uses; the type is unknown; the id,
            the content or one of the named fields is not text.
    """

    artifact_id: str
    content: str
    artifact_type: ArtifactType = ArtifactType.TEXT
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in (("artifact_id", self.artifact_id), ("content", self.content)):
            if not isinstance(value, str):
                raise ConfigError(f"an artifact's {name} is a {type(value).__name__}: it must be text")
        if self.artifact_type not in tuple(ArtifactType):
            raise ConfigError(f"artifact_type is {self.artifact_type!r}: use one of {', '.join(ArtifactType)}")
        if not isinstance(self.metadata, Mapping):
            raise ConfigError(f"metadata is {self.metadata!r}: use a mapping")
        taken = sorted(_OURS & self.metadata.keys())
        if taken:
            raise ConfigError(f"an artifact's metadata cannot have the key {taken[0]!r}: the store uses it")
        for key in FIELDS:
            if not isinstance(self.metadata.get(key), str | None):
                raise ConfigError(f"an artifact's {key} must be text or None, not {self.metadata[key]!r}")

    @property
    def session_id(self) -> str:
        """The session that keeps it. Raises ``ConfigError`` when the metadata does not say."""
        session_id = self.metadata.get("session_id")
        if not isinstance(session_id, str):
            raise ConfigError(f"artifact {self.artifact_id!r}: metadata['session_id'] must say which session keeps it")
        return session_id

    def with_metadata(self, **values: Any) -> "Artifact":
        """Return the artifact with these values in its metadata."""
        return replace(self, metadata={**self.metadata, **values})

    def recorded_metadata(self) -> dict[str, Any]:
        """What is recorded beside the content."""
        given = {key: value for key, value in self.metadata.items() if value is not None}
        return {"context_type": TOOL_RESULT, "biz_id": self.artifact_id, **given, "artifact_type": self.artifact_type}


@dataclass(frozen=True, slots=True, kw_only=True)
class ArtifactInfo:
    """An artifact as the workspace knows it, without its content.

    ``artifact_id`` is its id in its session: the id it was stored with wherever that can name a file and was free.
    ``raw_id`` is the id it was stored with. ``chars`` counts code points, ``lines`` what ``get_knowledge_by_lines``
    counts, ``stored_at`` is in whole seconds since the epoch. ``path`` is the file, absolute.
    """

    artifact_id: str
    raw_id: str
    artifact_type: ArtifactType
    path: str
    chars: int
    lines: int
    size_bytes: int
    stored_at: int
    session_id: str
    context_type: str
    biz_id: str
    agent_id: str | None = None
    task_id: str | None = None
    tool_name: str | None = None
    action_name: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ArtifactPage(Sequence[ArtifactInfo]):
    """Some of the artifacts that a query found, by session and in the order they were stored; ``total`` counts all."""

    artifacts: tuple[ArtifactInfo, ...]
    total: int

    @overload
    def __getitem__(self, index: int) -> ArtifactInfo: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ArtifactInfo, ...]: ...
    def __getitem__(self, index: int | slice) -> ArtifactInfo | tuple[ArtifactInfo, ...]:
        return self.artifacts[index]

    def __len__(self) -> int:
        return len(self.artifacts)

    def __iter__(self) -> Iterator[ArtifactInfo]:
        return iter(self.artifacts)


def info_of(root: str, session_id: str, stored: Stored) -> ArtifactInfo:
    """Describe what a session stored; what the core stored by itself is an artifact too."""
    metadata = stored.metadata
    raw_id = raw_id_of(stored)
    return ArtifactInfo(
        artifact_id=stored.item_id,
        raw_id=raw_id,
        artifact_type=_type_of(stored),
        path=f"{root}/{session_id}/{stored.name}",
        chars=stored.chars,
        lines=stored.lines,
        size_bytes=stored.size_bytes,
        stored_at=stored.offloaded_at,
        session_id=session_id,  # not the recorded one: a session can be imported under another id
        context_type=_text(metadata, "context_type") or stored.item_type.value,
        biz_id=_text(metadata, "biz_id") or raw_id,
        agent_id=_text(metadata, "agent_id"),
        task_id=_text(metadata, "task_id"),
        tool_name=_text(metadata, "tool_name") or None,
        action_name=_text(metadata, "action_name"),
        metadata={key: value for key, value in metadata.items() if key not in _OURS and key not in FIELDS},
    )


def check_whole(least: int, **settings: object) -> None:
    """Raise ``ConfigError`` for a setting that is not a whole number of at least ``least``."""
    for name, value in settings.items():
        require_int(name, value, at_least=least, at_most=_MOST)


def find(stored: Mapping[str, Stored], ref: str) -> Stored:
    """Find an artifact by its id in the session or by the id it was stored with; of several the newest.

    Raises ``UnknownItem``; that is also what an id of another session is.
    """
    if ref in stored:
        return stored[ref]
    for entry in reversed(tuple(stored.values())):
        if raw_id_of(entry) == ref:
            return entry
    raise UnknownItem(ref)


def artifact_text(content: Content) -> str:
    """Return stored content as an artifact's text: content blocks as their JSON."""
    return content if isinstance(content, str) else json_codec.dumps(content).decode()


def raw_id_of(stored: Stored) -> str:
    """The id that an artifact was stored with."""
    raw_id = _text(stored.metadata, "tool_call_id")
    return stored.item_id if raw_id is None else raw_id


def _type_of(stored: Stored) -> ArtifactType:
    if stored.metadata.get("artifact_type") == ArtifactType.JSON or stored.encoding.startswith("blocks"):
        return ArtifactType.JSON
    return ArtifactType.TEXT


def _text(metadata: Mapping[str, Any], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None
