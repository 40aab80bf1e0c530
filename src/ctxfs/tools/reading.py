"""The tools that read what a session stored: each tells its model what cannot be read, and why."""

from collections.abc import Awaitable, Callable
from copy import deepcopy
from functools import wraps
from types import CodeType
from typing import ParamSpec

from ctxfs.errors import CorruptContent, NotStored, SessionError, StorageError, ToolError, UnknownItem
from ctxfs.tools.base import READING_DESCRIPTIONS, ToolResult, told
from ctxfs.tools.decorator import Arguments, FunctionTool, calling, read_arguments

P = ParamSpec("P")

_CALL_AGAIN = "Call the tool that gave it again only if it changes nothing."

_ARGUMENTS: dict[CodeType, Arguments] = {}
"""The arguments of each function that became such a tool, by its code.

Each session makes tools of its own of the same code, whose type hints never differ: to read those of a dozen tools
again would take longer than all else that opening a session does.
"""


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

        arguments = _ARGUMENTS.get(function.__code__)
        if arguments is None:
            arguments = read_arguments(function, name)
            _ARGUMENTS[function.__code__] = arguments
        made: FunctionTool[P, Awaitable[ToolResult]] = FunctionTool(
            name=name,
            description=description,
            input_schema=deepcopy(arguments.schema),  # its user may change it
            read_only=read_only,
            function=read,
            handler=calling(read, arguments, name),
        )
        READING_DESCRIPTIONS.add(made.description)
        return made

    return decorate
