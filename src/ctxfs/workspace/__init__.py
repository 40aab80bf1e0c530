"""The workspace: whole tool results as artifacts that are found and read by id, by lines and by pattern."""

from ctxfs.workspace.artifacts import Artifact, ArtifactInfo, ArtifactPage, ArtifactType
from ctxfs.workspace.in_agent import ToolResultOffload
from ctxfs.workspace.offload_op import ToolCallResult, ToolResultOffloadOp
from ctxfs.workspace.service import KnowledgeService, WorkspaceOffload
from ctxfs.workspace.tools import workspace_tools

__all__ = [
    "Artifact",
    "ArtifactInfo",
    "ArtifactPage",
    "ArtifactType",
    "KnowledgeService",
    "ToolCallResult",
    "ToolResultOffload",
    "ToolResultOffloadOp",
    "WorkspaceOffload",
    "workspace_tools",
]
