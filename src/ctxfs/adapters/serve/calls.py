"""Which API and which conversation a request to the proxy belongs to. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ctxfs.context.history.parts import Part
from ctxfs.context.history.views import Api
from ctxfs.context.history.wire import tools_in


class Provider(NamedTuple):
    """A provider's API. ``path``: where the proxy offers it.

    ``variables``: the environment variables that name its base URL, each with the end that its programs expect.
    """

    path: str
    upstream: str
    variables: Mapping[str, str]


PROVIDERS: Mapping[str, Provider] = {
    "anthropic": Provider(
        "/anthropic",
        "https://api.anthropic.com",
        # Anthropic's SDKs, LiteLLM (aider) and goose.
        {"ANTHROPIC_BASE_URL": "", "ANTHROPIC_API_BASE": "", "ANTHROPIC_HOST": ""},
    ),
    "openai": Provider(
        "/openai",
        "https://api.openai.com/v1",
        # OpenAI's SDKs, LiteLLM and goose.
        {"OPENAI_BASE_URL": "/v1", "OPENAI_API_BASE": "/v1", "OPENAI_HOST": ""},
    ),
    "gemini": Provider(
        "/gemini",
        "https://generativelanguage.googleapis.com",
        {"GOOGLE_GEMINI_BASE_URL": ""},  # Google's SDKs, and gemini-cli
    ),
}

_ENDS: Mapping[str, Api] = {"/v1/messages": "messages", "/chat/completions": "chat", "/responses": "responses"}
"""How the paths of requests for a reply end, at whatever address: gateways and clouds have paths of their own."""

_GEMINI_PATH = re.compile(r"/models/([^/:]+):(generateContent|streamGenerateContent)$")


class Endpoint(NamedTuple):
    """What a request for a reply is sent to.

    ``model``: the model that the path names; "": the body names it. ``reads``: whether its reply can be read here; a
    stream of Gemini's that is no server-sent events cannot.
    """

    api: Api
    model: str = ""
    reads: bool = True


_SESSION_HEADERS = ("x-session-id", "session_id", "session-id", "conversation_id")


def endpoint_at(path: str, query: str = "") -> Endpoint | None:
    """What a request to ``path`` of any server asks; None if it is passed through, such as one to count tokens."""
    for end, api in _ENDS.items():
        if path.endswith(end):
            return Endpoint(api)
    found = _GEMINI_PATH.search(path)
    if found is None:
        return None
    return Endpoint("gemini", unquote(found[1]), reads=found[2] == "generateContent" or "alt=sse" in query)


def path_for(provider: str, path: str, upstream: str) -> str:
    """The path under ``upstream`` for what a program asked of the proxy under ``path``.

    Programs differ in whether the base URL that they are given ends with the version: Anthropic's SDKs and goose
    expect one without, OpenAI's SDKs and Vercel's AI SDK one with it. The address has the version once.
    """
    if provider == "gemini":
        return path  # it has several versions, and each program asks for its own
    plain = path.removeprefix("/v1")
    if provider == "openai":
        return plain  # its upstream ends with the version, or is a gateway's, which may have none
    return plain if upstream.endswith("/v1") else f"/v1{plain}"


def unstreamed_url(url: str) -> str:
    """The address that answers a request at once, where the one of ``url`` streams: only Gemini's differ."""
    path, _, query = url.partition("?")
    if not path.endswith(":streamGenerateContent"):
        return url
    kept = [one for one in query.split("&") if one and one != "alt=sse"]
    whole = f"{path.removesuffix(':streamGenerateContent')}:generateContent"
    return f"{whole}?{'&'.join(kept)}" if kept else whole


def normal_path(path: str) -> str | None:
    """A path of a request without ``.`` and ``..``, however they are written; None if it leads out of its base."""
    kept = list[str]()
    for segment in path.split("/"):
        plain = unquote(segment)
        if plain == "..":
            if len(kept) <= 1:  # the first one is empty: what stands before the first slash
                return None
            kept.pop()
        elif ".." in re.split(r"[/\\]", plain):  # a server may read an encoded separator as one
            return None
        elif plain != ".":
            kept.append(segment)
    return "/".join(kept)


def thread_of(headers: Mapping[str, str], body: Mapping[str, Any], *, otherwise: str) -> str:
    """The conversation that a request belongs to, as the client names it; ``otherwise`` if the client names none.

    Claude Code names it in ``metadata.user_id``, Codex in a header and as ``prompt_cache_key``. The messages
    do not identify it: even the first one changes.
    """
    metadata = body.get("metadata")
    user = metadata.get("user_id") if isinstance(metadata, Mapping) else None
    if isinstance(user, str) and (found := _session_in(user)):
        return found
    named = [headers.get(name) for name in _SESSION_HEADERS]
    return next((name for name in (*named, body.get("prompt_cache_key")) if isinstance(name, str) and name), otherwise)


def _session_in(user: str) -> str:
    """The session in a user's id: a field of it if it is JSON, else the text after the last ``_session_``."""
    try:
        given = json.loads(user)
    except ValueError:
        return user.rpartition("_session_")[2] if "_session_" in user else ""
    session = given.get("session_id") if isinstance(given, dict) else None
    return session if isinstance(session, str) else ""


def branch_of(body: Mapping[str, Any], parts: Iterable[Part]) -> str:
    """Which of the histories of a conversation a request shows, such as a subagent's.

    Histories differ in their tools or in their first call; nothing in a history is replaced before its first call.
    """
    given = body.get("tools")
    kinds = [str(tool.get("type")) for tool in given if isinstance(tool, Mapping)] if isinstance(given, list) else []
    tools = [*tools_in(body), *kinds]
    first = next((part.id for part in parts if part.kind == "call" and part.id), "")
    return hashlib.sha256(json.dumps([tools, first]).encode()).hexdigest()[:16]
