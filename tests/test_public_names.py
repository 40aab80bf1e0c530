"""The public names. Whoever changes this table changes what users may rely on: the changelog says so too."""

import importlib

import pytest

PUBLIC = {
    "ctxfs": """
        Agent AgentConfig Context ContextFileSystem ContextItem CtxfsError ItemType OffloadPolicy tool
        __version__
    """,
    "ctxfs.agent": """
        Agent AgentConfig AgentEvent Compacted Done Evicted OffloadFailed Offloaded RecordFailed Retrying
        SummaryFailed TextDelta ThinkingDelta ToolEnded ToolStarted UsageReported tool
    """,
    "ctxfs.tools": """
        Bash Tool ToolResult bash_tool read_tool retrieval_tools tool
    """,
    "ctxfs.llm": """
        AssistantMessage Block ChatAnthropic ChatModel ChatOpenAI Content LegacyToolCalls Message MessageLike
        ModelEvent ModelRequest Reply RetryPolicy Retrying SystemMessage TextDelta ThinkingDelta ToolCall ToolMessage
        ToolSchema Usage UsageLike UserMessage too_long
    """,
    "ctxfs.context": """
        Archive Budget Compacted ContentRange Context ContextEvent ContextFileSystem ContextItem Damage
        DamagedContent Evicted ItemType MessagesRequest Offload OffloadFailed OffloadPolicy Offloaded Plan RecordFailed
        Recovery Rule
        SelectiveCompaction Strategy SummaryFailed Window
    """,
    "ctxfs.workspace": """
        Artifact ArtifactInfo ArtifactPage ArtifactType KnowledgeService ToolCallResult ToolResultOffload
        ToolResultOffloadOp WorkspaceOffload workspace_tools
    """,
    "ctxfs.messages": """
        DiskFileWriter FileWriter Message OffloadResult OffloadResults offload_tool_result offload_tool_results
        stringify
    """,
    "ctxfs.materialize": """
        ContextRef Materialize Materialized Materializer Savings materialize reading_tools
    """,
    "ctxfs.transfer": """
        MAX_BYTES MAX_FILES Transferred export_session import_session
    """,
    "ctxfs.testing": """
        Broken ChatCompletionsServer Cut Failure MemoryDisk MemoryStore MessagesServer PromptCache ScriptedModel
        ToolCall
    """,
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names(module: str) -> None:
    package = importlib.import_module(module)
    assert sorted(package.__all__) == sorted(PUBLIC[module].split())


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_exist(module: str) -> None:
    package = importlib.import_module(module)
    missing = [name for name in PUBLIC[module].split() if not hasattr(package, name)]
    assert not missing, "also those that are imported when they are first used"


@pytest.mark.parametrize("module", PUBLIC)
def test_completion_shows_the_public_names(module: str) -> None:
    """Also those that are imported when they are first used: ``dir`` is what a REPL and a notebook complete from."""
    package = importlib.import_module(module)
    assert set(PUBLIC[module].split()) <= set(dir(package))
