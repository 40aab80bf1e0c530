"""Tools: a name, a schema, and a coroutine from arguments to a result."""

import logging
import re
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from ctxfs.errors import CtxfsError, StorageError, ToolDefinitionError, ToolError
from ctxfs.errors.checks import names_settings
from ctxfs.messages.base import ToolSchema
from ctxfs.messages.items import ContentRange
from ctxfs.messages.messages import Content, check_content, check_flag
from ctxfs.storage.threads import run_to_completion, uninterrupted
from ctxfs.text.jsontext import codec as json_codec
from ctxfs.text.media import image_fault
from ctxfs.text.utf8 import decoded

logger = logging.getLogger("ctxfs.tools")

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_DECODE_SLICE_BYTES = 262_144
_TEXTS = (str, bytes, bytearray, memoryview, type(None))
_REQUIRED: Mapping[str, tuple[str, type]] = {
    "text": ("text", str),
    "image": ("source", dict),
    "document": ("source", dict),
    "search_result": ("content", list),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCall:
    """The call that a tool's function is answering; ``running_call`` returns it.

    ``call_id``: the call's id; providers promise no more than that it differs from those of the same reply.
    ``session_id`` and ``reply_id``: the session, and the id of its item that holds the call; "" outside of an agent.
    ``epoch``: the number of the session's writer, higher for each one that takes the session over; 0 outside of an
    agent. A service that keeps the highest epoch it was shown, and refuses lower ones, is not changed by a writer that
    was taken over.
    """

    call_id: str
    session_id: str = ""
    reply_id: str = ""
    epoch: int = 0

    @property
    def idempotency_key(self) -> str:
        """A text that no other call of any session has, for services that do a request with a known key only once."""
        return "/".join(part for part in (self.session_id, self.reply_id, self.call_id) if part)


CALL: ContextVar[RunningCall | None] = ContextVar("CALL", default=None)
"""The call that the running handler answers; None if the caller did not give one."""

READING_DESCRIPTIONS: set[str] = set()
"""The descriptions of the reading tools of ctxfs that this process has made.

So a definition that a program sends along is recognized, under whatever name and in the form of whatever provider.
"""


def running_call() -> RunningCall:
    """Return the call that is being answered, inside of a tool's function, async or not.

    Raises ``ToolError`` where no call is being answered, or the loop that runs the tool did not give its id.
    """
    call = CALL.get()
    if call is None:
        raise ToolError("no tool call is being answered here, or its id is not known: pass call_id to Tool.run")
    return call


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool call, as the model gets it.

    ``source``: the content only repeats these lines of stored content. ``is_data``: the content is the JSON of data,
    as of a dict that a tool returned, so it may be stored with a line for each value.

    Raises:
        ToolError: ``is_error`` or ``is_data`` is not a bool, or ``source`` not a ``ContentRange``. ``content``
            is checked by ``Tool.run``.

    """

    content: Content
    is_error: bool = False
    source: ContentRange | None = None
    is_data: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.source, ContentRange | None):
            raise ToolError(f"the tool returned the source {self.source!r:.80}: use a ContentRange, or None")
        try:
            object.__setattr__(self, "is_error", check_flag(self.is_error, "is_error"))
            object.__setattr__(self, "is_data", check_flag(self.is_data, "is_data"))
        except ValueError as error:
            raise ToolError(f"the tool returned a result that cannot be recorded: {error}") from error

    @property
    def text(self) -> str:
        """The content as one text, where only that can be shown: content blocks are their JSON."""
        if isinstance(self.content, str):
            return self.content
        return json_codec.dumps_text(list(self.content))


def check_tool_name(name: object) -> None:
    """Raise ``ToolDefinitionError`` unless the providers allow a tool to be called ``name``."""
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ToolDefinitionError(
            f"{name!r} cannot be a tool's name: use 1 to 64 letters, digits, '_' or '-' (pass name=...)"
        )


@names_settings()
@dataclass(frozen=True, kw_only=True, eq=False)
class Tool:
    """A tool that a model can call.

    ``name`` has 1 to 64 of ``a-z A-Z 0-9 _ -``, the providers' rule. ``input_schema`` is a JSON schema of type object.
    ``keep_recent``: only this many newest results stay in the context (at least 1); None keeps them all. ``pin``: none
    of them is ever evicted. ``read_only``: it changes nothing, so that a call which a crash cuts off can be forgotten.
    ``handler`` gets the model's arguments as they came; what it returns is a ``ToolResult``, or goes through
    ``to_content``.

    Raises:
        ToolDefinitionError: the name, the description, the schema or ``keep_recent`` cannot work.
    """

    name: str
    description: str
    input_schema: Mapping[str, Any]
    handler: Callable[[Mapping[str, Any]], Awaitable[Any]]
    keep_recent: int | None = None
    pin: bool = False
    read_only: bool = False

    def __post_init__(self) -> None:
        check_tool_name(self.name)
        if not self.description.strip():
            raise ToolDefinitionError(f"tool {self.name} needs a description: it is all that the model knows about it")
        if self.pin and self.keep_recent is not None:
            raise ToolDefinitionError(f"tool {self.name}: its results cannot be pinned and ephemeral: choose one")
        if self.keep_recent is not None and self.keep_recent < 1:
            raise ToolDefinitionError(
                f"tool {self.name}: keep_recent is {self.keep_recent}, must be at least 1 or None"
            )
        try:
            json_codec.dumps(dict(self.input_schema))
        except ValueError as error:
            raise ToolDefinitionError(f"tool {self.name}: its input_schema is not JSON: {error}") from error

    @property
    def schema(self) -> ToolSchema:
        """The tool as the model sees it."""
        return ToolSchema(name=self.name, description=self.description, input_schema=self.input_schema)

    async def run(
        self, arguments: Mapping[str, Any], *, call_id: str | None = None, call: RunningCall | None = None
    ) -> ToolResult:
        """Call the tool.

        Args:
            arguments: those that the model gave.
            call_id: the call's id, for tools that ask ``running_call``; None: they cannot.
            call: the same with all else that is known of the call.

        Raises:
            InvalidToolArguments: the arguments do not validate; the message tells the model what to change.
            ToolError: the tool returned something that cannot be shown to a model; or both ``call_id`` and ``call``.
            Exception: whatever the tool itself raises passes through.
        """
        if call_id is not None and call is not None:
            raise ToolError("the call was given twice: pass call_id or call, not both")
        token = CALL.set(call if call_id is None else RunningCall(call_id=call_id))
        try:
            value = await self.handler(arguments)
        finally:
            CALL.reset(token)
        content = value.content if isinstance(value, ToolResult) else value
        if content is None or isinstance(content, str):
            return _result(value)
        return await _result_in_thread(value)  # it may take long


def _result(value: object) -> ToolResult:
    """The result of a call whose handler returned ``value``."""
    if not isinstance(value, ToolResult):
        content = to_content(value)
        _check_images(content)
        return ToolResult(content, is_data=isinstance(content, str) and not isinstance(value, _TEXTS))
    content = _checked(value.content)
    if value.source is None:
        _check_images(content)
    return replace(value, content=content)


@uninterrupted  # the tool has done its work: its result is not lost
async def _result_in_thread(value: object) -> ToolResult:
    return await run_to_completion(partial(_result, value))


def to_content(value: object) -> Content:
    """Turn what a tool returned into content.

    Text stays as it is, None is empty text, bytes are UTF-8 text (undecodable ones as lone surrogates, so nothing is
    lost), a list of content blocks stays one, and anything else becomes JSON as pydantic writes it.

    Raises:
        ToolError: pydantic cannot write the value as JSON, or something in content blocks is no JSON.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _decode(memoryview(value).cast("B"))
    if isinstance(value, list | tuple) and value and all(map(_is_block, value)):
        return _checked(value)
    return _to_json(value)


def _checked(content: object) -> Content:
    try:
        return check_content(content)
    except ValueError as error:
        raise ToolError(f"the tool returned content that cannot be recorded: {error}") from error


def _check_images(content: Content) -> None:
    """Refuse an image that providers refuse: in the context it would make every later request fail."""
    if isinstance(content, str):
        return
    for block in content:
        source = block.get("source")
        if block["type"] != "image" or not isinstance(source, dict) or source.get("type") != "base64":
            continue
        fault = image_fault(source.get("media_type"), source.get("data"))
        if fault:
            raise ToolError(f"the tool returned an image that providers refuse ({fault[0]}: {fault[1]})")


def _to_json(value: object) -> str:
    """JSON as pydantic writes it; exact also where text is not valid Unicode, such as undecodable file names."""
    # It would be a tenth of an agent's import, and most tools return text.
    from pydantic_core import PydanticSerializationError, to_json, to_jsonable_python  # noqa: PLC0415

    with suppress(PydanticSerializationError, ValueError):
        return to_json(value, inf_nan_mode="strings").decode()
    try:
        return json_codec.dumps(to_jsonable_python(value)).decode()
    except (PydanticSerializationError, ValueError) as error:
        raise ToolError(
            f"what the tool returned, of type {type(value).__name__}, cannot be written as JSON ({error}): return "
            "text, bytes, content blocks or JSON-like data"
        ) from error


def _is_block(value: object) -> bool:
    """Whether this is a content block that a result may have, and not just a dict that has a type."""
    if not isinstance(value, dict) or not isinstance(value.get("type"), str) or value["type"] not in _REQUIRED:
        return False
    key, kind = _REQUIRED[value["type"]]
    return isinstance(value.get(key), kind)


def _decode(data: memoryview) -> str:
    """UTF-8 with surrogateescape, slice by slice, so that other threads can run in between."""
    slices = (data[start : start + _DECODE_SLICE_BYTES] for start in range(0, len(data), _DECODE_SLICE_BYTES))
    return "".join(decoded(slices, "surrogateescape"))


def told(error: Exception) -> str:
    """Return what a model reads of an error; what it does not read of a store's error is logged."""
    if not isinstance(error, CtxfsError) or error.told is None:
        try:
            return str(error)
        except Exception as broken:  # noqa: BLE001 - a tool's own __str__ may raise anything, and that is no reason to end
            return f"its text cannot be shown: __str__ raised {type(broken).__name__}"
    if isinstance(error, StorageError):
        logger.warning("a tool cannot use the session's store: %s", error)
    return error.told
