"""What a request says of thinking that no longer fits what stands before it."""

from typing import Any

import pytest

from ctxfs.agent.llm.bound_thinking import (
    BINDING_BETA,
    ThinkingDropper,
    beta_headers,
    can_drop_thinking,
    dropping_thinking,
)

DROPS = {"prefix_mismatch_behavior": "drop_block"}


def test_from_the_first_refusal_on_it_is_asked_for() -> None:
    said = (
        "messages.5.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
    )
    dropper, body = ThinkingDropper(), {"model": "m"}
    assert dropper.asking(body) is body
    assert not dropper.refused(body, "messages.5.content.0: Invalid `signature` in `thinking` block")
    assert not dropper.refused({**body, "thinking": {"type": "disabled"}}, said)
    assert not dropper.models
    assert dropper.refused(body, said.encode())
    asking = dropper.asking(body)
    assert asking == dropping_thinking(body)
    assert not dropper.refused(asking, said), "it was asked for in vain"
    assert dropper.asking(asking) is asking
    older = {"model": "older"}
    assert dropper.asking(older) is older, "it may not know what is asked"


@pytest.mark.parametrize(
    ("thinking", "asked"),
    [
        (None, {"type": "adaptive", "block_binding": DROPS}),
        (
            {"type": "adaptive", "display": "summarized"},
            {"type": "adaptive", "display": "summarized", "block_binding": DROPS},
        ),
        (
            {"type": "enabled", "budget_tokens": 2000},
            {"type": "enabled", "budget_tokens": 2000, "block_binding": DROPS},
        ),
        ({"type": "disabled"}, {"type": "disabled"}),
        ({"type": "adaptive", "block_binding": {}}, {"type": "adaptive", "block_binding": {}}),
        ("on", "on"),
    ],
)
def test_what_a_request_asks_for(thinking: Any, asked: Any) -> None:
    body = {"model": "m", **({} if thinking is None else {"thinking": thinking})}
    assert dropping_thinking(body) == {"model": "m", "thinking": asked}
    assert can_drop_thinking(body) == (asked != thinking)


def test_the_header_names_what_the_body_needs_and_keeps_its_other_names() -> None:
    body = dropping_thinking({})
    assert beta_headers({"thinking": {"type": "adaptive"}}, {"a": "b"}) == {"a": "b"}
    assert beta_headers(body, {}) == {"anthropic-beta": BINDING_BETA}
    assert beta_headers(body, {"a": "b", "Anthropic-Beta": "x,y"}) == {
        "a": "b",
        "anthropic-beta": f"x,y,{BINDING_BETA}",
    }
    assert beta_headers(body, {"anthropic-beta": BINDING_BETA}) == {"anthropic-beta": BINDING_BETA}
