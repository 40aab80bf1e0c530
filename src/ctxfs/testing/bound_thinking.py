"""Thinking that is signed together with what stood before it, as the Messages API checks it."""

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ctxfs.agent.llm.bound_thinking import BINDING_BETA
from ctxfs.errors import InvalidRequest
from ctxfs.messages.messages import THINKING, Block
from ctxfs.text.jsontext import codec as json_codec

__all__ = ["BoundThinking"]


class BoundThinking:
    """What stood before each thinking block that a server made; other thinking is not known by it, and let pass.

    Thinking before a block does not count, though the provider counts that too: of a run only the first may be gone.
    """

    def __init__(self) -> None:
        self._before: dict[str, str] = {}

    def made(self, request: Mapping[str, Any], content: Sequence[Block]) -> None:
        """A reply to ``request`` has ``content``."""
        whole = [*request["messages"], {"role": "assistant", "content": content}]
        for _, signature, before in _found({**request, "messages": whole}):
            self._before.setdefault(signature, before)

    def checked(self, request: Mapping[str, Any], headers: Mapping[str, str]) -> list[str]:
        """The places of invalid thinking, which is left out.

        Raises:
            InvalidRequest: the request does not ask for that, or asks for it without the name in its header.

        """
        binding = (request.get("thinking") or {}).get("block_binding")
        if binding is not None and BINDING_BETA not in headers.get("anthropic-beta", ""):
            raise InvalidRequest("thinking.block_binding: Extra inputs are not permitted")
        found = ((place, self._before.get(signature, before) == before) for place, signature, before in _found(request))
        invalid = [place for place, is_valid in found if not is_valid]
        if invalid and (binding or {}).get("prefix_mismatch_behavior") != "drop_block":
            raise InvalidRequest(
                f"{invalid[0]}: Invalid `signature` in `thinking` block. "
                "The block is bound to a different conversation."
            )
        return invalid


def _found(request: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Each thinking block: its place, its signature, and what stands before it."""
    before = hashlib.sha256(json_codec.dumps([_unmarked(request.get(head)) for head in ("system", "tools")]))
    for i, message in enumerate(request["messages"]):
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for j, block in enumerate(blocks):
            if block["type"] in THINKING:
                yield f"messages.{i}.content.{j}", block.get("signature") or block["data"], before.hexdigest()
            else:
                before.update(json_codec.dumps([message["role"], _unmarked(block)]))


def _unmarked(value: Any) -> Any:
    """``value`` without cache breakpoints."""
    if isinstance(value, Mapping):
        return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list | tuple) else value
