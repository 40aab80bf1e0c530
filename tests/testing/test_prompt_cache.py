"""The simulated prompt cache: what is read, written and billed."""

from typing import Any

from ctxfs.messages.base import Usage
from ctxfs.testing.prompt_cache import PromptCache


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def text(name: str, *, mark: bool | str = False) -> dict[str, Any]:
    """A block of 10 tokens."""
    block: dict[str, Any] = {"type": "text", "text": name.ljust(40)}
    if mark:
        block["cache_control"] = {"type": "ephemeral"} | ({"ttl": mark} if isinstance(mark, str) else {})
    return block


def body(*blocks: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"model": "m", "messages": [{"role": "user", "content": list(blocks)}], **fields}


def counts(usage: Usage) -> tuple[int, int, int]:
    return usage.cache_read_input_tokens, usage.cache_creation_input_tokens, usage.input_tokens


def test_what_stands_before_a_breakpoint_is_written_then_read() -> None:
    cache = PromptCache()
    assert counts(cache.account(body(text("a"), text("b", mark=True), text("c")))) == (0, 20, 10)
    assert counts(cache.account(body(text("a"), text("b", mark=True), text("d")))) == (20, 0, 10)


def test_a_changed_block_is_read_up_to_the_last_breakpoint_before_it() -> None:
    cache = PromptCache()
    cache.account(body(text("a", mark=True), text("b"), text("c", mark=True)))
    assert counts(cache.account(body(text("a", mark=True), text("X"), text("c", mark=True)))) == (10, 20, 0)


def test_without_breakpoints_nothing_is_cached() -> None:
    cache = PromptCache()
    for _ in range(2):
        assert counts(cache.account(body(text("a"), text("b")))) == (0, 0, 20)


def test_a_provider_that_caches_by_itself_reads_every_common_beginning() -> None:
    cache = PromptCache(explicit=False)
    cache.account(body(text("a"), text("b"), text("c")))
    assert counts(cache.account(body(text("a"), text("b"), text("X")))) == (20, 10, 0)


def test_a_breakpoint_looks_back_twenty_blocks() -> None:
    def grown(size: int) -> tuple[int, int, int]:
        cache = PromptCache()
        cache.account(body(text("a", mark=True)))
        return counts(cache.account(body(text("a"), *(text(str(i)) for i in range(size)), text("z", mark=True))))

    assert grown(18) == (10, 190, 0)
    assert grown(19) == (0, 210, 0)


def test_an_entry_lives_five_minutes_after_it_was_last_read() -> None:
    clock = Clock()
    cache = PromptCache(clock=clock)
    request = body(text("a", mark=True))
    cache.account(request)
    for now, read in [(299, 10), (598, 10), (898, 0)]:
        clock.now = now
        assert cache.account(request).cache_read_input_tokens == read


def test_an_entry_may_live_an_hour() -> None:
    clock = Clock()
    cache = PromptCache(clock=clock)
    cache.account(body(text("a", mark="1h")))
    clock.now = 3599
    assert cache.account(body(text("a", mark="1h"))).cache_read_input_tokens == 10


def test_short_prefixes_are_not_cached() -> None:
    cache = PromptCache(min_tokens=20)
    for _ in range(2):
        assert counts(cache.account(body(text("a", mark=True)))) == (0, 0, 10)
    cache.account(body(text("a"), text("b", mark=True)))
    assert counts(cache.account(body(text("a"), text("b", mark=True)))) == (20, 0, 0)


def test_tools_stand_before_system_and_messages() -> None:
    tool = {"name": "n", "description": "", "input_schema": {"type": "object"}}
    cache = PromptCache()
    cache.account(body(text("a"), tools=[tool], system=[text("s", mark=True)]))
    other = {**tool, "description": "changed"}
    assert cache.account(body(text("a"), tools=[other], system=[text("s", mark=True)])).cache_read_input_tokens == 0


def test_another_model_has_another_cache() -> None:
    cache = PromptCache()
    cache.account(body(text("a", mark=True)))
    assert cache.account(body(text("a", mark=True), model="other")).cache_read_input_tokens == 0


def test_where_messages_of_one_role_are_cut_does_not_matter() -> None:
    cache = PromptCache()
    cache.account(body(text("a"), text("b", mark=True)))
    split = [{"role": "user", "content": [text("a")]}, {"role": "user", "content": [text("b", mark=True)]}]
    assert cache.account({"model": "m", "messages": split}).cache_read_input_tokens == 20
