"""The per-type table of "Context FileSystem 上下文卸载功能"."""

from dataclasses import replace

import pytest

from ctxfs.errors import ConfigError
from ctxfs.eviction.policy import OffloadPolicy
from ctxfs.messages.items import ContextItem, ItemType
from ctxfs.messages.messages import UserMessage
from session_items import make_item


def item(kind: ItemType, tokens: int) -> ContextItem:
    return make_item("x", UserMessage("x"), tokens, kind=kind)


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
    policy = OffloadPolicy(type_enabled={"user_message": False}, type_thresholds={"skill_prompt": 10})
    assert policy.should_offload(item(ItemType.SKILL_PROMPT, 11))
    assert not policy.should_offload(item(ItemType.SKILL_PROMPT, 10))
    assert not policy.should_offload(item(ItemType.USER_MESSAGE, 9999))
    assert policy.should_offload(item(ItemType.TOOL_RESULT, 2001))


def test_a_threshold_that_is_set_counts_for_every_rule_and_one_that_is_not_for_compaction_only() -> None:
    for policy, tokens, allowed in (
        (OffloadPolicy(), 1, True),
        (OffloadPolicy(token_threshold=500), 500, False),
        (OffloadPolicy(token_threshold=500), 501, True),
        (OffloadPolicy(type_thresholds={"tool_result": 9}), 9, False),
        (OffloadPolicy(type_enabled={"tool_result": False}), 9999, False),
    ):
        assert policy.allows(ItemType.TOOL_RESULT, tokens) is allowed
    repeats = OffloadPolicy(repeats=True, type_enabled={"tool_result": True})
    for one in (policy, repeats):
        assert OffloadPolicy.from_mapping(one.to_mapping(), digest_tokens=1_000) == one
    with pytest.raises(ConfigError, match="cannot be read"):
        OffloadPolicy.from_mapping({"a_setting_of_tomorrow": 1}, digest_tokens=0)


def test_what_has_left_is_not_offloaded_again() -> None:
    assert not OffloadPolicy().should_offload(replace(item(ItemType.TOOL_RESULT, 9999), destroyed=True))


@pytest.mark.parametrize(
    "wrong",
    [
        {"token_threshold": -1},
        {"token_threshold": "2000"},
        {"token_threshold": True},
        {"type_enabled": {"image": True}},
        {"type_enabled": ["tool_result"]},
        {"type_enabled": {"tool_result": "no"}},
        {"type_enabled": {"assistant_message": True}},
        {"type_enabled": {"system_prompt": True}},
        {"type_enabled": {"compaction_summary": True}},
        {"type_thresholds": {"assistant_message": 10}},
        {"type_thresholds": {"tool_result": -5}},
        {"repeats": 1},
        {"repeats": True, "type_enabled": {"tool_result": False}},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ConfigError):
        OffloadPolicy(**wrong)  # type: ignore[arg-type]
