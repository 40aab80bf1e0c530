"""A model behind an OpenAI-compatible server of your own (llama.cpp, vLLM, Ollama …).

    python examples/local_server.py [BASE_URL MODEL]

Without arguments it starts a fake on loopback that plays a script. Needs the extra: pip install 'ctxfs[openai]'
"""

import asyncio
import sys
import tempfile
from pathlib import Path

from ctxfs import Agent, AgentConfig, tool
from ctxfs.agent import ChatOpenAI
from ctxfs.eviction import EvictionPricing
from ctxfs.messages import Prices, ToolCall
from ctxfs.testing import ChatCompletionsServer


@tool("Count the words of a file of the working directory", ephemeral=1)
def count_words(name: str) -> str:
    words = Path(name).read_text().split()
    return "\n".join(f"{word}: {words.count(word)}" for word in sorted(set(words)))


async def main(base_url: str, model: str) -> None:
    config = AgentConfig(
        tools=[count_words],
        offload_root_path=tempfile.mkdtemp(),
        window=32_768,  # only you know the window of your server, and what its tokens cost
        pricing=EvictionPricing(prices=Prices(input=1.0, output=5.0, cache_read=0.1)),
    )
    async with Agent(ChatOpenAI(model, base_url=base_url), config) as agent:
        print(await agent.query(f"Which word is the most frequent in {sys.argv[0]}? And is it in {__file__}?"))
        print(f"{agent.context.token_count:,} tokens, {sum(i.offloaded for i in agent.context.items)} result has left")


if len(sys.argv) == 3:
    asyncio.run(main(*sys.argv[1:]))
else:
    calls = [[ToolCall("count_words", {"name": name})] for name in (sys.argv[0], __file__)]
    with ChatCompletionsServer([*calls, "“the”, as in most texts."]) as server:
        asyncio.run(main(server.url, "stand-in"))
