"""Tools: how functions become tools, and the tools that ship with ctxfs."""

from ctxfs.tools.base import RunningCall, Tool, ToolResult, running_call
from ctxfs.tools.bash import Bash, bash_tool
from ctxfs.tools.decorator import tool
from ctxfs.tools.read import read_tool
from ctxfs.tools.retrieval import retrieval_tools

__all__ = [
    "Bash",
    "RunningCall",
    "Tool",
    "ToolResult",
    "bash_tool",
    "read_tool",
    "retrieval_tools",
    "running_call",
    "tool",
]
