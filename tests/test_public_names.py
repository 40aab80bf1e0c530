"""The public names. A change of this table changes what users may rely on: it needs a line in the changelog."""

import ast
import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from ctxfs.session import ContextFileSystem
from ctxfs.testing.scripted import Turn
from test_layers import MODULES

PUBLIC = {
    "ctxfs": """
        Agent AgentConfig Context ContextFileSystem ContextItem CtxfsError Edits History ItemType OffloadPolicy
        Part __version__ tool
    """,
    "ctxfs.agent": """
        Agent AgentConfig AgentEvent Approve ChatAnthropic ChatOpenAI Done Redact ResultOffload RetryPolicy
        SessionTelemetry Telemetry ToolEnded ToolStarted UsageReported
    """,
    "ctxfs.context": """
        Context Edits Histories History HostCache Kind MessagesRequest Part Replacement
    """,
    "ctxfs.tools": """
        Artifact ArtifactInfo ArtifactPage ArtifactType Bash ContextRef DiskFileWriter FileWriter
        KnowledgeService Materialize Materialized Materializer OffloadResult OffloadStats OffloadedMessages
        RawMessage RunningCall Tool ToolCallResult ToolResult ToolResultOffload ToolResultOffloadOp
        WorkspaceOffload bash_tool materialize offload_tool_result offload_tool_results read_tool reading_tools
        recall_tools retrieval_tools running_call stringify tool workspace_tools
    """,
    "ctxfs.eviction": """
        Archive ArchiveSlot Billed Budget CacheTerms Calibration Candidate Chain Compacted ContentReadBack
        ContentRestored ContextEvent EagerOffload EagerPolicy EconomicPlan Evicted Eviction EvictionDecision
        EvictionParameters EvictionPricing Held ItemBlock ItemKind Ledger Offload OffloadFailed OffloadPolicy
        Offloaded OpenReadBacks Plan RecordFailed Rule SelectiveCompaction Strategy SummaryFailed Trim Why
        Window decisions plan
    """,
    "ctxfs.messages": """
        ANTHROPIC_RATES AssistantMessage Block CacheTtl CharsCounter ChatModel ChatUsage Content ContentRange
        ContextItem ENVELOPE GeminiUsage ItemType Layout LegacyToolCalls Message MessageLike MessagesUsage ModelEvent
        ModelInfo ModelRequest NameAllocator O200kCounter Prices Rates Reply Retrying SdkModel SystemMessage
        TEXT TextDelta ThinkingDelta TokenCounter ToolCall ToolMessage ToolSchema UnknownModel Usage UsageLike
        UserMessage bill_usd default_counter known_model load_counter too_long
    """,
    "ctxfs.session": """
        BlockIndex BlockRange Call CallMade Changes CheckedSession Closed Collectable ContentReader
        ContentRemoved ContextFileSystem CopiedSession Damage DamagedContent Decided DiskUsage Effect
        ErasedItem Erasure EvictionSet ForgetPlan ForgetPolicy Forgotten Forked GrowingLog IndexCache ItemAdded
        ItemChange MAX_BYTES MAX_FILES NoteWritten OffloadStats PartsNoted PastRequest Pinned Problem PrunePlan
        Pruned Record Recovery Redaction Removed Replaced RequestSent Restored SessionStarted SessionState
        SessionTagged SessionWriter SharedFileSystem Stored Timeline ToolsDefined Transferred Undone
        UnknownRecord Verdict VerifyReport Walk What WriterOpened archived check copy_session erase erase_plan
        export_session forget forget_plan fork_session import_session keep_quota list_sessions past_request
        prune prune_plans prune_session quota read_timeline remove_session tag_session usage_by_item
        usage_by_session usage_by_tool
    """,
    "ctxfs.storage": """
        Durability FileKind FileStat FileSystem LocalSessions LocalStore MemoryDisk
        MemoryStore NewFile NoAnswer OsFileSystem RewritingStore SessionFound SessionStores SharedStore Store
        ThreadedStore check_name stores_at
    """,
    "ctxfs.stores": """
        Bucket ObjectSessions ObjectStore ObstoreBucket PostgresBucket ReadCache Taken open_bucket session_ids
    """,
    "ctxfs.errors": """
        AgentBusy AmbiguousItem ArchiveDamaged ArchiveError ArchiveTooLarge ArchiveUnsafe AuthenticationFailed
        BudgetSpent ConfigError ConnectionFailed ContentGone ContextOverflow CorruptContent CorruptJournal CtxfsError
        InvalidFunctionCall InvalidRecord InvalidReply InvalidRequest InvalidToolArguments MissingApiKey
        MissingExtra ModelError NameTaken NotRestorable NotStored OutcomeUnknown Overloaded PromptTooLong
        QuotaExceeded RateLimited ReplayFormatError ReplyIncomplete SessionClosed SessionDiverged SessionError
        SessionExists SessionLocked SessionNotFound StorageError StoreRefused ToolDefinitionError ToolError
        TranscriptError TurnLimitReached UnknownCall UnknownItem Unrecorded UnsafePath UnsupportedCacheTtl
        WorkLimitReached WriteFailed
    """,
    "ctxfs.lab": """
        Bill BilledCall Cached CallFigures Cost Counted DEFAULT_POLICIES ExplainedItem Explanation Fold
        POLICY_NAMES PolicyFigures PolicyRun Prediction PriceOptions Progress RecordedItem RecordedSession
        Report SessionReport Share Skipped Tokens ToolFigures Tuned explain explain_recording render_html
        render_json render_table render_text replay_files tune_files
    """,
    "ctxfs.lab.ab": """
        ARM_NAMES Against Arm ArmFigures Check Comparison Difference Outcome Pricing Session SessionKey SessionResult
        Settings Solve Task arm_named comparison_html comparison_json comparison_markdown comparison_text read_tasks run
    """,
    "ctxfs.testing": """
        Answer Broken ChatCompletionsServer Cut Failure GeminiServer MessagesServer PromptCache ResponsesServer
        ScriptedModel
    """,
    "ctxfs.testing.store_conformance": """
        StoreConformance
    """,
    "ctxfs.testing.shared_store_conformance": """
        Machine SharedStoreConformance
    """,
    "ctxfs.testing.network": """
        FATES Fate Network
    """,
    "ctxfs.testing.history_conformance": """
        HistoryConformance
    """,
    "ctxfs.testing.history_play": """
        Played Rewritten Violation play rewritten_parts
    """,
    "ctxfs.testing.strategies": """
        TOOL_NAMES blocks bodies contents documents images json_objects pdf png texts thinking transcripts
    """,
}

ADAPTERS = {
    "ctxfs.adapters.anthropic": "CtxfsMiddleware",
    "ctxfs.adapters.deepagents": "CtxfsBackend CtxfsMiddleware",
    "ctxfs.adapters.claude_agent_sdk": "CtxfsHooks",
    "ctxfs.adapters.google_adk": "CtxfsPlugin",
    "ctxfs.adapters.langchain": "CtxfsMiddleware",
    "ctxfs.adapters.openai_agents": "CtxfsFilter",
    "ctxfs.adapters.pydantic_ai": "CtxfsCapability",
    "ctxfs.adapters.strands": "CtxfsPlugin CtxfsStorage",
    "ctxfs.adapters.transport": "history_transport",
}
"""Their frameworks are not installed here, so they are read and not imported."""


@pytest.mark.parametrize("module", ADAPTERS)
def test_public_names_of_adapters(module: str) -> None:
    tree = ast.parse(MODULES[module.removeprefix("ctxfs.")].read_text())
    assigned = {ast.unparse(node.targets[0]): node.value for node in tree.body if isinstance(node, ast.Assign)}
    assert sorted(ast.literal_eval(assigned["__all__"])) == sorted(ADAPTERS[module].split())


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


@pytest.mark.parametrize("module", PUBLIC)
def test_no_submodule_has_a_public_name(module: str) -> None:
    """Once somebody imported it, Python would give the module instead of what is meant."""
    inner = module.removeprefix("ctxfs").removeprefix(".")
    assert not {f"{inner}.{name}".removeprefix(".") for name in PUBLIC[module].split()} & MODULES.keys()


def test_a_name_means_one_thing() -> None:
    """In whichever facades it is; and no two differ by an *s*, but for the functions that two specs name so."""
    meanings: dict[str, set[int]] = {}
    for module, names in PUBLIC.items():
        for name in names.split():
            meanings.setdefault(name, set()).add(id(getattr(importlib.import_module(module), name)))
    assert not [name for name, values in meanings.items() if len(values) > 1]
    assert [name for name in meanings if f"{name}s" in meanings] == ["offload_tool_result"]


# Every type in a public signature is public -------------------------------------------------------------------------


def public_objects() -> dict[str, Any]:
    """All public names of every facade, by their full names."""
    return {f"{m}.{n}": getattr(importlib.import_module(m), n) for m, names in PUBLIC.items() for n in names.split()}


def signatures(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Whatever has type hints: a function; a class with its public methods, properties and fields; an alias."""
    yield name, value
    if not inspect.isclass(value):
        return
    own = [base for base in value.__mro__ if base.__module__.split(".")[0] == "ctxfs"]
    for part, member in ((part, member) for base in own for part, member in vars(base).items()):
        if part == "__init__" or not part.startswith("_"):
            inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if inspect.isfunction(inner):
                yield f"{name}.{part}", inner


def types_in(hint: Any) -> Iterator[type]:
    """The classes that a type hint is made of."""
    if inspect.isclass(hint):
        yield hint
    for part in hint if isinstance(hint, list) else typing.get_args(hint):
        yield from types_in(part)


def hints_of(name: str, value: Any) -> dict[str, Any]:
    """The resolved type hints; those of a class are those of its public fields, and a type alias is its own."""
    if not inspect.isclass(value) and not inspect.isfunction(value):
        return {name: value}
    hints = typing.get_type_hints(value, localns={"Turn": Turn})  # which refers to itself
    return {part: hint for part, hint in hints.items() if inspect.isfunction(value) or not part.startswith("_")}


def test_every_type_in_a_public_signature_is_public() -> None:
    objects = public_objects()
    known = {id(value) for value in objects.values()}
    hidden = {
        f"{part.__module__}.{part.__qualname__}, in {where}"
        for name, value in objects.items()
        for where, signed in signatures(name, value)
        for hint in hints_of(where, signed).values()
        for part in types_in(hint)
        if part.__module__.split(".")[0] == "ctxfs" and id(part) not in known
    }
    assert not hidden, "export them where whoever meets them looks for them"


FILE_SYSTEM = """
    session_id session_path base stores is_open recovery state writer open refresh close
    offload restore items load reader find history verify
"""


def test_what_one_may_ask_a_session_is_short() -> None:
    """What changes a session belongs to its writer, and what its journal adds up to, to its state."""
    assert {name for name in vars(ContextFileSystem) if not name.startswith("_")} == set(FILE_SYSTEM.split())
