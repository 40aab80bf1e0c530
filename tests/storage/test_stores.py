"""The places where sessions are kept: what a URL means, and what an agent does in each."""

import ast
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest

from ctxfs import Agent, AgentConfig, Context, ContextFileSystem, History, tool
from ctxfs.errors import ConfigError, SessionNotFound, StorageError
from ctxfs.messages import ToolCall, UserMessage
from ctxfs.storage import LocalSessions, SessionStores, stores_at
from ctxfs.storage.memory import MemorySessions
from ctxfs.storage.threaded import ThreadedStore
from ctxfs.storage.threads import WAITING_THREADS
from ctxfs.stores import ObjectSessions, open_bucket
from ctxfs.testing import ScriptedModel
from ctxfs.testing.scripted import Turn
from ctxfs.tools import Bash, Materialize, recall_tools, retrieval_tools
from patience import HANGS_S
from storage.buckets import MemoryBucket
from storage.logical_paths import check_tools_at_logical_paths
from test_layers import SOURCE

LINES = "".join(f"row {n}: what the tool found\n" for n in range(4_000))

pytestmark = pytest.mark.anyio

Place = Callable[[Path], SessionStores]
PLACES: dict[str, Place] = {
    "directory": LocalSessions,
    "memory": lambda _: MemorySessions("test"),
    "bucket": lambda _: ObjectSessions(MemoryBucket(), url="s3://test"),
    "bucket in a directory": lambda path: stores_at(f"objects+{path.as_uri()}"),
}


@pytest.fixture(params=PLACES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> SessionStores:
    return PLACES[request.param](tmp_path)


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return f"{place}\n{LINES}"


def config(stores: SessionStores, **settings: object) -> AgentConfig:
    return AgentConfig(offload_root_path=stores, session_id="thread-1", tools=[look], pricing=None, **settings)  # type: ignore[arg-type]


def asks(*places: str) -> list[list[ToolCall] | str]:
    return [*([ToolCall("look", {"place": place})] for place in places), "done"]


async def test_a_session_is_made_listed_resumed_and_removed(stores: SessionStores) -> None:
    assert await stores.sessions() == []
    async with Agent(ScriptedModel(asks("a", "b")), config(stores)) as agent:
        await agent.query("Look")
        held = [item.message.content for item in agent.context.items]
    (first,) = await stores.sessions()
    assert first.session_id == "thread-1"
    async with Agent(ScriptedModel(asks("c")), config(stores)) as agent:
        assert [item.message.content for item in agent.context.items] == held
        await agent.query("Again")
        assert (await agent.context.fs.verify()).ok
    (second,) = await stores.sessions()
    assert second.version != first.version
    await stores.remove("thread-1")
    assert await stores.sessions() == []
    with pytest.raises(SessionNotFound):
        await ContextFileSystem("thread-1", root_path=stores).open(create=False)
    with pytest.raises(SessionNotFound):
        await stores.remove("thread-1")


@pytest.mark.parametrize("place", ["directory", "memory"])
async def test_a_log_of_the_same_length_is_another_version(place: str, tmp_path: Path) -> None:
    stores = PLACES[place](tmp_path)
    store = ThreadedStore(stores.store("thread-1"))
    await store.open(create=True, write=True)
    await store.commit([], lambda: b"a secret\n")
    (first,) = await stores.sessions()
    await store.rewrite(b"********\n")
    (second,) = await stores.sessions()
    await store.close()
    assert second.version != first.version
    assert second.changed_at > first.changed_at


async def test_what_left_is_read_back_by_the_path_in_its_placeholder(stores: SessionStores) -> None:
    model = ScriptedModel([*asks("a", "b")[:-1], [ToolCall("Read", {"file_path": "<path>"})], "done"])
    async with Agent(ScriptedModel(asks("a", "b")), config(stores)) as agent:
        await agent.query("Look")
        path = next(item.offload_path for item in agent.context.items if item.offload_path is not None)
        assert path in str(next(item for item in agent.context.items if item.offload_path).message.content)
    expected = f"{stores.directory}/thread-1/" if stores.directory is not None else "ctxfs://thread-1/"
    assert path.startswith(expected)
    model = ScriptedModel([[ToolCall("Read", {"file_path": path, "offset": 3_990})], "done"])
    async with Agent(model, config(stores)) as agent:
        await agent.query("Read it back")
        assert "row 3999: what the tool found" in "".join(str(item.message.content) for item in agent.context.items)


async def test_tools_find_what_a_path_without_a_directory_names(stores: SessionStores) -> None:
    if stores.directory is None:
        await check_tools_at_logical_paths(stores)


class SilentBucket(MemoryBucket):
    """Cannot be read once it is ``down``, and says where it is."""

    down = False

    def _read(self, kind: str, key: str) -> None:
        super()._read(kind, key)
        if self.down:
            raise StorageError(f"could not read {key}: no answer from bob@10.0.0.7")


async def test_a_server_that_fails_is_described_to_the_developer_and_not_to_the_model(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bucket = SilentBucket()
    stores = ObjectSessions(bucket, url="s3://test")
    async with Agent(ScriptedModel(asks("a", "b")), config(stores)) as agent:
        await agent.query("Look")
        path = next(item.offload_path for item in agent.context.items if item.offload_path is not None)
    async with ContextFileSystem("thread-1", root_path=stores, read_only=True) as fs:
        bucket.down = True
        tools = {tool.name: tool for tool in (*retrieval_tools(fs), *recall_tools(fs))}
        for name, arguments in CALLS_THAT_READ.items():
            result = await tools[name].run({key: value or path for key, value in arguments.items()})
            assert "cannot be used now" in result.text
            assert "bob" not in result.text
        with pytest.raises(StorageError, match="bob"):
            await fs.load(fs.find(path) or "")
    assert caplog.text.count("bob") == len(CALLS_THAT_READ)


CALLS_THAT_READ: dict[str, dict[str, str]] = {
    "context_read": {"ref": ""},
    "context_grep": {"ref": "", "pattern": "row"},
    "context_tail": {"ref": ""},
    "history_read": {"item": ""},
    "history_search": {"query": "row 3999"},
}
"""By the tool's name: its arguments, "" for the path of what was evicted."""


async def test_a_session_that_is_not_there_is_missed_in_the_place_that_was_asked(stores: SessionStores) -> None:
    with pytest.raises(SessionNotFound) as missed:
        await ContextFileSystem("nobody", root_path=stores).open(create=False)
    assert ("--root" in str(missed.value)) == (stores.directory is not None)
    assert ("--store" in str(missed.value)) == (stores.directory is None)


async def test_a_url_names_the_cache_of_its_bucket(tmp_path: Path) -> None:
    for name in ("bucket", "cache"):
        (tmp_path / name).mkdir()
    url = f"objects+{(tmp_path / 'bucket').as_uri()}"
    async with Agent(ScriptedModel(asks("a", "b")), config(stores_at(url))) as agent:
        await agent.query("Look")
    cached = stores_at(f"{url}?cache={tmp_path / 'cache'}")
    assert cached.url == url
    async with ContextFileSystem("thread-1", root_path=cached, read_only=True) as fs:
        for item_id in fs.state.stored:
            await fs.load(item_id)
    assert any(path.is_file() for path in (tmp_path / "cache").rglob("*"))
    for wrong in ("cache=here", "cash=/tmp", "cache=/a&cache=/b"):
        with pytest.raises(ConfigError, match="cache=DIRECTORY"):
            stores_at(f"{url}?{wrong}")


async def test_another_process_elsewhere_sends_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another home, another working directory: the prompt cache holds, and no name of the host is sent."""
    bucket = f"objects+{(tmp_path / 'bucket').as_uri()}"
    (tmp_path / "bucket").mkdir()
    requests = list[str]()
    for number, who in enumerate(("secret-alice", "secret-bob")):
        home = tmp_path / who
        home.mkdir()
        monkeypatch.setenv("HOME", str(home))
        monkeypatch.chdir(home)
        model = ScriptedModel([*asks("a", "b", "c")] if number == 0 else ["done"])
        async with Agent(model, config(stores_at(bucket))) as agent:
            await agent.query(f"query {number}")
        requests.append(json.dumps(model.requests[-1])[:-2])
        assert "ctxfs://thread-1/" in requests[-1]
        assert "secret-" not in requests[-1]
        assert str(tmp_path) not in requests[-1]
    assert requests[1].startswith(requests[0])


async def test_a_context_and_a_history_take_a_place(stores: SessionStores) -> None:
    async with Context("ours", root_path=stores) as context:
        await context.add(UserMessage(content="Hello"))
    async with Context("ours", root_path=stores) as context:
        assert [item.message.content for item in context.items] == ["Hello"]
    assert {found.session_id for found in await stores.sessions()} == {"ours"}


def test_a_history_goes_on_in_another_process(stores: SessionStores) -> None:
    first = History("theirs", root_path=stores, model="claude-sonnet-5-5", materialize=Materialize())
    text = first.arrive(LINES, tool="look", call_id="c1")
    assert text != LINES
    second = History("theirs", root_path=stores, model="claude-sonnet-5-5", materialize=Materialize())
    assert second.arrive(LINES, tool="look", call_id="c1") == text
    first.close()
    second.close()


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("ftp://somewhere/else", "is not a place for sessions"),
        ("file://host/path", "is not the URL of a directory"),
        ("file:relative", "is no directory: give a URL as text, with two slashes, as in 'file://…'"),
        ("s3://", "names no bucket: write s3://bucket/prefix"),
        ("az:///", "names no bucket: write az://bucket/prefix"),
        (Path("s3://bucket/prefix"), "is no directory: give a URL as text, with two slashes, as in 's3://…'"),
    ],
)
def test_a_url_that_is_none_is_refused(url: str | Path, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        stores_at(url)


@pytest.mark.parametrize("url", ["s3:/bucket", "s3:bucket", "s3://", "s3:///bucket"])
def test_a_url_needs_a_bucket(url: str) -> None:
    with pytest.raises(ConfigError, match="names no bucket: write s3://bucket/prefix"):
        open_bucket(url)


def test_a_url_names_a_place(tmp_path: Path) -> None:
    assert stores_at(tmp_path.as_uri()).directory == tmp_path
    assert stores_at("file:///a%20b").directory == Path("/a b")
    assert stores_at("memory://x") is stores_at("memory://x")
    assert stores_at("memory://x") is not stores_at("memory://y")
    assert stores_at(tmp_path).url == str(tmp_path)


@pytest.mark.parametrize("wrong", [3, LocalSessions, MemorySessions("x").store("y"), object()])
def test_what_is_no_place_is_refused(wrong: object) -> None:
    with pytest.raises(ConfigError, match="give the path of a directory, a URL, such as"):
        stores_at(wrong)  # type: ignore[arg-type]


def test_the_store_of_one_session_is_in_no_place_of_many() -> None:
    with pytest.raises(ConfigError, match="root_path takes a URL or a SessionStores"):
        ContextFileSystem(store="memory://x")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="root_path takes a URL or a SessionStores"):
        ContextFileSystem(store=MemorySessions("x"))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="leave out one"):
        ContextFileSystem(root_path="memory://x", store=MemorySessions("x").store("y"))
    with pytest.raises(ConfigError, match="leave out root_path"):
        Context(ContextFileSystem(root_path="memory://x"), root_path="memory://x")


def test_nothing_names_the_local_store_but_its_own_modules() -> None:
    own = {"local.py", "local_sessions.py", "urls.py", "__init__.py"}
    for path in SOURCE.rglob("*.py"):
        if path.parent.name == "storage" and path.name in own:
            continue
        text = path.read_text()
        if "LocalStore" not in text and "LocalSessions" not in text:
            continue
        names = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
        assert names.isdisjoint({"LocalStore", "LocalSessions"}), path


async def test_a_query_with_one_call_makes_at_most_four_objects() -> None:
    """The question; the reply with the call, the result, and the answer: each is durable before what follows it."""
    bucket = MemoryBucket()

    @tool("List")
    def listed() -> str:
        return LINES

    turns: list[Turn] = [[ToolCall("listed", {})], "done"] * 2
    settings = AgentConfig(offload_root_path=ObjectSessions(bucket, url="s3://test"), session_id="s", tools=[listed])
    async with Agent(ScriptedModel(turns), settings) as agent:
        await agent.query("The first query records the tools too")
        before = len(bucket.requests)
        await agent.query("Look")
        made = [(kind, key) for kind, key in bucket.requests[before:] if "/s/" in key]
    assert len(made) <= 4
    assert {kind for kind, _ in made} == {"create"}


class SlowBucket(MemoryBucket):
    """Lists nothing until ``requests`` requests for a list are under way."""

    def __init__(self, requests: int) -> None:
        super().__init__()
        self.all_there = threading.Barrier(requests, timeout=HANGS_S)

    def keys(self, prefix: str, *, after: str = "") -> Iterator[str]:
        self.all_there.wait()
        return super().keys(prefix, after=after)


async def test_as_many_lists_of_a_bucket_wait_at_the_same_time_as_there_are_threads_that_wait() -> None:
    stores, found = ObjectSessions(SlowBucket(WAITING_THREADS), url="s3://test"), []

    async def look() -> None:
        found.append(await stores.sessions())

    async with anyio.create_task_group() as group:
        for _ in range(WAITING_THREADS):
            group.start_soon(look)
    assert found == [[]] * WAITING_THREADS


async def test_output_that_grows_is_kept_in_a_bucket() -> None:
    stores = ObjectSessions(MemoryBucket(), url="s3://test")
    turns: list[Turn] = [[ToolCall("Bash", {"command": "seq 1 20000"})], "done"]
    settings = AgentConfig(offload_root_path=stores, session_id="s", bash=Bash(), approve=lambda _: True)
    async with Agent(ScriptedModel(turns), settings) as agent:
        await agent.query("Count")
    async with ContextFileSystem("s", root_path=stores, read_only=True) as fs:
        assert str(await fs.load("terminal_001")).splitlines()[-1] == "20000"
        assert (await fs.verify()).ok
