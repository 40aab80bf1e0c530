"""Which API and which conversation a request to the proxy belongs to. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

from ctxfs.context.history.parts import Part
from ctxfs.context.history.views import Api


class Provider(NamedTuple):
    """A provider's API. ``path``: where the proxy offers it; ``variables``: those that give programs its base URL."""

    path: str
    upstream: str
    variables: tuple[str, ...]


BASE_URLS: Mapping[str, Provider] = {
    "anthropic": Provider("/anthropic", "https://api.anthropic.com", ("ANTHROPIC_BASE_URL",)),
    "openai": Provider("/openai/v1", "https://api.openai.com/v1", ("OPENAI_BASE_URL", "OPENAI_API_BASE")),
}

_APIS: Mapping[tuple[str, str], Api] = {
    ("anthropic", "/v1/messages"): "messages",
    ("openai", "/chat/completions"): "chat",
    ("openai", "/responses"): "responses",
}
_SESSION_HEADERS = ("x-session-id", "session_id", "session-id", "conversation_id")


def api_of(provider: str, path: str) -> Api | None:
    """The API of a request to ``path``; None if it is passed through unchanged, such as a request to count tokens."""
    return _APIS.get((provider, path))


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
    tools = [_name(tool) for tool in given if isinstance(tool, Mapping)] if isinstance(given, list) else []
    first = next((part.id for part in parts if part.kind == "call" and part.id), "")
    return hashlib.sha256(json.dumps([tools, first]).encode()).hexdigest()[:16]


def _name(tool: Mapping[str, Any]) -> str:
    function = tool.get("function")
    named = function if isinstance(function, Mapping) else tool
    return str(named.get("name") or tool.get("type"))
