"""The tools that read what a session stored: each tells its model what cannot be read, and why."""

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec

from ctxfs.errors import CorruptContent, NotStored, SessionError, StorageError, ToolError, UnknownItem
from ctxfs.tools.base import READING_DESCRIPTIONS, ToolResult, told
from ctxfs.tools.decorator import FunctionTool, tool

P = ParamSpec("P")

_CALL_AGAIN = "Call the tool that gave it again only if it changes nothing."


def reading_tool(
    description: str, *, name: str, read_only: bool = True, ids_from: str = ""
) -> Callable[[Callable[P, Awaitable[ToolResult]]], FunctionTool[P, Awaitable[ToolResult]]]:
    """Make a function a tool that tells the model what cannot be read, and why, in an error result.

    ``ids_from``: the tool that shows the ids of what can be read; "" if the model has none.
    """

    def decorate(function: Callable[P, Awaitable[ToolResult]]) -> FunctionTool[P, Awaitable[ToolResult]]:
        @wraps(function)
        async def read(*args: P.args, **kwargs: P.kwargs) -> ToolResult:
            try:
                return await function(*args, **kwargs)
            except (CorruptContent, NotStored) as error:
                return ToolResult(f"The stored content cannot be read: {told(error)}. {_CALL_AGAIN}", is_error=True)
            except UnknownItem as error:
                more = f", or an id that {ids_from} shows" if ids_from else ""
                return ToolResult(f"{told(error)}{more}", is_error=True)
            except (ToolError, StorageError, SessionError) as error:
                return ToolResult(told(error), is_error=True)

        made: FunctionTool[P, Awaitable[ToolResult]] = tool(description, name=name, read_only=read_only)(read)
        READING_DESCRIPTIONS.add(made.description)
        return made

    return decorate
