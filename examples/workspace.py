"""Whole tool results in a workspace: an index in the context, and tools that read the results.

python examples/workspace.py
"""

import asyncio
import tempfile

from ctxfs.tools import KnowledgeService, ToolCallResult, ToolResultOffloadOp, workspace_tools

LOG = "".join(
    f"12:{n // 60 % 60:02}:{n % 60:02} web {'ERROR upstream timed out' if n % 977 == 5 else 'INFO served'} /item/{n}\n"
    for n in range(3_000)
)


async def offload(service: KnowledgeService) -> None:
    op = ToolResultOffloadOp(service, session_id="monday", agent_id="ops", task_id="incident", allow_list=["whoami"])
    for call_id, tool_name, content in (
        ("call_1", "read_log", LOG),
        ("call_2", "whoami", "ops"),
        ("call_3", "list_hosts", {"hosts": [{"name": f"web-{n}", "up": n != 7} for n in range(2_000)]}),
    ):
        result = ToolCallResult(tool_call_id=call_id, tool_name=tool_name, content=content)
        done = await op.process(result)
        message = done.to_message()
        print(f"--- {tool_name}: {'replaced' if done.offloaded else 'stays'}\n{str(message.content)[:400]}\n")


async def use_the_tools(service: KnowledgeService) -> None:
    tools = {tool.name: tool for tool in workspace_tools(service, "monday")}
    found = await tools["grep_knowledge"].run({"artifact_id": "call_1", "pattern": "ERROR", "context_lines": 1})
    print(f"--- what the model's grep finds\n{found.content}\n")
    lines = await tools["get_knowledge_by_lines"].run({"artifact_id": "call_1", "start_line": 2999, "end_line": 3000})
    print(f"--- what the model reads\n{lines.content}\n")


async def main() -> None:
    namespace = tempfile.mkdtemp()
    async with KnowledgeService(namespace) as service:
        await offload(service)
        await use_the_tools(service)
    async with KnowledgeService(namespace) as service:  # another process, another day
        print("--- what is there, in all sessions")
        for info in await service.get_tool_result_offload_info(task_id="incident"):
            print(f"{info.session_id} {info.biz_id} {info.tool_name:10} {info.chars:>7,} characters")


asyncio.run(main())
