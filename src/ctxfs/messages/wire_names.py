"""Call ids and tool names as they are sent: as they are where the provider takes them, else readable replacements.

And the options of a request that name tools or need them. Pure.
"""

import hashlib
import re
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ctxfs.messages.base import Reply, ToolSchema
from ctxfs.messages.messages import AssistantMessage, Block

NEED_TOOLS = ("tool_choice", "parallel_tool_calls")
"""Options that a provider refuses in a request without tools, such as the one for a summary."""

_NOT_WIRE = re.compile(r"[^a-zA-Z0-9_-]")
_NOT_ALPHANUMERIC = re.compile(r"[^a-zA-Z0-9]")
_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireLimits:
    """Which call ids and tool names a provider takes: letters, digits, ``_`` and ``-``, and how long they may be.

    ``exact_ids``: ids have exactly ``max_id_chars`` characters, letters and digits only.
    """

    max_id_chars: int
    max_name_chars: int
    exact_ids: bool = False

    def call_id(self, raw: str, *, salt: str = "") -> str:
        """``raw`` if it can be sent and is unsalted, else what replaces it, always the same."""
        if not self.exact_ids:
            return _replaced(raw, self.max_id_chars, salt=salt)
        if not salt and len(raw) == self.max_id_chars and not _NOT_ALPHANUMERIC.search(raw):
            return raw
        number = int.from_bytes(_digest(raw, salt))
        digits: list[str] = []
        for _ in range(self.max_id_chars):
            number, digit = divmod(number, len(_DIGITS))
            digits.append(_DIGITS[digit])
        return "".join(digits)

    def name(self, raw: str) -> str:
        """The tool name to send for ``raw``."""
        return _replaced(raw, self.max_name_chars)


ANTHROPIC = WireLimits(max_id_chars=64, max_name_chars=128)


def short(made_up: str) -> str:
    """A tool's name or a call's id, as spans and logs have it.

    A model may make one up: what is longer than any provider takes is cut, with a hash at its end.
    """
    return made_up if len(made_up) <= ANTHROPIC.max_name_chars else ANTHROPIC.name(made_up)


class WireNames:
    """The ids and names of one conversation. An id that repeats is replaced too, so that no two calls share one."""

    def __init__(self, limits: WireLimits) -> None:
        self._limits = limits
        self._uses: Counter[str] = Counter()
        self._open: defaultdict[str, deque[str]] = defaultdict(deque)

    def open_turn(self) -> None:
        """Forget the calls of earlier assistant turns: a result answers the turn right before it."""
        self._open.clear()

    def name(self, raw: str) -> str:
        """The tool name to send for ``raw``."""
        return self._limits.name(raw)

    def call(self, block: Block, raw: Block) -> Block:
        """A cleaned tool call under the id and name to send, which go by the ``raw`` ones."""
        self._uses[raw["id"]] += 1
        call_id = self._last_sent(raw["id"])
        self._open[raw["id"]].append(call_id)
        name = self.name(raw["name"])
        if (call_id, name) == (block["id"], block["name"]):
            return block
        return {**block, "id": call_id, "name": name}

    def answer(self, raw: str) -> str:
        """The id to send for a result of the call ``raw``."""
        waiting = self._open.get(raw)
        if waiting:
            return waiting.popleft()
        return self._last_sent(raw)

    def forget(self, raw_ids: Sequence[str]) -> None:
        """Take back the last uses of these ids."""
        self._uses.subtract(raw_ids)

    def _last_sent(self, raw: str) -> str:
        """The id that is sent for the last use of ``raw``, or would be for its first one."""
        uses = self._uses[raw]
        return self._limits.call_id(raw, salt=str(uses) if uses > 1 else "")


def with_own_names(reply: Reply, tools: Iterable[ToolSchema], limits: WireLimits = ANTHROPIC) -> Reply:
    """``reply`` with the names of ``tools`` in its calls, where others were sent (see ``WireLimits.name``)."""
    own = {limits.name(tool.name): tool.name for tool in tools}
    content = reply.message.content
    if isinstance(content, str) or all(sent == name for sent, name in own.items()):
        return reply
    blocks: list[Block] = []
    for block in content:
        if block["type"] == "tool_use" and block["name"] in own:
            blocks.append({**block, "name": own[block["name"]]})
        else:
            blocks.append(block)
    return replace(reply, message=AssistantMessage(tuple(blocks)))


def tool_names(definitions: Iterable[Any]) -> list[str]:
    """The names in the definitions of tools, in the form of any of the APIs; what has no name is left out."""
    return [named["name"] for named in named_definitions(definitions)]


def named_definitions(definitions: Iterable[Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the part of each tool's definition that has its name and description; what has no name is left out."""
    for definition in definitions:
        if not isinstance(definition, Mapping):
            continue
        # Gemini's declarations are in one definition; Codex sends the tools of an MCP server in one, a "namespace".
        inner = definition.get("functionDeclarations", definition.get("tools"))
        if isinstance(inner, list):
            yield from named_definitions(inner)
            continue
        function = definition.get("function")
        named = function if isinstance(function, Mapping) else definition
        if isinstance(named.get("name"), str):
            yield named


def with_options(
    body: Mapping[str, Any],
    options: Mapping[str, Any],
    tools: Iterable[ToolSchema],
    limits: WireLimits = ANTHROPIC,
) -> dict[str, Any]:
    """``body`` with the developer's ``options`` in it.

    They go in as they are, but for two things: ``tool_choice`` names the tools by the names that are sent, and what a
    provider refuses without tools is left out of a request that has none.
    """
    merged = {**body, **options}
    if not merged.get("tools"):
        return {key: value for key, value in merged.items() if key not in NEED_TOOLS}
    if "tool_choice" in merged:
        merged["tool_choice"] = _renamed(merged["tool_choice"], {t.name: limits.name(t.name) for t in tools})
    return merged


def _renamed(choice: Any, sent: Mapping[str, str]) -> Any:
    """A tool choice, of either API, with the names that are sent; it may hold a list of tools, too."""
    if isinstance(choice, list | tuple):
        return [_renamed(inner, sent) for inner in choice]
    if not isinstance(choice, Mapping):
        return choice
    renamed: dict[str, Any] = {}
    for key, value in choice.items():
        if key == "name" and isinstance(value, str):
            renamed[key] = sent.get(value, value)
        else:
            renamed[key] = _renamed(value, sent)
    return renamed


def _replaced(raw: str, max_chars: int, *, salt: str = "") -> str:
    """``raw`` if it can be sent and is unsalted, else what is readable of it and a hash, within ``max_chars``."""
    if not salt and 0 < len(raw) <= max_chars and not _NOT_WIRE.search(raw):
        return raw
    hashed = _digest(raw, salt).hex()[:12]
    readable = _NOT_WIRE.sub("_", raw[: max_chars - len(hashed) - 1])
    return f"{readable}_{hashed}"


def _digest(raw: str, salt: str) -> bytes:
    return hashlib.sha256(f"{salt}\0{raw}".encode("utf-8", "surrogatepass")).digest()
