"""The workspace: whole tool results as artifacts, in the sessions under one root, found again across all of them.

Follows "Context Offload：Tool Result 落盘与访问".

``<knowledge_list>`` represents large artifacts in the context. What a tool or a model wrote is escaped in it, so
that no content can close the list or add an entry.
"""

import html
import logging
import re
import reprlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

import anyio

from ctxfs.errors import AmbiguousItem, ConfigError, CtxfsError, SessionNotFound, UnknownItem
from ctxfs.errors.checks import async_with_only, names_settings, require_text
from ctxfs.eviction.placeholder.digest import DEFAULT_BUDGET_TOKENS, describe
from ctxfs.messages.names import ENVELOPE, Layout, LayoutName, as_layout, check_session_id
from ctxfs.messages.tokens import TokenCounter, load_counter, require_counter
from ctxfs.session.content.stored import Stored
from ctxfs.session.derived import COLUMNS, DERIVED_NAME, Derived
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import run_in_steps, run_to_completion, uninterrupted
from ctxfs.storage.urls import stores_at
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.tools.search.line_pattern import LinePattern
from ctxfs.tools.search.page import DEFAULT_MATCHES, grep_page
from ctxfs.tools.stored import Scope
from ctxfs.tools.workspace.artifacts import (
    FIELDS,
    TOOL_RESULT,
    Artifact,
    ArtifactInfo,
    ArtifactPage,
    artifact_text,
    check_whole,
    find,
    info_of,
)
from ctxfs.tools.workspace.catalogue import Catalogue, OpenSessions

logger = logging.getLogger("ctxfs.tools")

T = TypeVar("T")

INLINE_LIMIT_CHARS = 40_000
DEFAULT_QUERY_LIMIT = 1_000
MAX_OPEN_SESSIONS = 64
MAX_FILTER_KEYS = 100
GET_BY_ID = "get_knowledge_by_id"
GET_BY_LINES = "get_knowledge_by_lines"
GREP = "grep_knowledge"
QUERY = "query_artifacts"
INFO = "get_tool_result_offload_info"
_SHOWN_NAME_CHARS = 64
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_CONTROL_IN_TEXT = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


def render(entries: Iterable[tuple[ArtifactInfo, str]]) -> str:
    """The list of artifacts, each with its summary ("" for none) and the calls that read it."""
    return "\n".join(["<knowledge_list>", *(_entry(info, summary) for info, summary in entries), "</knowledge_list>"])


def _entry(info: ArtifactInfo, summary: str) -> str:
    tool = f' tool="{_attribute(_cut(info.tool_name))}"' if info.tool_name else ""
    size = f'type="{info.artifact_type}" lines="{info.lines}" chars="{info.chars}"'
    ref = f'"{_attribute(info.artifact_id)}"'
    calls = f"{GET_BY_ID}({ref}), {GET_BY_LINES}({ref}, start_line, end_line), {GREP}({ref}, pattern)"
    lines = [f"<knowledge id={ref}{tool} {size}>"]
    if summary:
        lines.append(_CONTROL_IN_TEXT.sub("\ufffd", html.escape(summary)))
    return "\n".join([*lines, f"Read it with {calls}.", "</knowledge>"])


def _attribute(value: str) -> str:
    return html.escape(_CONTROL.sub("\ufffd", value))


def _cut(value: str) -> str:
    return value if len(value) <= _SHOWN_NAME_CHARS else f"{value[:_SHOWN_NAME_CHARS]}…"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkspaceOffload:
    """What an offload gives: the text for the context, whether that is the whole content, and what was stored."""

    content: str
    inline: bool
    artifacts: tuple[ArtifactInfo, ...]


@async_with_only
@names_settings({"store": "give it as namespace, which takes a path, a URL or a SessionStores"})
class KnowledgeService:
    """The workspace of the sessions in ``namespace``.

    It is a directory, a URL (``s3://bucket/prefix``) or a ``SessionStores``; None is ``~/.agent/context``. Outside of a
    directory the catalogue is kept in memory, and made by reading all journals once.

    Artifacts of fewer than ``inline_limit_chars`` characters (code points) stay in the context as well, whole; 0 keeps
    none. ``digest_tokens`` bounds the summary of a larger one; 0 writes none. ``counter`` None is the default counter.
    ``layout`` applies to sessions that begin here. At most ``max_open_sessions`` sessions stay open for writing.

    Use it as ``async with``, or await ``close()``. Nothing is opened before it is needed.
    """

    def __init__(
        self,
        namespace: str | Path | SessionStores | None = None,
        *,
        inline_limit_chars: int = INLINE_LIMIT_CHARS,
        digest_tokens: int = DEFAULT_BUDGET_TOKENS,
        counter: TokenCounter | None = None,
        layout: Layout | LayoutName = ENVELOPE,
        max_open_sessions: int = MAX_OPEN_SESSIONS,
    ) -> None:
        check_whole(0, inline_limit_chars=inline_limit_chars, digest_tokens=digest_tokens)
        check_whole(1, max_open_sessions=max_open_sessions)
        require_counter(counter)
        self._stores = stores_at(namespace)
        self._inline_limit_chars = inline_limit_chars
        self._digest_tokens = digest_tokens
        self._counter = counter
        self._sessions = OpenSessions(self._stores, layout=as_layout(layout), limit=max_open_sessions)
        self._catalogue = Catalogue(self._stores, self._sessions)
        root = self._stores.directory
        self._derived = Derived(None if root is None else root / DERIVED_NAME, self._catalogue)
        self._catalogue_turn = anyio.Lock()

    @property
    def namespace(self) -> str:
        """The directory that holds the sessions, absolute, or the URL of their store."""
        return self._stores.url

    @property
    def counter(self) -> TokenCounter | None:
        """What counts tokens; None is the default counter."""
        return self._counter

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @uninterrupted
    async def close(self) -> None:
        """Close the sessions that were opened here, and the catalogue; idempotent."""
        try:
            await self._sessions.close()
        finally:
            async with self._catalogue_turn:
                await run_to_completion(self._derived.close)

    def attach(self, fs: ContextFileSystem) -> None:
        """Write into a session that is open already, an agent's for example; its owner closes it.

        Raises ``ConfigError`` when it lies elsewhere, or is open here under another writer.
        """
        self._sessions.attach(fs)

    # ---- writing

    async def add_knowledge_list(self, artifacts: Sequence[Artifact]) -> list[ArtifactInfo]:
        """Store artifacts, each in the session that its metadata names; those of one session all or none.

        The same artifact again, with the same metadata, is not stored twice. Another one under the same id is stored
        under the id ``id~2``; nothing is ever overwritten.

        Raises ``ConfigError`` (no session id, or one that cannot name a directory), ``SessionLocked``, ``WriteFailed``
        and ``InvalidRecord`` (metadata that is not JSON data).
        """
        _check_artifacts(artifacts)
        by_session: dict[str, list[int]] = {}
        for number, artifact in enumerate(artifacts):
            by_session.setdefault(check_session_id(artifact.session_id), []).append(number)
        added: dict[int, ArtifactInfo] = {}
        for session_id, numbers in by_session.items():
            async with self._sessions.writing(session_id) as session:
                stored = await session.add([artifacts[number] for number in numbers])
            infos = (info_of(self.namespace, session_id, entry) for entry in stored)
            added.update(zip(numbers, infos, strict=True))
        return [added[number] for number in range(len(artifacts))]

    async def offload_by_workspace(self, artifacts: Sequence[Artifact], biz_id: str) -> str:
        """Store artifacts under ``biz_id``, the tool call's id, and return what the context holds instead of them.

        That is the content itself as long as it has fewer than ``inline_limit_chars`` characters (of several artifacts:
        all of them together, by line), else a ``<knowledge_list>``. Raises like ``add_knowledge_list``; then nothing
        may be replaced.
        """
        return (await self.offload(artifacts, biz_id)).content

    async def offload(
        self, artifacts: Sequence[Artifact], biz_id: str, *, inline_chars: int | None = None
    ) -> WorkspaceOffload:
        """Do what ``offload_by_workspace`` does, and say what was stored.

        ``inline_chars``: how many characters the content would take in the context; None: as many as it has.
        """
        _check_artifacts(artifacts)
        require_text("biz_id", biz_id)
        artifacts = [artifact.with_metadata(biz_id=biz_id) for artifact in artifacts]
        fields = {"context_type": TOOL_RESULT, "biz_id": biz_id}
        try:
            infos = await self.add_knowledge_list(artifacts)
        except CtxfsError as error:
            text = "not offloaded: context_type=%s biz_id=%r: %s"
            logger.warning(text, TOOL_RESULT, biz_id, error, extra=fields)
            raise
        for info in infos:
            values = {name: getattr(info, name) for name in (*FIELDS, "artifact_id")}
            text = "offloaded: context_type=%s biz_id=%r session_id=%s artifact_id=%s"
            logger.info(text, info.context_type, biz_id, info.session_id, info.artifact_id, extra=values)
        if inline_chars is None:
            inline_chars = sum(len(artifact.content) for artifact in artifacts)
        if inline_chars < self._inline_limit_chars:
            whole = "\n".join(artifact.content for artifact in artifacts)
            return WorkspaceOffload(content=whole, inline=True, artifacts=tuple(infos))
        summaries = [await self._summary(artifact.content) for artifact in artifacts]
        listed = render(zip(infos, summaries, strict=True))
        return WorkspaceOffload(content=listed, inline=False, artifacts=tuple(infos))

    async def _summary(self, content: str) -> str:
        counter = self._counter or await load_counter()
        return await run_in_steps(lambda: describe(content, budget_tokens=self._digest_tokens, counter=counter))

    # ---- reading one artifact

    async def get_knowledge_by_id(self, artifact_id: str, *, session_id: str | None = None) -> Artifact:
        """Return an artifact, whole and checked.

        ``artifact_id`` is its id in its session or the id that it was stored with (of several the newest).
        ``session_id`` None looks in all sessions. Raises ``UnknownItem``, ``AmbiguousItem`` (several sessions have it)
        and ``CorruptContent``.
        """
        async with self.artifact(artifact_id, session_id) as (fs, stored):
            info = info_of(self.namespace, fs.session_id, stored)
            content = artifact_text(await fs.load(stored.item_id))
        named = {name: getattr(info, name) for name in FIELDS if getattr(info, name) is not None}
        return Artifact(
            artifact_id=info.artifact_id,
            content=content,
            artifact_type=info.artifact_type,
            metadata={**info.metadata, **named},
        )

    async def get_knowledge_by_lines(
        self, artifact_id: str, start_line: int, end_line: int, *, session_id: str | None = None
    ) -> str:
        r"""Return the lines ``start_line`` to ``end_line`` of an artifact, 1-based, both included, joined by ``\n``.

        Fewer at the end, "" after it. Raises ``ConfigError`` for lines that cannot be, else like
        ``get_knowledge_by_id``.
        """
        check_whole(1, start_line=start_line, end_line=end_line)
        if end_line < start_line:
            raise ConfigError(f"end_line is {end_line}: it cannot be before start_line, {start_line}")
        async with self.artifact(artifact_id, session_id) as (fs, stored):
            return "\n".join(await fs.reader(stored.item_id).lines(start_line, end_line))

    async def grep_knowledge(
        self,
        artifact_id: str,
        pattern: str,
        *,
        session_id: str | None = None,
        start_line: int = 1,
        context_lines: int = 0,
        max_matches: int = DEFAULT_MATCHES,
        ignore_case: bool = False,
    ) -> str:
        """Return the lines of an artifact that match a regular expression (RE2), numbered, bounded as for the model.

        ``context_lines`` are shown before and after each match. Raises ``InvalidToolArguments`` for a pattern that is
        none, ``ToolError`` for a ``start_line`` past the end, ``ConfigError`` for numbers that cannot be, else like
        ``get_knowledge_by_id``.
        """
        check_whole(1, start_line=start_line, max_matches=max_matches)
        check_whole(0, context_lines=context_lines)
        require_text("pattern", pattern)
        compiled = LinePattern(pattern, ignore_case=ignore_case)
        async with self.artifact(artifact_id, session_id) as (fs, stored):
            result = await grep_page(
                Scope(fs, counter=self._counter, offset="start_line"),
                stored.item_id,
                compiled,
                offset=start_line,
                max_matches=max_matches,
                context_lines=context_lines,
            )
        return artifact_text(result.content)

    @asynccontextmanager
    async def artifact(
        self, artifact_id: str, session_id: str | None = None
    ) -> AsyncIterator[tuple[ContextFileSystem, Stored]]:
        """Give the session that has an artifact, open, and its record; raises like ``get_knowledge_by_id``."""
        require_text("artifact_id", artifact_id)
        if session_id is None:
            session_id = await self._session_of(artifact_id)
        async with self.session(session_id) as fs:
            if fs is None:
                raise UnknownItem(artifact_id)
            yield fs, find(fs.state.stored, artifact_id)

    @asynccontextmanager
    async def session(self, session_id: str) -> AsyncIterator[ContextFileSystem | None]:
        """Yield a session to read from; None when it does not exist."""
        async with AsyncExitStack() as stack:
            fs: ContextFileSystem | None = None
            with suppress(SessionNotFound):
                fs = await stack.enter_async_context(self._sessions.reading(check_session_id(session_id)))
            yield fs

    async def _session_of(self, artifact_id: str) -> str:
        found = await self._ask(None, lambda db: self._catalogue.sessions_with(db, artifact_id))
        if not found:
            raise UnknownItem(artifact_id, workspace=self.namespace)
        if len(found) > 1:
            raise AmbiguousItem(artifact_id, found)
        return found[0]

    # ---- across sessions

    async def query_artifacts(
        self,
        search_filter: Mapping[str, Any] | None = None,
        *,
        limit: int | None = DEFAULT_QUERY_LIMIT,
        offset: int = 0,
    ) -> ArtifactPage:
        """Find the artifacts of all sessions whose metadata has every value of ``search_filter``.

        Keys are those of the metadata, also ``artifact_id``, ``raw_id`` and ``artifact_type``; a value None stands for
        what an artifact does not have. By session, in the order they were stored; at most ``limit`` (None: all) from
        ``offset`` on, and the page's ``total`` counts them all. Raises ``ConfigError`` for what cannot be asked.
        """
        wanted = _checked_filter({} if search_filter is None else search_filter)
        check_whole(0, offset=offset, limit=0 if limit is None else limit)
        only = wanted.get("session_id")
        session_id = check_session_id(only) if isinstance(only, str) else None
        return await self._ask(session_id, lambda db: self._catalogue.query(db, wanted, limit=limit, offset=offset))

    async def get_tool_result_offload_info(
        self, namespace: str | Path | None = None, task_id: str | None = None, session_id: str | None = None
    ) -> list[ArtifactInfo]:
        """List the tool results that were offloaded, of one task or session if it is given.

        ``namespace`` None is this workspace; another one is looked into without being kept open.
        """
        if namespace not in (None, self.namespace) and stores_at(namespace).url != self.namespace:
            async with KnowledgeService(namespace) as other:
                return await other.get_tool_result_offload_info(None, task_id, session_id)
        search_filter = {"context_type": TOOL_RESULT}
        if task_id is not None:
            search_filter["task_id"] = task_id
        if session_id is not None:
            search_filter["session_id"] = session_id
        return list(await self.query_artifacts(search_filter, limit=None))

    async def _ask(self, session_id: str | None, question: Callable[[sqlite3.Connection], T]) -> T:
        """Bring the catalogue up to date, and ask its database."""
        async with self._catalogue_turn:
            self._sessions.check_open()
            return await self._derived.ask(lambda db, _: question(db), session_id=session_id)


def _checked_filter(search_filter: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(search_filter, Mapping):
        raise ConfigError(f"search_filter is a {type(search_filter).__name__}: it must be a dict")
    if len(search_filter) > MAX_FILTER_KEYS:
        raise ConfigError(f"search_filter has {len(search_filter)} keys: use at most {MAX_FILTER_KEYS}")
    for key, value in search_filter.items():
        if not isinstance(key, str):
            raise ConfigError(f"search_filter has the key {key!r}: keys are text")
        if key in COLUMNS and not isinstance(value, str | None):
            raise ConfigError(f"search_filter[{key!r}] must be text or None, not {value!r}")
        try:
            json_codec.dumps(value)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"search_filter[{key!r}] cannot be JSON: {error}") from error
    return dict(search_filter)


def _check_artifacts(artifacts: object) -> None:
    """Raise ``ConfigError`` unless it is a sequence of artifacts."""
    if isinstance(artifacts, Sequence) and all(isinstance(artifact, Artifact) for artifact in artifacts):
        return
    raise ConfigError(f"artifacts is {reprlib.repr(artifacts)}: use a list of Artifact(...)")
