import inspect
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional

import anyio.lowlevel
import pytest
from pydantic import BaseModel, Field

from ctxfs.errors import InvalidToolArguments, ToolDefinitionError, ToolError
from ctxfs.messages.messages import Content
from ctxfs.testing.strategies import png
from ctxfs.tools import Tool, ToolResult, tool
from patience import HANGS_S

pytestmark = pytest.mark.anyio


class Place(BaseModel):
    title: str
    zip_code: int = 0


@tool("Greets somebody")
async def greet(  # noqa: PLR0917 - a model names them
    name: Annotated[str, Field(description="Who")],
    times: int = 1,
    style: Literal["plain", "loud"] = "plain",
    note: Optional[str] = None,  # noqa: UP045 - users write it
    place: Place | None = None,
    schema: str = "a name that pydantic uses itself",
) -> str:
    """Say hello.

    Args:
        name: not this one, the Field wins
        times (int): how often,
            at least once
    """
    return f"{name}{times}{style}{note}{place}{schema}"


def test_the_schema_comes_from_the_type_hints() -> None:
    schema = dict(greet.input_schema)
    assert schema["type"] == "object"
    assert schema["required"] == ["name"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert properties["name"] == {"type": "string", "description": "Who"}
    assert properties["times"] == {"type": "integer", "default": 1, "description": "how often, at least once"}
    assert properties["style"]["enum"] == ["plain", "loud"]
    assert properties["note"] == {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}
    assert schema["$defs"]["Place"]["properties"]["title"] == {"type": "string"}
    assert list(properties) == ["name", "times", "style", "note", "place", "schema"]


def test_generated_titles_cost_no_tokens_at_any_depth() -> None:
    @tool("Nests")
    def nest(title: list[dict[str, Annotated[int, Field(title="Number")]]]) -> str:
        return str(title)

    inner = {"type": "object", "additionalProperties": {"type": "integer"}}
    assert nest.input_schema["properties"] == {"title": {"type": "array", "items": inner}}


def test_the_schema_of_a_tool_without_parameters_is_an_object() -> None:
    @tool("Ping")
    def ping() -> str:
        return "pong"

    assert ping.schema.name == "ping"
    assert ping.schema.input_schema == {"additionalProperties": False, "properties": {}, "type": "object"}


def test_sphinx_parameter_docs_describe_parameters() -> None:
    @tool("Search")
    def search(query: str, limit: int = 5) -> str:
        """Search.

        :param query: what to
            look for
        :param int limit: how many
        """
        return query * limit

    assert search.input_schema["properties"]["query"]["description"] == "what to look for"
    assert search.input_schema["properties"]["limit"]["description"] == "how many"


async def test_arguments_are_validated_and_converted() -> None:
    result = await greet.run({"name": "Ann", "times": "2", "place": {"title": "home"}})
    assert result.content == "Ann2plainNonetitle='home' zip_code=0a name that pydantic uses itself"


async def test_wrong_arguments_tell_the_model_what_to_change() -> None:
    with pytest.raises(InvalidToolArguments) as caught:
        await greet.run({"times": "x" * 500, "place": {"zip_code": 1}, "nmae": "Ann"})
    message = str(caught.value)
    assert "invalid arguments for greet" in message
    assert "- name: is required" in message
    assert "- times: Input should be a valid integer" in message
    assert "- place.title: is required" in message
    assert "- nmae: no such argument" in message
    assert "arguments: name (required), times (optional)" in message
    assert len(message) < 600


async def test_arguments_that_are_no_object_are_refused() -> None:
    with pytest.raises(InvalidToolArguments, match="must be a JSON object, not list"):
        await greet.run(["Ann"])  # type: ignore[arg-type]


async def test_only_so_many_problems_are_listed() -> None:
    @tool("Ping")
    def ping() -> str:
        return "pong"

    with pytest.raises(InvalidToolArguments, match="and 12 more\nit takes no arguments"):
        await ping.run({f"a{i}": 1 for i in range(20)})


async def test_the_decorated_function_stays_the_plain_function() -> None:
    @tool("Adds")
    def add(a: int, b: int = 2) -> int:
        return a + b

    assert add(1) == 3
    assert add(1, b=5) == 6
    assert (await greet("Bo")).startswith("Bo1")
    assert isinstance(add, Tool)
    assert str(inspect.signature(add)) == "(a: int, b: int = 2) -> int"
    assert (await add.run({"a": 1})).content == "3"


async def test_positional_only_parameters_and_bound_methods_work() -> None:
    class Shop:
        def price(self, item: str, /, count: int = 1) -> str:
            return f"{item}:{count}"

    priced = tool("Price of an item")(Shop().price)
    assert (await priced.run({"item": "pen", "count": 3})).content == "pen:3"
    assert (await priced.run({"item": "pen"})).content == "pen:1"


async def test_a_default_that_is_no_json_stays_out_of_the_schema() -> None:
    marker = object()

    @tool("Marks")
    def mark(value: Any = marker) -> bool:
        return value is marker

    assert mark.input_schema["properties"] == {"value": {}}
    assert (await mark.run({})).content == "true"


async def test_a_sync_function_runs_in_another_thread() -> None:
    @tool("Where")
    def where() -> int:
        return threading.get_ident()

    assert (await where.run({})).content != str(threading.get_ident())


@pytest.mark.both_loops
async def test_cancelling_does_not_wait_for_a_sync_function() -> None:
    begun, release, ended = threading.Event(), threading.Event(), threading.Event()

    @tool("Blocks")
    def block() -> str:
        begun.set()
        release.wait(HANGS_S)
        ended.set()
        return "late"

    try:
        async with anyio.create_task_group() as group:
            group.start_soon(block.run, {})
            while not begun.is_set():
                await anyio.lowlevel.checkpoint()
            group.cancel_scope.cancel()
        assert not ended.is_set()
    finally:
        release.set()


async def test_an_exception_of_the_tool_passes_through() -> None:
    @tool("Fails")
    def fail() -> str:
        raise KeyError("gone")

    with pytest.raises(KeyError, match="gone"):
        await fail.run({})


async def test_a_sync_function_may_return_an_awaitable() -> None:
    @tool("Later")
    def later() -> Any:
        return greet("Cy")

    assert str((await later.run({})).content).startswith("Cy1")


@dataclass
class Point:
    x: int


TEXT_BLOCK = {"type": "text", "text": "hi"}
SOURCE = {"type": "base64", "media_type": "image/png", "data": png(2, 2)}
IMAGE_BLOCK: dict[str, Any] = {"type": "image", "source": SOURCE}


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ("text\ud800", "text\ud800"),
        (None, ""),
        (b"caf\xc3\xa9 \xff", "café \udcff"),
        (bytearray(b"ab"), "ab"),
        (b"\xc3\xa9" * 200_001, "é" * 200_001),
        ([TEXT_BLOCK, IMAGE_BLOCK], (TEXT_BLOCK, IMAGE_BLOCK)),
        ((TEXT_BLOCK,), (TEXT_BLOCK,)),
    ],
)
async def test_what_a_tool_returns_becomes_content(returned: object, content: Content) -> None:
    @tool("Returns")
    async def give() -> Any:
        return returned

    assert await give.run({}) == ToolResult(content)


@pytest.mark.parametrize(
    ("returned", "content"),
    [
        ([{"type": "text", "value": 1}], '[{"type":"text","value":1}]'),
        ([{"type": "invoice", "text": "x"}], '[{"type":"invoice","text":"x"}]'),
        ([TEXT_BLOCK, "x"], '[{"type":"text","text":"hi"},"x"]'),
        ([], "[]"),
        ({"a": [1, 2.5, None]}, '{"a":[1,2.5,null]}'),
        (Point(3), '{"x":3}'),
        (Place(title="home"), '{"title":"home","zip_code":0}'),
        ({"n": float("inf")}, '{"n":"Infinity"}'),
        (["a\ud800"], '["a\\ud800"]'),
        (True, "true"),
    ],
)
async def test_data_that_a_tool_returns_becomes_json_and_is_known_to_be_data(returned: object, content: str) -> None:
    @tool("Returns")
    async def give() -> Any:
        return returned

    assert await give.run({}) == ToolResult(content, is_data=True)


def test_a_result_as_one_text_is_itself_or_the_json_of_its_blocks() -> None:
    assert ToolResult("seen").text == "seen"
    assert ToolResult((TEXT_BLOCK,)).text == json.dumps([TEXT_BLOCK], separators=(",", ":"))


async def test_a_tool_result_is_taken_as_it_is() -> None:
    result = ToolResult("no such thing", is_error=True)

    @tool("Returns")
    async def give() -> ToolResult:
        return result

    assert await give.run({}) == result


async def test_what_cannot_be_json_is_a_typed_error() -> None:
    @tool("Returns")
    async def give() -> Any:
        return {"a": object()}

    with pytest.raises(ToolError, match="returned, of type dict, cannot be written as JSON"):
        await give.run({})


@pytest.mark.parametrize(
    ("returned", "fault"),
    [
        ([{**TEXT_BLOCK, "raw": b"x"}], r"content\[0\]\['raw'\] is of type bytes"),
        ([TEXT_BLOCK, {**TEXT_BLOCK, "by_year": {2024: 1}}], r"content\[1\]\['by_year'\] has the key 2024"),
        (ToolResult(({**TEXT_BLOCK, "loss": float("nan")},)), "is nan"),
        (ToolResult(None), "not None"),  # type: ignore[arg-type]
        (ToolResult([3]), "not a content block"),  # type: ignore[arg-type]
    ],
)
async def test_content_that_could_not_be_recorded_is_a_typed_error(returned: Any, fault: str) -> None:
    @tool("Returns")
    async def give() -> Any:
        return returned

    with pytest.raises(ToolError, match=f"the tool returned content that cannot be recorded: .*{fault}"):
        await give.run({})


@pytest.mark.parametrize("wrapped", [False, True])
async def test_an_image_that_providers_refuse_is_a_typed_error(wrapped: bool) -> None:
    blocks: list[dict[str, Any]] = [
        TEXT_BLOCK,
        {**IMAGE_BLOCK, "source": {**SOURCE, "data": png(2, 2)[:20]}},
    ]

    @tool("Returns")
    async def give() -> Any:
        return ToolResult(tuple(blocks)) if wrapped else blocks

    with pytest.raises(ToolError, match=r"the tool returned an image that providers refuse \(data: "):
        await give.run({})


def test_a_schema_that_is_no_json_is_refused_at_once() -> None:
    def wait(seconds: float = float("inf")) -> None: ...

    with pytest.raises(
        ToolDefinitionError, match=r"tool wait: its input_schema is not JSON: .*\['default'\] is inf: use a finite"
    ):
        tool("Waits")(wait)


@pytest.mark.parametrize(("ephemeral", "keep"), [(True, 1), (3, 3), (False, None), (None, None)])
def test_ephemeral_says_how_many_results_stay(ephemeral: int | None, keep: int | None) -> None:
    @tool("Reads", ephemeral=ephemeral)
    def read() -> str:
        return ""

    assert read.keep_recent == keep


@pytest.mark.parametrize("ephemeral", [0, -1, 1.5, "2"])
def test_an_impossible_ephemeral_is_refused(ephemeral: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="at least 1"):
        tool("Reads", ephemeral=ephemeral)


def all_arguments(*args: int) -> None: ...
def all_keywords(**kwargs: int) -> None: ...
def unannotated(x) -> None: ...  # type: ignore[no-untyped-def]
def undefined(x: "Missing") -> None: ...  # type: ignore[name-defined] # noqa: F821
def without_schema(x: threading.Event) -> None: ...
def field_as_default(x: int = Field(1, ge=0)) -> None: ...
def generates(x: int) -> Iterator[int]:
    yield x


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (all_arguments, r"takes \*args"),
        (all_keywords, r"takes \*\*kwargs"),
        (unannotated, "'x' of tool unannotated has no type hint"),
        (undefined, "Missing"),
        (without_schema, "have no JSON schema"),
        (field_as_default, "Annotated"),
        (generates, "generator"),
        (lambda: "x", "cannot be a tool's name"),
    ],
)
def test_a_function_that_cannot_become_a_tool_says_why(function: Any, reason: str) -> None:
    with pytest.raises(ToolDefinitionError, match=reason):
        tool("Tries")(function)


def test_the_decorator_without_a_description_says_how_to_write_it() -> None:
    with pytest.raises(ToolDefinitionError, match=r'write @tool\("what'):
        tool(all_arguments)  # type: ignore[arg-type]
    with pytest.raises(ToolDefinitionError, match="needs a description"):
        tool(" ", name="x")(lambda: "x")


@pytest.mark.parametrize("name", ["", "a b", "a.b", "x" * 65, "ü", "ok\n"])
def test_names_that_providers_refuse_are_refused(name: str) -> None:
    with pytest.raises(ToolDefinitionError, match="cannot be a tool's name"):
        tool("Named", name=name)(lambda: "x")


def test_a_tool_built_by_hand_is_checked_too() -> None:
    async def handler(arguments: Any) -> str:
        return ""

    with pytest.raises(ToolDefinitionError, match="keep_recent is 0"):
        Tool(name="t", description="d", input_schema={}, handler=handler, keep_recent=0)
