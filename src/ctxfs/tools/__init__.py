"""The model's tools: read, search, recall, Bash; materialize, workspace, raw messages.

The names are imported when they are first used.
"""

from typing import TYPE_CHECKING

from ctxfs.lazy import lazy

if TYPE_CHECKING:
    from ctxfs.session.state import OffloadStats
    from ctxfs.text.jsontext.codec import stringify
    from ctxfs.tools.base import RunningCall, Tool, ToolResult, running_call
    from ctxfs.tools.bash import Bash, bash_tool
    from ctxfs.tools.decorator import tool
    from ctxfs.tools.materialization import (
        ContextRef,
        Materialize,
        Materialized,
        Materializer,
        materialize,
    )
    from ctxfs.tools.raw_messages import (
        DiskFileWriter,
        FileWriter,
        OffloadedMessages,
        OffloadResult,
        offload_tool_result,
        offload_tool_results,
    )
    from ctxfs.tools.read import read_tool
    from ctxfs.tools.recall.tools import recall_tools
    from ctxfs.tools.retrieval import retrieval_tools
    from ctxfs.tools.workspace.artifacts import Artifact, ArtifactInfo, ArtifactPage, ArtifactType
    from ctxfs.tools.workspace.in_agent import ToolResultOffload
    from ctxfs.tools.workspace.offload_op import ToolCallResult, ToolResultOffloadOp
    from ctxfs.tools.workspace.service import KnowledgeService, WorkspaceOffload
    from ctxfs.tools.workspace.tools import workspace_tools

__all__ = [
    "Artifact",
    "ArtifactInfo",
    "ArtifactPage",
    "ArtifactType",
    "Bash",
    "ContextRef",
    "DiskFileWriter",
    "FileWriter",
    "KnowledgeService",
    "Materialize",
    "Materialized",
    "Materializer",
    "OffloadResult",
    "OffloadStats",
    "OffloadedMessages",
    "RunningCall",
    "Tool",
    "ToolCallResult",
    "ToolResult",
    "ToolResultOffload",
    "ToolResultOffloadOp",
    "WorkspaceOffload",
    "bash_tool",
    "materialize",
    "offload_tool_result",
    "offload_tool_results",
    "read_tool",
    "recall_tools",
    "retrieval_tools",
    "running_call",
    "stringify",
    "tool",
    "workspace_tools",
]

__getattr__, __dir__ = lazy(
    __name__,
    {
        "ctxfs.session.state": ("OffloadStats",),
        "ctxfs.text.jsontext.codec": ("stringify",),
        "ctxfs.tools.base": (
            "RunningCall",
            "Tool",
            "ToolResult",
            "running_call",
        ),
        "ctxfs.tools.bash": (
            "Bash",
            "bash_tool",
        ),
        "ctxfs.tools.decorator": ("tool",),
        "ctxfs.tools.materialization": (
            "ContextRef",
            "Materialize",
            "Materialized",
            "Materializer",
            "materialize",
        ),
        "ctxfs.tools.raw_messages": (
            "DiskFileWriter",
            "FileWriter",
            "OffloadResult",
            "OffloadedMessages",
            "offload_tool_result",
            "offload_tool_results",
        ),
        "ctxfs.tools.read": ("read_tool",),
        "ctxfs.tools.recall.tools": ("recall_tools",),
        "ctxfs.tools.retrieval": ("retrieval_tools",),
        "ctxfs.tools.workspace.artifacts": (
            "Artifact",
            "ArtifactInfo",
            "ArtifactPage",
            "ArtifactType",
        ),
        "ctxfs.tools.workspace.in_agent": ("ToolResultOffload",),
        "ctxfs.tools.workspace.offload_op": (
            "ToolCallResult",
            "ToolResultOffloadOp",
        ),
        "ctxfs.tools.workspace.service": (
            "KnowledgeService",
            "WorkspaceOffload",
        ),
        "ctxfs.tools.workspace.tools": ("workspace_tools",),
    },
)
