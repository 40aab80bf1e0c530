"""The public names. A change of this table changes what users may rely on: it needs a line in the changelog."""

import ast
import importlib
import inspect
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from ctxfs.testing.scripted import Turn
from test_layers import MODULES

PUBLIC = {
    "ctxfs": """
        Agent AgentConfig Context ContextFileSystem ContextItem CtxfsError Edits History ItemType OffloadPolicy
        Part __version__ tool
    """,
    "ctxfs.agent": """
        Agent AgentConfig ChatAnthropic ChatOpenAI Done ResultOffload SessionTelemetry Telemetry
        ToolEnded ToolStarted UsageReported
    """,
    "ctxfs.context": """
        Context Edits Histories History HostCache MessagesRequest Part
    """,
    "ctxfs.tools": """
        Artifact ArtifactInfo ArtifactPage ArtifactType Bash ContextRef DiskFileWriter FileWriter
        KnowledgeService Materialize Materialized Materializer OffloadResult OffloadStats OffloadedMessages
        RunningCall Tool ToolCallResult ToolResult ToolResultOffload ToolResultOffloadOp WorkspaceOffload
        bash_tool materialize offload_tool_result offload_tool_results read_tool recall_tools retrieval_tools
        running_call stringify tool workspace_tools
    """,
    "ctxfs.eviction": """
        Archive BilledChange Calibration Compacted ContentReadBack ContentRestored EagerOffload EagerPolicy
        Evicted EvictionDecision EvictionParameters EvictionPricing ItemKind Offload OffloadFailed
        OffloadPolicy Offloaded Plan RecordFailed SelectiveCompaction Strategy SummaryFailed Why Window
    """,
    "ctxfs.messages": """
        AssistantMessage CharsCounter ChatModel ChatUsage Content ContentRange ContextItem ENVELOPE GeminiUsage
        ItemType Layout LegacyToolCalls Message MessagesUsage ModelEvent ModelInfo ModelRequest O200kCounter
        Prices Rates Reply Retrying SdkModel SystemMessage TEXT TextDelta ThinkingDelta TokenCounter ToolCall
        ToolMessage ToolSchema UnknownModel Usage UserMessage bill_usd known_model load_counter too_long
    """,
    "ctxfs.session": """
        Call CallMade Changes CheckedSession Collectable ContentReader ContextFileSystem CopiedSession Damage
        DamagedContent DiskUsage Effect ErasedItem Erasure ForgetPlan ForgetPolicy Forgotten Forked GrowingLog
        ItemChange PastRequest Problem PrunePlan Pruned Recovery Redaction SessionState SessionWriter Stored
        Timeline Transferred Verdict VerifyReport What archived check copy_session erase erase_plan
        export_session forget forget_plan fork_session import_session keep_quota past_request prune
        prune_session read_timeline remove_session tag_session usage_by_item usage_by_session
        usage_by_tool
    """,
    "ctxfs.storage": """
        Durability FileKind FileStat FileSystem LocalSessions LocalStore MemoryDisk MemoryStore NewFile
        RewritingStore SessionFound SessionStores SharedStore Store ThreadedStore check_name stores_at
    """,
    "ctxfs.stores": """
        Bucket ObjectSessions ObjectStore PostgresBucket ReadCache Taken open_bucket
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
        Bill Cost ExplainedItem Explanation PolicyFigures PolicyRun PriceOptions RecordedItem RecordedSession
        Report SessionReport Shadow Skipped explain explain_recording render_html replay_files
    """,
    "ctxfs.lab.ab": """
        Against Arm Comparison Pricing Session Settings Task run
    """,
    "ctxfs.testing": """
        Answer Broken ChatCompletionsServer Cut Failure GeminiServer MessagesServer ResponsesServer
        ScriptedModel
    """,
    "ctxfs.testing.store_conformance": """
        StoreConformance
    """,
    "ctxfs.testing.shared_store_conformance": """
        Machine SharedStoreConformance
    """,
    "ctxfs.testing.network": """
        Network
    """,
    "ctxfs.testing.history_conformance": """
        HistoryConformance
    """,
    "ctxfs.testing.strategies": """
        blocks contents texts transcripts
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


MEMBERS = {
    "ContextFileSystem": """
        session_id session_path base stores is_open recovery state writer open refresh close
        offload restore items load reader find verify
    """,
    "SessionState": "items ids stored archived calls replies tags tools layout undone",
    "SessionWriter": "grow",
    "GrowingLog": "append finish",
    "ContentReader": "load check lines tail media text_blocks raw_blocks",
    "Timeline": "calls history request",
    "Call": "number end reply_id tokens evicted unsent rewritten kept",
    "SessionReport": "session path project agent model calls cost_of_none recorded runs",
    "PolicyRun": "policy figures relative_cost output_tokens usd seconds",
    "Cost": """
        cost read_tokens written_tokens prefix_breaks evictions stored_bytes read_backs read_back_cost missed_tokens
        missed_cost
    """,
    "HistoryConformance": "rewritten",
    "Plan": "archive archive_first first_changed tokens_freed explain",
    "SelectiveCompaction": "__init__ rules",
    "Comparison": "arms tasks repeats spent_usd against unplayed meets text",
    "Against": "arm base tasks pairs arm_solved base_solved better worse arm_usd base_usd is_shown sentence",
}
"""Classes that are public in part, for rooms of ctxfs use more of them than users may rely on: their public members."""


def public_objects() -> dict[str, Any]:
    """All public names of every facade, by their full names."""
    return {f"{m}.{n}": getattr(importlib.import_module(m), n) for m, names in PUBLIC.items() for n in names.split()}


def signatures(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Whatever has type hints: a function; a class with its public methods, properties and fields; an alias."""
    yield name, value
    if not inspect.isclass(value):
        return
    own = [base for base in value.__mro__ if base.__module__.split(".")[0] == "ctxfs"]
    listed = MEMBERS.get(value.__name__)
    for part, member in ((part, member) for base in own for part, member in vars(base).items()):
        is_public = not part.startswith("_") or part == "__init__"
        if listed is not None:
            is_public = part in listed.split()
        if is_public:
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
    listed = MEMBERS.get(value.__name__)
    if inspect.isclass(value) and listed is not None:
        return {part: hint for part, hint in hints.items() if part in listed.split()}
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


def test_the_members_that_are_public_in_part_are_there() -> None:
    objects = {name.rpartition(".")[2]: value for name, value in public_objects().items()}
    for name, members in MEMBERS.items():
        assert [member for member in members.split() if not hasattr(objects[name], member)] == [], name


def test_there_are_few_enough_to_learn() -> None:
    names = {name for table in (PUBLIC, ADAPTERS) for listed in table.values() for name in listed.split()}
    assert len(names) <= 300
