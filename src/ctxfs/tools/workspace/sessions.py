"""The sessions of a workspace that are open: one writer each, kept open as long as there is room."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from weakref import WeakValueDictionary

import anyio

from ctxfs.errors import ConfigError, SessionClosed
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import ToolMessage
from ctxfs.messages.names import Layout, safe_name
from ctxfs.session.content.stored import Stored
from ctxfs.session.filesystem import ContextFileSystem
from ctxfs.storage.sessions import SessionStores
from ctxfs.storage.threads import uninterrupted
from ctxfs.tools.workspace.artifacts import Artifact, artifact_text, info_of


class OpenSession:
    """A session that artifacts can be added to."""

    def __init__(self, fs: ContextFileSystem, *, ours: bool) -> None:
        self.fs = fs
        self.ours = ours
        self.users = 0
        self._unused: dict[tuple[str, str | None], list[tuple[str, str]]] = {}
        self._turns: WeakValueDictionary[str, anyio.Lock] = WeakValueDictionary()

    async def add(self, artifacts: Sequence[Artifact]) -> list[Stored]:
        """Store artifacts, all of them or none, and return their records.

        One that is stored already, under its id, with the same metadata and content, is not stored again; another
        content of an id that is taken gets the id ``id~2``, ``id~3``, ...
        """
        async with AsyncExitStack() as turns:
            # One at a time under each id, or the same artifact would be stored twice; others share their syncs.
            for artifact_id in sorted({artifact.artifact_id for artifact in artifacts}):
                await turns.enter_async_context(self._turns.setdefault(artifact_id, anyio.Lock()))
            return await self._add(artifacts)

    async def _add(self, artifacts: Sequence[Artifact]) -> list[Stored]:
        ids: list[str] = []
        new: dict[str, Artifact] = {}
        items: list[ContextItem] = []
        try:
            for artifact in artifacts:
                # It is one of three cases: in the list already, stored already, or new.
                item_id = _covered(new, artifact) or await self._known(artifact)
                if item_id is None:
                    item = self._item(artifact)
                    item_id = item.id
                    items.append(item)
                    new[item_id] = artifact
                ids.append(item_id)
            metadata = {item_id: artifact.recorded_metadata() for item_id, artifact in new.items()}
            await self.fs.writer.store(items, metadata=metadata)
        except BaseException:
            self._release([item for item in items if item.id not in self.fs.state.stored])
            raise
        stored = self.fs.state.stored
        return [stored[item_id] for item_id in ids]

    async def _known(self, artifact: Artifact) -> str | None:
        """Return the id under which the same artifact is stored already."""
        stored = self.fs.state.stored
        if safe_name(artifact.artifact_id) not in stored:
            return None
        for entry in tuple(stored.values()):
            # What a file need not be read for is compared first.
            if info_of("", self.fs.session_id, entry).raw_id != artifact.artifact_id:
                continue
            if entry.chars != len(artifact.content) or not _has(entry.metadata, artifact):
                continue
            if artifact_text(await self.fs.load(entry.item_id)) == artifact.content:
                return entry.item_id
        return None

    def _item(self, artifact: Artifact) -> ContextItem:
        """The item that stores an artifact, with an id that nothing else gets."""
        tool_name = artifact.metadata.get("tool_name")
        unused = self._unused.get((artifact.artifact_id, tool_name))
        raw_id = artifact.artifact_id
        if unused:
            item_id, name = unused.pop()
        else:
            item_id, name = self.fs.writer.allocate(ItemType.TOOL_RESULT, raw_id, tool_name, artifact.content)
        message = ToolMessage(tool_call_id=raw_id, tool_name=tool_name or "", content=artifact.content)
        return ContextItem(
            id=item_id, item_type=ItemType.TOOL_RESULT, message=message, name=name, token_count=0, content_tokens=0
        )

    def _release(self, items: Sequence[ContextItem]) -> None:
        """Keep the ids of items that were not stored for the next artifacts of the same id and tool."""
        for item in items:
            if isinstance(item.message, ToolMessage):
                key = (item.message.tool_call_id, item.message.tool_name or None)
                self._unused.setdefault(key, []).append((item.id, item.name))


def _has(metadata: Mapping[str, Any], artifact: Artifact) -> bool:
    """Whether ``metadata`` says all that the artifact's own does."""
    return artifact.recorded_metadata().items() <= metadata.items()


def _covered(new: Mapping[str, Artifact], artifact: Artifact) -> str | None:
    """The id in ``new`` of an artifact that is the same, with the same metadata or more; None: there is none."""
    for item_id, other in new.items():
        same = (other.artifact_id, other.content) == (artifact.artifact_id, artifact.content)
        if same and _has(other.recorded_metadata(), artifact):
            return item_id
    return None


class OpenSessions:
    """The open sessions of one place, at most ``limit`` of them unless more are in use at once."""

    def __init__(self, stores: SessionStores, *, layout: Layout, limit: int) -> None:
        self._stores = stores
        self._layout = layout
        self._limit = limit
        self._sessions: dict[str, OpenSession] = {}
        self._turn = anyio.Lock()
        self._closed = False

    def attach(self, fs: ContextFileSystem) -> None:
        """Use a session that somebody else opened, and closes. Raises ``ConfigError``."""
        if fs.stores.url != self._stores.url:
            raise ConfigError(f"session {fs.session_id} lies under {fs.stores.url}, not under {self._stores.url}")
        known = self._sessions.get(fs.session_id)
        if known is not None and known.fs is not fs and known.fs.is_open:
            raise ConfigError(f"session {fs.session_id} is open in this workspace already")
        if known is None or known.fs is not fs:
            self._sessions[fs.session_id] = OpenSession(fs, ours=False)

    @asynccontextmanager
    async def writing(self, session_id: str) -> AsyncIterator[OpenSession]:
        """Give the session's one writer; it is opened, and made, when it has to be. Raises ``SessionLocked``."""
        async with self._turn:
            self._check()
            session = self._sessions.pop(session_id, None)
            if session is None or not session.fs.is_open:
                await self._make_room()
                fs = ContextFileSystem(session_id, root_path=self._stores, layout=self._layout)
                await fs.open()
                session = OpenSession(fs, ours=True)
            self._sessions[session_id] = session  # the last used is the last to go
            session.users += 1
        try:
            yield session
        finally:
            session.users -= 1

    @asynccontextmanager
    async def reading(self, session_id: str) -> AsyncIterator[ContextFileSystem]:
        """Yield the session to read from, whether or not another process writes it. Raises ``SessionNotFound``."""
        session = self._sessions.get(session_id)
        if session is not None and session.fs.is_open:
            session.users += 1
            try:
                yield session.fs
            finally:
                session.users -= 1
            return
        self._check()
        fs = ContextFileSystem(session_id, root_path=self._stores, read_only=True)
        await fs.open(create=False)
        try:
            yield fs
        finally:
            await fs.close()

    async def _make_room(self) -> None:
        ours = [(name, session) for name, session in self._sessions.items() if session.ours]
        for name, session in ours[: max(0, len(ours) - self._limit + 1)]:
            if not session.users:
                del self._sessions[name]
                await session.fs.close()

    def _check(self) -> None:
        if self._closed:
            raise SessionClosed("the workspace is closed: open a new KnowledgeService")

    @uninterrupted
    async def close(self) -> None:
        """Close the sessions that were opened here, even when one of them cannot be closed in order; idempotent."""
        async with self._turn, AsyncExitStack() as closing:
            self._closed = True
            while self._sessions:
                _, session = self._sessions.popitem()
                if session.ours:
                    closing.push_async_callback(session.fs.close)
