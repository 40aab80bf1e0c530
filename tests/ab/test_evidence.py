"""What compares the page of evidence with what is measured: it must notice a figure that is not so any more."""

import evidence

PAGE = """# Page

## One

| policy | solved | cost |
| --- | ---: | ---: |
| none | 500 of 500 | 1.000 |
| ctxfs | 465 of 500 | 0.687 |

## Two

| what | |
|---|---:|
| other | 1,721 |
"""
PRINTED = """
| policy | solved | cost |
|---|---:|---:|
| none | 500 of 500 | 1.000 |
| more | 1 of 500 | 1.5 |
| ctxfs | 465 of 500 | 0.692 |
"""


def test_a_page_that_says_what_is_measured_is_right() -> None:
    assert evidence.differences("One", PAGE, PRINTED) == []
    assert evidence.differences("Two", PAGE, "| what | |\n|---|---:|\n| other | 1,730 |\n") == []


def test_a_figure_that_is_not_so_any_more_is_named() -> None:
    for now in ("| ctxfs | 464 of 500 | 0.687 |", "| ctxfs | 465 of 500 | 0.705 |", "| ctxfs | 465 of 500 | = |"):
        (wrong,) = evidence.differences("One", PAGE, PRINTED.replace("| ctxfs | 465 of 500 | 0.692 |", now))
        assert now in wrong
        assert "| ctxfs | 465 of 500 | 0.687 |" in wrong
    head, row = evidence.differences("Two", PAGE, PRINTED)
    assert head == "Two: the command prints no table '| what | |' any more"
    assert row == "Two: the command prints no row 'other' any more"


def test_the_rows_of_the_page_are_made_from_the_commands() -> None:
    new = evidence.written("One", PAGE, PRINTED)
    assert "| ctxfs | 465 of 500 | 0.692 |" in new
    assert "more" not in new
    assert new.replace("0.692", "0.687") == PAGE


def test_every_section_that_is_measured_is_on_the_page() -> None:
    page = evidence.PAGE.read_text()
    for title in ("First sight", "A mechanical reader", "Billed sessions, replayed", "A public kit for compaction"):
        assert len(evidence.rows_in(evidence.section_of(page, title))) > 1


def test_what_is_hidden_later_is_compared_by_cost_and_share() -> None:
    page = "| `eager-1k` | 0.822 | 6.5 % |\n| `none` (never) | 1.000 | 0.0 % |\n"
    printed = (
        "| policy | cost | mean | hidden |\n| --- | ---: | ---: | ---: |\n"
        "| eager-1k | 0.822 | 0.845 | 6.5% |\n| none | 1.000 | 1.000 | 0.0% |\n"
    )
    assert evidence.hidden_differences(page, printed) == []
    for now in (
        "| eager-1k | 0.822 | 0.845 | 7.5% |",
        "| eager-1k | 0.722 | 0.845 | 6.5% |",
        "| eager-2k | 1 | 1 | 1% |",
    ):
        (wrong,) = evidence.hidden_differences(page, printed.replace("| eager-1k | 0.822 | 0.845 | 6.5% |", now))
        assert "eager-1k" in wrong
