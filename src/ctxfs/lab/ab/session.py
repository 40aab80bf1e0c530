"""What a function that plays a session gets: its arm, as the settings of what keeps its context, and its meter."""

from collections.abc import AsyncGenerator, Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any

from anyio import to_thread

from ctxfs.context.context import Context
from ctxfs.context.history.history import History
from ctxfs.lab.ab.arms import Arm
from ctxfs.lab.ab.meter import Meter, MeteredCall
from ctxfs.messages.base import ChatModel, ModelEvent, ModelRequest, Reply
from ctxfs.messages.messages import AssistantMessage
from ctxfs.storage.threads import run_to_completion, uninterrupted
from ctxfs.text.jsontext import codec as json_codec


class Session:
    """One session of a comparison; ``run`` makes it.

    Args:
        arm: what is done to its context.
        directory: a copy of the task's directory, or an empty one.
        root_path: where its contents are stored.
        counted: returns a model whose calls are counted.

    """

    def __init__(
        self, arm: Arm, *, directory: Path, root_path: Path, counted: Callable[[ChatModel], ChatModel]
    ) -> None:
        self._arm = arm
        self._counted = counted
        self.directory = directory
        self.root_path = root_path

    def settings(self, tools: Collection[str] = ()) -> dict[str, Any]:
        """The settings of the arm, for a ``Context`` or a ``History``; ``tools`` are the names of the model's tools."""
        found: dict[str, Any] = {**self._arm.settings, "root_path": self.root_path}
        if self._arm.each_tool_keeps is not None:
            found["keep_recent"] = dict.fromkeys(tools, self._arm.each_tool_keeps)
        return found

    def context(self, tools: Collection[str] = (), **settings: Any) -> Context:
        """A ``Context`` with the settings of the arm; ``settings`` are those that all arms have."""
        return Context(**{**settings, **self.settings(tools)})

    def history(self, tools: Collection[str] = (), **settings: Any) -> History:
        """A ``History`` with the settings of the arm; ``settings`` are those that all arms have."""
        return History(**{**settings, **self.settings(tools)})

    def client(self, model: ChatModel) -> ChatModel:
        """``model``, counted: every call must go through it, or it is not in the results.

        A call that the budget does not allow raises ``BudgetSpent``; let it end the session.
        """
        return self._counted(model)


class Metered:
    """A model whose calls are counted."""

    def __init__(self, model: ChatModel, meter: Meter) -> None:
        self._model = model
        self._meter = meter

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._model.model

    @property
    def max_tools(self) -> int | None:
        """How many tools a request may have; None: any number."""
        return getattr(self._model, "max_tools", None)

    def check(self) -> None:
        """Check the settings of the measured model."""
        self._model.check()

    async def close(self) -> None:
        """Close the measured model."""
        await self._model.close()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Make the call, if the budget allows it. Raises ``BudgetSpent``."""
        self._meter.observe(_calls_in(request))
        call = await to_thread.run_sync(self._reserved, request)
        status = 0
        bill: tuple[dict[str, Any], str | None] | None = None
        try:
            async for event in self._model.stream(request):
                status = 200  # from here on the provider charges for it
                if isinstance(event, Reply):
                    usage = {name: getattr(event.usage, name) for name in event.usage.__slots__}
                    bill = (usage, event.model)
                yield event
        finally:
            await _settled(call, status, bill)

    def _reserved(self, request: ModelRequest) -> MeteredCall:
        size = sum(len(json_codec.dumps_text(_plain(message.content)).encode()) for message in request.messages)
        size += len(json_codec.dumps([tool.for_messages() for tool in request.tools])) + len(request.status)
        return self._meter.reserve(self.model, size, reply_tokens=request.max_tokens)


@uninterrupted
async def _settled(call: MeteredCall, status: int, bill: tuple[dict[str, Any], str | None] | None) -> None:
    """Settle a call, also one that was cancelled."""
    await run_to_completion(partial(call.ended, status, bill, is_whole=bill is not None))


def _calls_in(request: ModelRequest) -> list[tuple[str, str, Any]]:
    """The calls of tools that a request shows."""
    found: list[tuple[str, str, Any]] = []
    for message in request.messages:
        if isinstance(message, AssistantMessage):
            found += [(call.id, call.name, call.arguments) for call in message.tool_calls]
    return found


def _plain(content: Any) -> Any:
    return content if isinstance(content, str) else list(content)
