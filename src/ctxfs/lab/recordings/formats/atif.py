"""ATIF, the Agent Trajectory Interchange Format, checked by the package ``atif``.

A step of the agent is a call of the model and what its calls of tools gave. Steps that were copied from an earlier
trajectory are context that was billed there. A step of the system that names trajectories of sub-agents is a
summarisation: the context begins again after it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ctxfs.errors import MissingExtra, ReplayFormatError
from ctxfs.lab.recordings.formats.builder import Builder, Document, seconds, text
from ctxfs.lab.recordings.recording import Block, Kind, ModelCall, Recording, Role
from ctxfs.messages.base import Usage


def is_atif(doc: Document) -> bool:
    """Whether the file names the format."""
    return str(doc.head.get("schema_version", "")).startswith("ATIF-")


def read(doc: Document) -> Iterable[Recording]:
    """The trajectory, and the threads of sub-agents that are embedded in it.

    Raises:
        MissingExtra: the package ``atif`` is not installed.
        ReplayFormatError: the package refuses the file.
    """
    try:
        from atif import Trajectory  # noqa: PLC0415 - an optional package
    except ImportError as error:
        raise MissingExtra("atif", "atif") from error
    try:
        trajectory = Trajectory.model_validate(doc.head)
    except ValueError as error:
        reason = " ".join(str(error).split())
        raise ReplayFormatError(f"{doc.where}: ATIF, but not as its schema says: {reason:.300}") from error
    builder = Builder()
    _read(trajectory, builder)
    for sub in trajectory.subagent_trajectories or ():
        builder.fresh()
        _read(sub, builder)
    model = trajectory.agent.model_name or ""
    yield builder.finish(name=trajectory.session_id or doc.name, model=model)


def _read(trajectory: Any, builder: Builder) -> None:
    for step in trajectory.steps:
        at = seconds(step.timestamp)
        if step.source != "agent":
            role = Role.SYSTEM if step.source == "system" else Role.USER
            builder.add(role, [text(_plain(step.message))], at=at)
            if (
                role is Role.SYSTEM
                and step.observation
                and any(r.subagent_trajectory_ref for r in step.observation.results)
            ):
                builder.fresh()
            continue
        model = step.model_name or trajectory.agent.model_name or ""
        is_call = step.llm_call_count != 0 and not step.is_copied_context
        call = _billed(step.metrics, model, at) if is_call else None
        builder.add(Role.ASSISTANT, _reply(step, builder), at=at, call=call)
        results = list(_results(step, builder))
        builder.add(Role.USER, results, at=at)


def _reply(step: Any, builder: Builder) -> Iterable[Block]:
    yield text(step.reasoning_content or "", Kind.THINKING)
    yield text(_plain(step.message))
    for call in step.tool_calls or ():
        yield builder.call(call.tool_call_id, call.function_name, call.arguments)


def _results(step: Any, builder: Builder) -> Iterable[Block]:
    """Results name their call, or follow the order of the calls."""
    called = [call.tool_call_id for call in step.tool_calls or ()]
    for number, result in enumerate(step.observation.results if step.observation else ()):
        call_id = result.source_call_id or (called[min(number, len(called) - 1)] if called else "")
        content = _plain(result.content)
        yield builder.result(call_id, content) if call_id else text(content)


def _billed(metrics: Any, model: str, at: float | None) -> ModelCall:
    if metrics is None or metrics.prompt_tokens is None:
        return ModelCall(model=model, at=at, usd=metrics.cost_usd if metrics else None)
    cached = min(metrics.cached_tokens or 0, metrics.prompt_tokens)
    usage = Usage(
        input_tokens=metrics.prompt_tokens - cached,
        cache_read_input_tokens=cached,
        output_tokens=metrics.completion_tokens or 0,
    )
    return ModelCall(model=model, at=at, usage=usage, usd=metrics.cost_usd)


def _plain(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "\n".join(part.text if part.text is not None else _by_name(part.model_dump(mode="json")) for part in content)


def _by_name(part: Mapping[str, Any]) -> str:
    return json.dumps(part, ensure_ascii=False)
