"""How many tokens a provider bills for one that ctxfs counts."""

from collections.abc import Sequence
from random import Random

import pytest

from ctxfs.messages.base import Usage
from ctxfs.messages.items import ContentRange
from ctxfs.messages.rates import Rates
from ctxfs.session.records import CallMade
from ctxfs.session.timeline.cached import billed_per_counted, units_by_model
from ctxfs.session.timeline.changes import Call
from ctxfs.session.timeline.costs import Account, ReadBack

RATES = Rates(read=0.1, write=1.25, output=5.0)
GROWING = (1_000, 3_000, 4_000, 9_000, 9_200, 15_000)


def billed(counted: Sequence[int], factor: float, *, besides: int = 0, each_call: int = 0) -> list[tuple[int, int]]:
    """Prompts with ``besides`` tokens that are not counted, and more of them with each call."""
    return [(size, round(besides + factor * size + n * each_call)) for n, size in enumerate(counted)]


@pytest.mark.parametrize("factor", [0.58, 1.0, 1.7, 2.6])
@pytest.mark.parametrize(("besides", "each_call"), [(0, 0), (20_000, 30)])
def test_it_is_what_prompts_differ_by_and_not_what_all_have(factor: float, besides: int, each_call: int) -> None:
    found = billed_per_counted(billed(GROWING, factor, besides=besides, each_call=each_call))
    assert found == pytest.approx(factor, rel=0.001)


def test_prompts_of_which_as_much_is_evicted_as_is_added_show_it_too() -> None:
    sizes = [200, *(4_000 + 60 * n for n in range(25))]
    assert billed_per_counted(billed(sizes, 0.58, besides=500, each_call=80)) == pytest.approx(0.58, rel=0.01)


@pytest.mark.parametrize(
    "prompts",
    [
        pytest.param([], id="no bill"),
        pytest.param(billed(GROWING[:4], 1.7), id="three changes"),
        pytest.param(billed([1_000 + 100 * n for n in range(30)], 1.7), id="no clear growth"),
        pytest.param([(0, 10_000 * n) for n in range(1, 9)], id="prompts that were not counted"),
        pytest.param([(900, 900)] * 9, id="all the same"),
        pytest.param([(size, 400) for size in GROWING], id="bills that lack what was cached"),
        pytest.param(billed(GROWING, 3.5, besides=9_000), id="more than any tokenizer"),
        pytest.param(billed(GROWING, 0.3, besides=20_000), id="less than any tokenizer"),
    ],
)
def test_a_counted_token_is_one_where_the_bills_do_not_show_it(prompts: list[tuple[int, int]]) -> None:
    assert billed_per_counted(prompts) == 1.0


def test_a_line_that_misses_its_points_is_not_believed() -> None:
    random = Random(1)
    counted = [2_000 * n for n in range(1, 30)]
    noisy = [(size, size + random.randrange(60_000)) for size in counted]
    assert billed_per_counted(noisy) == 1.0


def test_where_the_changes_do_not_show_it_no_more_than_half_of_the_prompts_were_billed_counts() -> None:
    assert billed_per_counted([(1_000, 600), (1_050, 640)]) == pytest.approx(0.6)
    assert billed_per_counted([(1_000, 600), (5_000, 9_000), (5_050, 9_050)]) == 1.0


@pytest.mark.parametrize("first", [(1_000, 800), (200, 110)])
def test_prose_first_does_not_set_what_the_logs_after_it_are_billed(first: tuple[int, int]) -> None:
    prompts = [first]
    for grown in (3_000, 4_500, 2_000, 6_000, 1_500, 2_500):
        counted, billed_tokens = prompts[-1]
        prompts.append((counted + grown, billed_tokens + round(1.7 * grown)))
    assert billed_per_counted(prompts) == pytest.approx(1.7)


@pytest.mark.parametrize("at", [0, 20, 39])
def test_one_short_bill_among_forty_does_not_set_it(at: int) -> None:
    random = Random(1)
    sizes = [1_000]
    for _ in range(39):
        sizes.append(sizes[-1] + random.choice((300, 800, 2_000, 5_000)))
    prompts = billed(sizes, 1.7)
    assert billed_per_counted(prompts) == pytest.approx(1.7, rel=0.001)
    prompts[at] = (sizes[at], round(0.55 * sizes[at]))
    assert billed_per_counted(prompts) >= 1.0


def cached(prompt: int) -> Usage:
    """The bill of a prompt of which the cache held nine tenths."""
    return Usage(cache_read_input_tokens=prompt - prompt // 10, cache_creation_input_tokens=prompt // 10)


def calls(model: str, factor: float) -> list[CallMade]:
    return [
        CallMade(number=1, usage=cached(real), model=model, counted_tokens=counted)
        for counted, real in billed(GROWING, factor)
    ]


def test_each_model_has_its_own() -> None:
    found = units_by_model([*calls("a", 1.7), *calls("b", 0.6)])
    assert found == {"a": pytest.approx(1.7, rel=0.001), "b": pytest.approx(0.6, rel=0.001)}


def account(factor: float) -> Account:
    """The last two of six calls did without 2,000 tokens, one of them after 300 were written again."""
    bills = calls("m", factor)
    requests = [Call(number=n, end=0, tokens=bill.counted_tokens, bill=bill) for n, bill in enumerate(bills[:4], 1)]
    requests.append(Call(number=5, end=0, tokens=GROWING[4], evicted=2_000, unsent=500, rewritten=300, bill=bills[4]))
    requests.append(Call(number=6, end=0, tokens=GROWING[5], evicted=2_000))
    source = ContentRange(item_id="i", path="i.txt", first_line=1, last_line=2)
    back = (ReadBack(source, 100, 5), ReadBack(source, 100, 6))
    return Account(requests=tuple(requests), calls=tuple(bills), read_backs=back)


@pytest.mark.parametrize("factor", [0.6, 1.7])
def test_all_that_was_saved_and_spent_is_in_billed_tokens(factor: float) -> None:
    found, plain = account(factor), account(1.0)
    assert found.units == pytest.approx([factor] * 6, rel=0.001), "a call without a bill has the last model's"
    assert (plain.saved(RATES), plain.rewriting(RATES)) == pytest.approx((0.1 * 4_000 + 1.15 * 500, 1.15 * 300))
    assert found.saved(RATES) == pytest.approx(factor * plain.saved(RATES), rel=0.001)
    assert found.rewriting(RATES) == pytest.approx(factor * plain.rewriting(RATES), rel=0.001)
    assert found.reading_back(RATES) == pytest.approx(factor * 1.25 * 200, rel=0.001)
    fits = round(17_000 * factor) + 5
    assert found.too_long_from(fits) is None
    assert found.reading_back(RATES, window_tokens=fits) == found.reading_back(RATES)
    assert found.too_long_from(fits - 10) == 6
    assert found.reading_back(RATES, window_tokens=fits - 10) == 0.0, "both came after the fifth call"
    assert found.rewritten() == plain.rewritten() == [0, 0, 0, 0, 300, 0], "in counted tokens"


def test_a_bill_says_how_large_a_prompt_was_with_all_that_is_not_counted() -> None:
    """As a proxy's last lines have it: of 30,000 tokens, 9,000 are counted, and 2,000 were evicted."""

    def too_long_from(usage: Usage | None, window_tokens: int) -> int | None:
        bill = None if usage is None else CallMade(number=1, usage=usage, model="m", counted_tokens=9_000)
        requests = (Call(number=1, end=0, tokens=9_000, evicted=2_000, bill=bill),)
        return Account(requests=requests, calls=() if bill is None else (bill,)).too_long_from(window_tokens)

    assert (too_long_from(cached(30_000), 32_000), too_long_from(cached(30_000), 31_999)) == (None, 1)
    for says_nothing in (None, Usage(output_tokens=9), Usage(input_tokens=900)):
        assert (too_long_from(says_nothing, 11_000), too_long_from(says_nothing, 10_999)) == (None, 1)


def test_without_requests_lines_that_were_read_back_are_counted_tokens() -> None:
    source = ContentRange(item_id="i", path="i.txt", first_line=1, last_line=2)
    assert Account(read_backs=(ReadBack(source, 100, 0),)).reading_back(RATES) == pytest.approx(125)
