"""Hostile regular expressions end, with what they found or with what is wrong with them."""

import pytest

from prove.part_expressions import expressions, search_all, session_tools

pytestmark = [pytest.mark.anyio, pytest.mark.slow]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_every_search_ends(anyio_backend: str) -> None:
    every = expressions()
    assert len(every) >= 200
    tools = await session_tools(8_000)
    told = list(await search_all(tools, every))
    assert len(told) > 4 * 100
    assert all(len(text) < 40_000 for _, text in told)
