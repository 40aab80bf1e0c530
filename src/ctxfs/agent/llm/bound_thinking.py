"""Thinking that a provider takes back only behind what stood before it when it was made. Pure.

From claude-fable-5-1 on, Anthropic's models sign each thinking block together with the system prompt, the tools and all
messages before it. Once anything of that changed, as with every eviction, the block and those after it are invalid. A
request that holds one is refused, unless it asks for the invalid ones to be left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

BINDING_BETA = "thinking-binding-controls-2026-08-01"
"""The name in the header ``anthropic-beta`` without which the field ``block_binding`` is unknown."""

_REFUSAL = "bound to a different conversation"
_HEADER = "anthropic-beta"


@dataclass(slots=True)
class ThinkingDropper:
    """To which ``models`` a client's requests ask for invalid thinking to be left out: from their first refusal on.

    Others may not know what is asked.
    """

    models: set[str] = field(default_factory=set)

    def asking(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        """The body to send for ``body``; the same object where nothing is asked."""
        return dropping_thinking(body) if body.get("model") in self.models else body

    def refused(self, body: Mapping[str, Any], answer: object) -> bool:
        """Whether ``answer``, an error or its text, refuses thinking in ``body`` that can be left out; it is then."""
        if _REFUSAL not in str(answer) or not can_drop_thinking(body):
            return False
        self.models.add(str(body.get("model")))
        return True


def can_drop_thinking(body: Mapping[str, Any]) -> bool:
    """Whether a request may ask for invalid thinking to be left out: it says nothing of that, and may think."""
    thinking = body.get("thinking") or {}
    return isinstance(thinking, Mapping) and thinking.get("type") != "disabled" and "block_binding" not in thinking


def dropping_thinking(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """The body that asks for invalid thinking to be left out; ``body`` itself if it may not.

    A model that signs thinking thinks by default.
    """
    if not can_drop_thinking(body):
        return body
    thinking = body.get("thinking") or {"type": "adaptive"}
    return {**body, "thinking": {**thinking, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}


def beta_headers(body: Mapping[str, Any], headers: Mapping[str, Any]) -> dict[str, Any]:
    """``headers`` of a request with ``body``, with the name that its ``block_binding`` needs; its other names stay."""
    thinking = body.get("thinking")
    if not isinstance(thinking, Mapping) or "block_binding" not in thinking:
        return dict(headers)
    others = {name: value for name, value in headers.items() if name.lower() != _HEADER}
    names = [str(value) for name, value in headers.items() if name.lower() == _HEADER and value]
    if not any(BINDING_BETA in name for name in names):
        names.append(BINDING_BETA)
    return {**others, _HEADER: ",".join(names)}
