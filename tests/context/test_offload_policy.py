"""The per-type table of "Context FileSystem 上下文卸载功能"."""

from dataclasses import replace

import pytest

from ctxfs.context.items import ContextItem, ItemType
from ctxfs.context.offload import OffloadPolicy
from ctxfs.errors import ConfigError
from ctxfs.llm.messages import UserMessage


def item(kind: ItemType, tokens: int) -> ContextItem:
    return ContextItem(
        id="x", item_type=kind, message=UserMessage("x"), name="x", token_count=tokens, content_tokens=tokens
    )


@pytest.mark.parametrize(
    ("kind", "enabled"),
    [
        (ItemType.TOOL_RESULT, True),
        (ItemType.USER_MESSAGE, True),
        (ItemType.SKILL_PROMPT, True),
        (ItemType.ASSISTANT_MESSAGE, False),
        (ItemType.COMPACTION_SUMMARY, False),
        (ItemType.SYSTEM_PROMPT, False),
    ],
)
def test_the_default_table(kind: ItemType, enabled: bool) -> None:
    policy = OffloadPolicy()
    assert policy.should_offload(item(kind, 2001)) is enabled
    assert policy.should_offload(item(kind, 2000)) is False


def test_a_type_can_be_switched_and_have_its_own_threshold() -> None:
    policy = OffloadPolicy(type_enabled={"assistant_message": True}, type_thresholds={"assistant_message": 10})
    assert policy.should_offload(item(ItemType.ASSISTANT_MESSAGE, 11))
    assert not policy.should_offload(item(ItemType.ASSISTANT_MESSAGE, 10))
    assert policy.should_offload(item(ItemType.TOOL_RESULT, 2001))


def test_what_has_left_is_not_offloaded_again() -> None:
    assert not OffloadPolicy().should_offload(replace(item(ItemType.TOOL_RESULT, 9999), destroyed=True))


@pytest.mark.parametrize(
    "wrong", [{"token_threshold": -1}, {"type_enabled": {"image": True}}, {"type_thresholds": {"tool_result": -5}}]
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        OffloadPolicy(**wrong)  # type: ignore[arg-type]
