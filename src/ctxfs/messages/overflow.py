"""Is an error a refusal because the prompt is too long? Of every provider, and of what its SDK raises: the only table.

Machine-readable codes decide first, wordings after them. A new provider is one more row in ``WORDINGS``.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxfs.errors import PromptTooLong
from ctxfs.errors.checks import names_settings

CODES = frozenset({"context_length_exceeded", "exceed_context_size_error", "model_max_prompt_tokens_exceeded"})
"""Values of ``code`` or ``type`` that say it: of OpenAI and compatible servers, llama.cpp, GitHub Copilot."""

OTHER_STATUSES = frozenset({401, 402, 403, 429})
"""About the account, not the request: what they say of tokens is a rate."""

MAX_TEXT_CHARS = 10_000
"""Some wordings are searched with gaps, which takes long in a whole page of HTML; refusals are a few lines."""

_LIMIT = r"(?P<limit>\d{1,12})"
_ACTUAL = r"(?P<actual>\d{1,12})"
_INPUT = r"(?P<input>\d{1,12})"
_OUTPUT = r"(?P<output>\d{1,12})"

TOKENS_PER_MINUTE = re.compile(
    rf"request too large for .{{0,200}}tokens per min.{{0,40}}limit {_LIMIT}, requested {_ACTUAL}",
    re.IGNORECASE | re.DOTALL,
)
"""OpenAI (429) and Groq (413): the request alone is over what a minute allows, so that waiting never helps."""

WORDINGS = tuple(
    re.compile(wording, re.IGNORECASE | re.DOTALL)
    for wording in (
        # With figures. Anthropic
        rf"prompt is too long: {_ACTUAL} tokens > {_LIMIT}",
        rf"exceed context limit: {_INPUT} \+ {_OUTPUT} > {_LIMIT}",
        # vLLM, asked for too long a reply
        rf"too large: {_OUTPUT}\..{{0,80}}context length is {_LIMIT} tokens and your request has {_INPUT} input tokens",
        # OpenAI before GPT-5, vLLM, SGLang, DeepSeek, OpenRouter
        rf"maximum context length (?:is|of) {_LIMIT} tokens.{{0,400}}?\b{_ACTUAL} tokens",
        # OpenAI since GPT-5
        rf"exceed the configured limit of {_LIMIT} tokens.{{0,200}}?\b{_ACTUAL} tokens",
        # xAI
        rf"maximum prompt length is {_LIMIT} but the request contains {_ACTUAL}",
        # Gemini, and on Vertex
        rf"input token count \({_ACTUAL}\)\s+exceeds the maximum number of tokens allowed \({_LIMIT}\)",
        rf"input token count is {_ACTUAL} but model only supports up to {_LIMIT}",
        # vLLM, SGLang
        rf"prompt \(length {_ACTUAL}\) is longer than the maximum model length of {_LIMIT}",
        rf"input \({_ACTUAL} tokens\) is longer than the model's context length \({_LIMIT}",
        # llama.cpp, LM Studio
        rf"request \({_ACTUAL} tokens\) exceeds the available context size \({_LIMIT}",
        rf"keep the first {_ACTUAL} tokens when .{{0,120}}context length of only {_LIMIT} tokens",
        # Mistral
        rf"prompt contains {_ACTUAL} tokens.{{0,80}}too large for model with {_LIMIT} maximum context length",
        # Text Generation Inference, Together
        rf"tokens \+ `max_new_tokens` must be <= {_LIMIT}\. Given: {_INPUT} `inputs` tokens and {_OUTPUT}",
        rf"`inputs` must have less than {_LIMIT} tokens\. Given: {_ACTUAL}",
        # GitHub Copilot, Moonshot, Cerebras, Fireworks, Cohere, Qwen
        rf"prompt token count of {_ACTUAL} exceeds the limit of {_LIMIT}",
        rf"exceeded model token limit: {_LIMIT} \(requested: {_ACTUAL}\)",
        rf"current length is {_ACTUAL} while limit is {_LIMIT}",
        rf"prompt is too long: {_ACTUAL}, model maximum context length: {_LIMIT}",
        rf"tokens in the prompt cannot exceed {_LIMIT} - received {_ACTUAL}",
        rf"range of input length should be \[1, {_LIMIT}\]",
        # Without figures: the codes, in an answer that is no JSON; then the words of all of the above, and of
        # GPT-5 in the Responses API, Groq, Ollama, Bedrock, MiniMax, GLM
        "|".join(sorted(CODES)),
        "prompt (?:is )?too long|input is too long|prompt exceeds max length|input length exceeds",
        "exceed context limit|context window exceeds limit|exceeds the context window|available context size",
        "maximum context length|maximum prompt length|reduce the length of the messages",
    )
)


@names_settings()
def too_long(error: object, *, status: int | None = None) -> PromptTooLong | None:
    """``error`` as ``PromptTooLong`` if it is a provider's refusal of a prompt as too long, else None.

    ``error``: what an SDK raised (``anthropic.BadRequestError``, ``openai.BadRequestError`` …), any other exception
    with such a text, an error object of a provider's answer, or a text. ``status``: the HTTP status of the answer;
    None takes the exception's own, if it has one. ``limit_tokens`` and ``actual_tokens`` are set where the provider
    gave them; the actual tokens include those asked for the reply where the provider counts them.
    """
    if isinstance(error, PromptTooLong):
        return error
    fields = error_fields(error)
    status = status or _status(error)
    text = "\n".join(_texts(fields))[:MAX_TEXT_CHARS]
    wordings = (TOKENS_PER_MINUTE,) if status in OTHER_STATUSES else (TOKENS_PER_MINUTE, *WORDINGS)
    numbers = _numbers(fields, text, wordings)
    if numbers is None and status != 413 and not _has_code(fields):
        return None
    limit, actual = numbers or (None, None)
    if limit is not None and actual is not None and actual <= limit:  # not the figures of this refusal
        actual = None
    message = str(fields.get("message") or error)
    return PromptTooLong(message, limit_tokens=limit, actual_tokens=actual, status=status)


def error_fields(error: object) -> Mapping[str, Any]:
    """The innermost error object of an exception or an answer, wherever it is wrapped; a text is its ``message``."""
    if isinstance(error, BaseException):
        error = getattr(error, "body", None) or {"message": str(error), "code": getattr(error, "code", None)}
    while (inner := _inner(error)) is not None:
        error = inner
    return error if isinstance(error, Mapping) else {"message": str(error)}


def _inner(error: object) -> Any:
    match error:
        case {"error": inner} if inner:
            return inner
        case [first, *_]:  # Gemini's compatible API
            return first
    return None


def _numbers(
    fields: Mapping[str, Any], text: str, wordings: Iterable[re.Pattern[str]]
) -> tuple[int | None, int | None] | None:
    """The limit and the actual tokens as far as they are given; None when nothing says that a prompt is too long."""
    match fields:
        case {"n_ctx": int(limit), "n_prompt_tokens": int(actual)}:  # llama.cpp
            return limit, actual
    for wording in wordings:
        found = wording.search(text)
        if found is not None:
            numbers = {name: int(value) for name, value in found.groupdict().items()}
            if "input" in numbers:
                return numbers["limit"], numbers["input"] + numbers["output"]
            return numbers.get("limit"), numbers.get("actual")
    return None


def _has_code(fields: Mapping[str, Any]) -> bool:
    for name in ("code", "type"):
        value = fields.get(name)
        if isinstance(value, str) and value in CODES:
            return True
    return False


def _status(error: object) -> int | None:
    """The HTTP status that an exception has, if it is one of a failure: in the middle of a stream it is 200."""
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _texts(value: object) -> Iterator[str]:
    """Every text in an error object: gateways put the provider's own answer somewhere inside of theirs."""
    match value:
        case str():
            yield value
        case Mapping():
            for item in value.values():
                yield from _texts(item)
        case list() | tuple():
            for item in value:
                yield from _texts(item)
