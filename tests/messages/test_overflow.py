"""What the providers refuse as too long is recognised, with its figures, in an answer, in a stream and as SDK error."""

import json
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ctxfs.agent import ChatAnthropic, ChatOpenAI
from ctxfs.agent.llm.retry import classify
from ctxfs.context import Context
from ctxfs.errors import InvalidRequest, ModelError, Overloaded, PromptTooLong, RateLimited
from ctxfs.eviction import Window
from ctxfs.messages import AssistantMessage, ChatModel, ModelRequest, ToolMessage, UserMessage, too_long
from ctxfs.testing.loopback import Answer, LoopbackServer

Case = tuple[str, int | None, Any, tuple[int | None, int | None]]

OPENAI = {"type": "invalid_request_error", "code": "context_length_exceeded", "param": "messages"}
GPT_5 = (
    "Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 413021 tokens. "
    "Please reduce the length of the messages."
)
REDUCE = "Please reduce the length of the messages or completion."

TOO_LONG: list[Case] = [
    ("anthropic", 400, "prompt is too long: 208310 tokens > 200000 maximum", (200_000, 208_310)),
    (
        "anthropic, with the reply",
        400,
        "input length and `max_tokens` exceed context limit: 197202 + 8192 > 200000, decrease input length",
        (200_000, 205_394),
    ),
    ("anthropic, by bytes", 413, {"type": "request_too_large", "message": "Request exceeds the maximum"}, (None, None)),
    (
        "openai",
        400,
        {
            **OPENAI,
            "message": "This model's maximum context length is 8192 tokens. However, your messages resulted in "
            "9001 tokens. Please reduce the length of the messages.",
        },
        (8192, 9001),
    ),
    ("openai since gpt-5", 400, {**OPENAI, "message": GPT_5}, (272_000, 413_021)),
    ("openai, the code alone", 400, {**OPENAI, "message": "No."}, (None, None)),
    ("openai, in other words", 400, "Your input exceeds the context window of this model.", (None, None)),
    (
        "openai, in a minute",
        429,
        {
            "type": "tokens",
            "code": "rate_limit_exceeded",
            "message": "Request too large for gpt-4o in organization org-1 on tokens per min (TPM): Limit 30000, "
            "Requested 40503. The input or output tokens must be reduced in order to run successfully.",
        },
        (30_000, 40_503),
    ),
    (
        "groq, in a minute",
        413,
        (
            "Request too large for model `m` in organization `o` service tier `on_demand` on tokens per minute (TPM): "
            "Limit 12000, Requested 15438, please reduce your message size and try again."
        ),
        (12_000, 15_438),
    ),
    ("groq", 400, {**OPENAI, "message": REDUCE}, (None, None)),
    ("cerebras", 400, f"{REDUCE} Current length is 28703 while limit is 8192", (8192, 28_703)),
    (
        "xai",
        400,
        "This model's maximum prompt length is 131072 but the request contains 160000 tokens.",
        (131_072, 160_000),
    ),
    (
        "gemini",
        400,
        [
            {
                "error": {
                    "code": 400,
                    "message": "The input token count (1200000) exceeds the maximum number of tokens allowed "
                    "(1048576).",
                    "status": "INVALID_ARGUMENT",
                }
            }
        ],
        (1_048_576, 1_200_000),
    ),
    (
        "vertex",
        400,
        "Unable to submit request because the input token count is 1400000 but model only supports up to 1048576.",
        (1_048_576, 1_400_000),
    ),
    (
        "vllm",
        400,
        (
            "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the "
            "messages, 1000 in the completion)."
        ),
        (4096, 5000),
    ),
    (
        "vllm, newer",
        400,
        (
            "This model's maximum context length is 4096 tokens. However, you requested 1000 output tokens and your "
            "prompt contains at least 3097 input tokens, for a total of at least 4097 tokens."
        ),
        (4096, 4097),
    ),
    (
        "vllm, the reply",
        400,
        (
            "'max_tokens' or 'max_completion_tokens' is too large: 16384. This model's maximum context length is 32768 "
            "tokens and your request has 20000 input tokens (16384 > 32768 - 20000)."
        ),
        (32_768, 36_384),
    ),
    (
        "vllm, the prompt",
        400,
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096. Make sure that …",
        (4096, 5000),
    ),
    ("sglang", 400, "The input (5000 tokens) is longer than the model's context length (4096 tokens).", (4096, 5000)),
    (
        "sglang, with the reply",
        400,
        (
            "Requested token count exceeds the model's maximum context length of 4096 tokens. You requested a total of "
            "5000 tokens: 4000 tokens from the input messages and 1000 tokens for the completion."
        ),
        (4096, 5000),
    ),
    (
        "llama.cpp",
        400,
        {
            "type": "exceed_context_size_error",
            "message": "the request exceeds the available context size, try increasing it",
            "n_prompt_tokens": 9000,
            "n_ctx": 4096,
        },
        (4096, 9000),
    ),
    ("llama.cpp, as text", 400, "request (9000 tokens) exceeds the available context size (4096 tokens)", (4096, 9000)),
    ("llama.cpp, older", 500, {"type": "exceed_context_size_error", "message": "No."}, (None, None)),
    (
        "lm studio",
        400,
        (
            "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with "
            "context length of only 4096 tokens, which is not enough."
        ),
        (4096, 9000),
    ),
    ("ollama", 400, {"error": "input length exceeds maximum context length"}, (None, None)),
    ("bedrock", 400, "Input is too long for requested model.", (None, None)),
    (
        "mistral",
        400,
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        (32_768, 40_000),
    ),
    (
        "together",
        422,
        (
            "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 `inputs` tokens "
            "and 512 `max_new_tokens`"
        ),
        (8193, 9512),
    ),
    ("text generation inference", 422, "`inputs` must have less than 4096 tokens. Given: 5000", (4096, 5000)),
    (
        "github copilot",
        400,
        {
            "code": "model_max_prompt_tokens_exceeded",
            "message": "prompt token count of 135521 exceeds the limit of 128000",
        },
        (128_000, 135_521),
    ),
    (
        "moonshot",
        400,
        "Invalid request: Your request exceeded model token limit: 262144 (requested: 291351)",
        (262_144, 291_351),
    ),
    ("fireworks", 400, "The prompt is too long: 140000, model maximum context length: 131071", (131_071, 140_000)),
    (
        "cohere",
        400,
        "too many tokens: total number of tokens in the prompt cannot exceed 4081 - received 4292.",
        (4081, 4292),
    ),
    (
        "qwen",
        400,
        "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 98304]",
        (98304, None),
    ),
    ("minimax", 400, "invalid params, context window exceeds limit (2013)", (None, None)),
    ("glm", 400, {"code": "1261", "message": "Prompt exceeds max length"}, (None, None)),
    (
        "openrouter",
        400,
        (
            "This endpoint's maximum context length is 200000 tokens. However, you requested about 210000 tokens "
            "(200000 of text input, 10000 in the output)."
        ),
        (200_000, 210_000),
    ),
    (
        "openrouter, what it passes on",
        400,
        {
            "code": 400,
            "message": "Provider returned error",
            "metadata": {
                "raw": json.dumps(
                    {"type": "error", "error": {"message": "prompt is too long: 201 tokens > 200 maximum"}}
                ),
                "provider_name": "Anthropic",
            },
        },
        (200, 201),
    ),
    ("figures that show no excess", 400, "maximum context length is 4096 tokens; 7 tokens", (4096, None)),
]

OTHERWISE: list[tuple[str, int | None, Any, type[ModelError]]] = [
    (
        "azure's content filter",
        400,
        {
            "code": "content_filter",
            "message": "The response was filtered due to the prompt triggering Azure OpenAI's content management "
            "policy. Please modify your prompt and retry.",
            "innererror": {
                "code": "ResponsibleAIPolicyViolation",
                "content_filter_result": {"hate": {"filtered": True}},
            },
        },
        InvalidRequest,
    ),
    ("the content filter, in the code", 400, {"code": "content_filter", "message": "Filtered."}, InvalidRequest),
    (
        "a reply that no model gives",
        400,
        "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens",
        InvalidRequest,
    ),
    (
        "a reply that no model gives, at openai",
        400,
        (
            "max_tokens is too large: 100000. This model supports at most 16384 completion tokens, whereas you "
            "provided 100000."
        ),
        InvalidRequest,
    ),
    (
        "a call id",
        400,
        {
            "code": "string_above_max_length",
            "message": "Invalid 'messages[2].tool_calls[0].id': string too long. Expected a string with maximum length "
            "40, but got a string with length 51 instead.",
        },
        InvalidRequest,
    ),
    (
        "calls",
        400,
        {
            "code": "array_above_max_length",
            "message": "Invalid 'messages[2].tool_calls': array too long. Expected an array with maximum length 128, "
            "but got an array with length 200 instead.",
        },
        InvalidRequest,
    ),
    ("an image", 400, "messages.0.content.1.image.source.base64: image exceeds 5 MB maximum", InvalidRequest),
    (
        "a rate",
        429,
        {"type": "rate_limit_error", "message": "This would exceed 40,000 input tokens: prompt is too long for now"},
        RateLimited,
    ),
    ("a rate, at bedrock", 429, "Too many tokens, please wait before trying again.", RateLimited),
    ("an overload", 529, {"type": "overloaded_error", "message": "Overloaded"}, Overloaded),
]


def ids(cases: list[Any]) -> list[str]:
    return [case[0] for case in cases]


@pytest.mark.parametrize(("name", "status", "said", "figures"), TOO_LONG, ids=ids(TOO_LONG))
def test_a_refusal_of_any_provider_is_recognised_with_its_figures(
    name: str, status: int, said: Any, figures: tuple[int | None, int | None]
) -> None:
    error = classify(said, status=status).error
    assert isinstance(error, PromptTooLong), name
    assert (error.limit_tokens, error.actual_tokens) == figures
    assert error.status == status


@pytest.mark.parametrize(("name", "status", "said", "kind"), OTHERWISE, ids=ids(OTHERWISE))
def test_what_is_refused_for_another_reason_is_that(name: str, status: int, said: Any, kind: type[ModelError]) -> None:
    assert type(classify(said, status=status).error) is kind, name
    assert too_long(said, status=status) is None


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["error", "message", "code"]), inner)
        ),
    )
)
def test_whatever_stands_in_an_answer_it_is_classified(said: Any) -> None:
    assert isinstance(classify(said, status=400).error, ModelError)


class Refusing(LoopbackServer):
    """Answers with ``status`` and ``body``; with status 200, by a stream in which ``body`` is the error."""

    def __init__(self, status: int, body: Any) -> None:
        super().__init__()
        self.status, self.body = status, body

    def answer(self, path: str, headers: Mapping[str, str], body: bytes) -> Answer:
        if self.status == 200:
            return Answer(200, events=[b"event: error\ndata: %s\n\n" % json.dumps(self.body).encode()])
        return Answer(self.status, self.body)


def anthropic_error(url: str, *, stream: bool) -> Exception:
    with anthropic.Anthropic(api_key="k", base_url=url, max_retries=0) as client:
        try:
            list(client.messages.create(model="m", max_tokens=9, messages=[QUESTION], stream=stream))
        except anthropic.APIError as error:
            return error
    raise AssertionError


def openai_error(url: str, *, stream: bool) -> Exception:
    with openai.OpenAI(api_key="k", base_url=url, max_retries=0) as client:
        try:
            list(client.chat.completions.create(model="m", messages=[QUESTION], stream=stream))
        except openai.APIError as error:
            return error
    raise AssertionError


QUESTION: Any = {"role": "user", "content": "q"}
ANTHROPIC_BODY = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "prompt is too long: 208310 tokens > 200000 maximum"},
}
SMALL = "Input tokens exceed the configured limit of 4000 tokens. Your messages resulted in 5040 tokens."
OPENAI_BODY = {"error": {**OPENAI, "message": SMALL}}
SDKS: list[tuple[Callable[..., Exception], Any, tuple[int, int]]] = [
    (anthropic_error, ANTHROPIC_BODY, (200_000, 208_310)),
    (openai_error, OPENAI_BODY, (4000, 5040)),
]


@pytest.mark.not_measured
@pytest.mark.parametrize(("status", "stream"), [(400, False), (400, True), (413, True), (200, True)])
@pytest.mark.parametrize(("call", "body", "figures"), SDKS)
def test_the_errors_of_the_sdks_are_recognised(
    call: Callable[..., Exception], body: Any, figures: tuple[int, int], status: int, stream: bool
) -> None:
    with Refusing(status, body) as server:
        refusal = too_long(call(server.url, stream=stream))
    assert refusal is not None
    assert (refusal.limit_tokens, refusal.actual_tokens) == figures
    assert refusal.status == (None if status == 200 else status)


@pytest.mark.not_measured
@pytest.mark.parametrize("call", [anthropic_error, openai_error])
def test_an_answer_that_is_no_json_is_recognised_by_its_status_or_its_words(call: Callable[..., Exception]) -> None:
    with Refusing(413, "<html>Request Entity Too Large</html>") as server:
        assert isinstance(too_long(call(server.url, stream=False)), PromptTooLong)
    with Refusing(400, "Input is too long for requested model.") as server:
        assert isinstance(too_long(call(server.url, stream=False)), PromptTooLong)
    with Refusing(400, "no") as server:
        assert too_long(call(server.url, stream=False)) is None


@pytest.mark.anyio
@pytest.mark.parametrize("status", [400, 200])
@pytest.mark.parametrize(
    ("make", "body"),
    [
        (lambda url: ChatAnthropic(api_key="k", base_url=url), ANTHROPIC_BODY),
        (lambda url: ChatOpenAI("m", base_url=url), OPENAI_BODY),
    ],
)
async def test_our_models_raise_it_also_out_of_a_stream(
    make: Callable[[str], ChatModel], body: Any, status: int
) -> None:
    async with Refusing(status, body) as server:
        model = make(server.url)
        async with aclosing(model.stream(ModelRequest(messages=(UserMessage("q"),)))) as events:
            with pytest.raises(PromptTooLong) as caught:
                await anext(events)
        await model.close()
    assert caught.value.actual_tokens is not None
    assert caught.value.attempts == 1


@pytest.fixture(scope="module")
def refusal() -> Exception:
    with Refusing(400, OPENAI_BODY) as server:
        return openai_error(server.url, stream=False)


@pytest.fixture(scope="module")
def other() -> Exception:
    with Refusing(400, {"error": {"message": "no"}}) as server:
        return openai_error(server.url, stream=False)


@pytest.mark.anyio
async def test_a_context_takes_the_error_of_an_sdk_and_raises_any_other_again(
    tmp_path: Path, refusal: Exception, other: Exception
) -> None:
    call = {"type": "tool_use", "id": "a", "name": "Read", "input": {}}
    async with Context(root_path=tmp_path, window=Window(400_000, reply_tokens=128_000)) as context:
        for message in (
            UserMessage("q"),
            AssistantMessage((call,)),
            ToolMessage("a", "Read", "word " * 5_000),
            AssistantMessage("r"),
        ):
            await context.add(message)
        sent = await context.messages()
        for error in (other, ValueError("no such file")):
            with pytest.raises(type(error)) as caught:
                await context.refused(error)
            assert caught.value is error
        assert await context.messages() == sent
        result = (await context.refused(refusal))[2]
        assert isinstance(result, ToolMessage)
        assert result.offloaded


def test_what_is_recognised_already_stays_itself() -> None:
    error = PromptTooLong("too long", limit_tokens=5)
    assert too_long(error) is error
    assert too_long(InvalidRequest("no")) is None


def test_a_code_says_it_whatever_the_status() -> None:
    said = too_long({"code": "context_length_exceeded", "message": "slow down"}, status=429)
    assert said is not None
    assert (said.limit_tokens, said.actual_tokens) == (None, None)
    assert too_long({"code": 5, "type": "rate_limit_error", "message": "slow down"}, status=429) is None
