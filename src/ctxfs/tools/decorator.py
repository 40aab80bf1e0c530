"""``@tool``: a typed function becomes a tool, and stays callable as the function it is."""

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, ParamSpec, TypeVar, cast

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticUserError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from ctxfs.errors import InvalidToolArguments, ToolDefinitionError
from ctxfs.errors.checks import names_settings
from ctxfs.tools.base import Tool

P = ParamSpec("P")
R = TypeVar("R")

_SHOWN_INPUT_CHARS = 80
_SHOWN_ERRORS = 8


class _Arguments(BaseModel):
    """Base of all arguments. Here since a process's first model reads the disk (for plugins of pydantic)."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class Arguments:
    """The arguments of a function, as its type hints declare them; reading these takes milliseconds."""

    parameters: list[inspect.Parameter]
    model: type[BaseModel]
    """Validates what a model sent: fields in the order of the parameters, aliased to their names."""
    schema: dict[str, Any]


@dataclass(frozen=True, kw_only=True, eq=False)
class FunctionTool(Tool, Generic[P, R]):
    """A tool made from a function; calling it calls the function."""

    function: Callable[P, R]

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the plain function, without validation and without conversion of its result."""
        return self.function(*args, **kwargs)

    @property
    def __wrapped__(self) -> Callable[P, R]:
        return self.function


@names_settings({"keep_recent": "it is ephemeral here"})
def tool(
    description: str,
    *,
    ephemeral: int | bool | None = False,
    name: str | None = None,
    pin: bool = False,
    read_only: bool = False,
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]:
    """Make a function, async or not, a tool that a model can call.

    The JSON schema comes from the type hints; parameter descriptions from ``Annotated[..., Field(description=...)]``,
    else from the docstring's ``Args:`` section or ``:param x:`` lines. A sync function runs in a worker thread; when
    the call is cancelled, that thread is left to finish on its own. Follows "Context FileSystem 上下文卸载功能".

    Args:
        description: what the tool does, for the model.
        ephemeral: how many of the tool's newest results stay in the context; True is 1, False and None keep them all.
        name: the tool's name; None takes the function's.
        pin: its results are never evicted.
        read_only: it changes nothing, so that a call which a crash cuts off can be forgotten: the call is recorded with
            its result, in one commit. False: the call is durable before the function runs.

    Raises:
        ToolDefinitionError: the function cannot become a tool; the message says why.
    """
    if not isinstance(description, str):
        raise ToolDefinitionError('@tool needs a description: write @tool("what the tool does")')
    keep_recent = _keep_recent(ephemeral)
    for flag, value in (("pin", pin), ("read_only", read_only)):
        if not isinstance(value, bool):
            raise ToolDefinitionError(f"{flag} is {value!r}: use True or False")

    def decorate(function: Callable[P, R]) -> FunctionTool[P, R]:
        tool_name = name if name is not None else getattr(function, "__name__", "")
        arguments = read_arguments(function, tool_name)
        return FunctionTool(
            name=tool_name,
            description=description,
            input_schema=arguments.schema,
            keep_recent=keep_recent,
            pin=pin,
            read_only=read_only,
            function=function,
            handler=calling(function, arguments, tool_name),
        )

    return decorate


def _keep_recent(ephemeral: object) -> int | None:
    if ephemeral is None or ephemeral is False:
        return None
    if not isinstance(ephemeral, int) or ephemeral < 1:
        raise ToolDefinitionError(f"ephemeral={ephemeral!r}: give the number of results to keep, at least 1, or True")
    return int(ephemeral)


def _signature(function: Callable[..., Any], tool_name: str) -> inspect.Signature:
    """The function's parameters with evaluated types, or what is wrong with them."""
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolDefinitionError(f"tool {tool_name} is a generator: return the whole result instead of yielding it")
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, SyntaxError, TypeError, ValueError, AttributeError) as error:
        raise ToolDefinitionError(f"the type hints of tool {tool_name} cannot be read: {error}") from error
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise ToolDefinitionError(f"tool {tool_name} takes {parameter}: a model needs every argument by name")
        if parameter.annotation is parameter.empty:
            raise ToolDefinitionError(
                f"parameter {parameter.name!r} of tool {tool_name} has no type hint; add one (to make a method a tool, "
                "decorate the bound method: tool(...)(instance.method))"
            )
        if isinstance(parameter.default, FieldInfo):
            raise ToolDefinitionError(
                f"parameter {parameter.name!r} of tool {tool_name} has a Field as its default: write "
                "Annotated[type, Field(...)] = default"
            )
    return signature


def read_arguments(function: Callable[..., Any], tool_name: str) -> Arguments:
    """Read the arguments of a function from its type hints.

    Raises ``ToolDefinitionError``: they cannot be the arguments of a tool.
    """
    parameters = list(_signature(function, tool_name).parameters.values())
    documented = _documented_parameters(inspect.getdoc(function) or "")
    fields = {
        f"argument_{i}": _field(parameter, documented.get(parameter.name)) for i, parameter in enumerate(parameters)
    }
    try:
        model = create_model("Arguments", __base__=_Arguments, **cast("dict[str, Any]", fields))
        schema = model.model_json_schema()
    except (PydanticUserError, TypeError) as error:
        raise ToolDefinitionError(f"the parameters of tool {tool_name} have no JSON schema: {error}") from error
    schema = _without_titles(schema)
    schema.pop("description", None)  # the base's docstring
    schema.setdefault("properties", {})
    return Arguments(parameters, model, schema)


def _field(parameter: inspect.Parameter, documented: str | None) -> tuple[Any, Any]:
    annotation = parameter.annotation
    if documented:  # the inner Field of an Annotated type wins over the docstring
        annotation = _described(annotation, documented)
    if parameter.default is parameter.empty:
        return annotation, Field(alias=parameter.name)
    default = parameter.default
    try:
        to_jsonable_python(default)
    except PydanticSerializationError:  # not possible in the schema; the function itself fills it in
        return annotation, Field(alias=parameter.name, default_factory=lambda: default)
    return annotation, Field(alias=parameter.name, default=default)


def _described(annotation: Any, description: str) -> Any:
    metadata = getattr(annotation, "__metadata__", ())
    if any(isinstance(m, FieldInfo) and m.description for m in metadata):
        return annotation
    return Annotated[annotation, Field(description=description)]


def _documented_parameters(doc: str) -> dict[str, str]:
    """Parameter descriptions of a docstring in Google's or Sphinx's form."""
    found = {
        m[1]: " ".join(m[2].split())
        for m in re.finditer(r"^:param (?:[^:\n]* )?(\w+):([^\n]*(?:\n[ \t]+\S.*)*)", doc, re.MULTILINE)
    }
    section = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*\n((?:[ \t]+.*(?:\n|$)|[ \t]*\n)+)", doc, re.MULTILINE)
    if section:
        lines = inspect.cleandoc(section[1])
        for m in re.finditer(r"^(\w+)(?:[ \t]*\([^)\n]*\))?:([^\n]*(?:\n[ \t]+\S.*)*)", lines, re.MULTILINE):
            found[m[1]] = " ".join(m[2].split())
    return found


def _without_titles(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema without pydantic's generated titles: they repeat the names and cost tokens in every request."""
    result: dict[str, Any] = {}
    for key, value in schema.items():
        if key == "title" and isinstance(value, str):
            continue
        if key in ("properties", "$defs"):
            result[key] = {name: _without_titles(inner) for name, inner in value.items()}
        elif key in ("anyOf", "allOf", "oneOf", "prefixItems"):
            result[key] = [_without_titles(inner) for inner in value]
        elif key in ("items", "additionalProperties", "not") and isinstance(value, dict):
            result[key] = _without_titles(value)
        else:
            result[key] = value
    return result


def calling(
    function: Callable[..., Any], arguments: Arguments, tool_name: str
) -> Callable[[Mapping[str, Any]], Awaitable[Any]]:
    """Return a tool's handler: it calls the function with what a model sent, once that is valid."""
    is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)

    async def handle(sent: Mapping[str, Any]) -> Any:
        args, kwargs = _bind(_validated(arguments.model, sent, tool_name), arguments.parameters)
        if is_async:
            return await function(*args, **kwargs)
        # in a tuple, since trio refuses a function that returns a coroutine
        (value,) = await anyio.to_thread.run_sync(lambda: (function(*args, **kwargs),), abandon_on_cancel=True)
        return await value if inspect.isawaitable(value) else value

    return handle


def _bind(values: BaseModel, parameters: list[inspect.Parameter]) -> tuple[list[Any], dict[str, Any]]:
    """The call's arguments: what the model sent; the function's own defaults fill the rest."""
    args: list[Any] = []
    kwargs: dict[str, Any] = {}
    for i, parameter in enumerate(parameters):
        field = f"argument_{i}"
        if parameter.kind is parameter.POSITIONAL_ONLY:
            args.append(getattr(values, field))
        elif field in values.model_fields_set:
            kwargs[parameter.name] = getattr(values, field)
    return args, kwargs


def _validated(model: type[BaseModel], arguments: Mapping[str, Any], tool_name: str) -> BaseModel:
    if not isinstance(arguments, Mapping):
        raise InvalidToolArguments(
            f"the arguments of {tool_name} must be a JSON object, not {type(arguments).__name__}; {_usage(model)}"
        )
    try:
        return model.model_validate(dict(arguments))
    except ValidationError as error:
        problems = [_problem(dict(e)) for e in error.errors(include_url=False, include_context=False)]
        if len(problems) > _SHOWN_ERRORS:
            problems[_SHOWN_ERRORS:] = [f"and {len(problems) - _SHOWN_ERRORS} more"]
        listed = "\n".join(f"- {problem}" for problem in problems)
        raise InvalidToolArguments(f"invalid arguments for {tool_name}:\n{listed}\n{_usage(model)}") from error


def _problem(error: dict[str, Any]) -> str:
    where = ".".join(str(part) for part in error["loc"])[:_SHOWN_INPUT_CHARS] or "arguments"
    if error["type"] == "missing":
        return f"{where}: is required"
    if error["type"] == "extra_forbidden":
        return f"{where}: no such argument"
    shown = repr(error["input"])
    if len(shown) > _SHOWN_INPUT_CHARS:
        shown = shown[:_SHOWN_INPUT_CHARS] + "…"
    return f"{where}: {error['msg']} (got {shown})"


def _usage(model: type[BaseModel]) -> str:
    """The arguments in one line, for the model that got them wrong."""
    if not model.model_fields:
        return "it takes no arguments"
    names = [f"{f.alias} ({'required' if f.is_required() else 'optional'})" for f in model.model_fields.values()]
    return f"arguments: {', '.join(names)}"
