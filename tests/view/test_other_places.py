"""The page of sessions that are in no directory of this machine: in a database, and in a bucket."""

from collections.abc import Iterator

import anyio
import httpx2
import pytest

from ctxfs import Agent, AgentConfig, tool
from ctxfs.messages import ToolCall
from ctxfs.storage import SessionStores
from ctxfs.storage.urls import stores_at
from ctxfs.stores import ObjectSessions
from ctxfs.testing import ScriptedModel
from patience import HANGS_S
from storage.contest import bucket_at
from storage.object_servers import moto
from storage.postgres_server import postgres
from view.served import serving

pytestmark = pytest.mark.service

OUTPUT = "".join(f"row {n} of the output\n" for n in range(2_000))


@tool("Look", ephemeral=1)
def look(place: str) -> str:
    return place + OUTPUT


async def converse(stores: SessionStores, question: str, *places: str) -> None:
    """Ask in session ``s1``; the model looks at ``places``, and then answers."""
    turns = [[ToolCall("look", {"place": place})] for place in places]
    config = AgentConfig(offload_root_path=stores, session_id="s1", tools=[look], pricing=None)
    async with Agent(ScriptedModel([*turns, f"{question}: done"]), config) as agent:
        await agent.query(question)


@pytest.fixture(scope="module", params=["postgres", "bucket"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SessionStores]:
    if request.param == "postgres":
        with postgres() as database:
            yield stores_at(database.url)
    else:
        with moto(tmp_path_factory.mktemp("moto")) as server:
            yield ObjectSessions(bucket_at(server.url, server.options), url=server.url, ttl_s=0.0)


def get(address: str) -> str:
    answer = httpx2.get(address, timeout=HANGS_S)
    assert answer.status_code == 200, answer.text
    return answer.text


def test_sessions_elsewhere_are_listed_read_searched_and_seen_to_grow(stores: SessionStores) -> None:
    anyio.run(converse, stores, "first", "a", "b")
    with serving(stores) as url:
        assert "/session/s1" in get(url)
        page = get(f"{url}session/s1?call=3&item=call_001")
        assert 'data-call="3" data-calls="3"' in page
        assert "ctxfs://s1/tool_result/look/call_001" in page
        assert "kept whole in the file below" in page
        assert "row 7 of the output" in page
        assert "1 line matches" in get(f"{url}session/s1?item=call_001&how=grep&find=row+1999+of")
        assert "row 1999" in get(f"{url}search?find=row+1999+of")
        anyio.run(converse, stores, "second")
        assert 'data-calls="4"' in get(f"{url}session/s1?call=1")
    anyio.run(stores.remove, "s1")


def test_an_item_is_brought_back_elsewhere(stores: SessionStores) -> None:
    anyio.run(converse, stores, "first", "a", "b")
    with serving(stores, may_write=True) as url:
        page = get(f"{url}session/s1?item=call_001")
        known = page.split('name="ctxfs-write" content="')[1].split('"')[0]
        asked = {"X-Ctxfs-Write": known, "Origin": url.rsplit("/", 2)[0]}
        answer = httpx2.post(f"{url}session/s1/change?do=restore&item=call_001", headers=asked, timeout=HANGS_S)
        assert (answer.status_code, answer.text) == (200, "done")
        assert "in the context, whole" in get(f"{url}session/s1?item=call_001")
    anyio.run(stores.remove, "s1")
