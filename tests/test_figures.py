"""The figures of README and docs are the same wherever they stand, and so are those that a command prints beside them.

What a command prints is compared where it runs: the demo's picture in tests/cli/test_process.py, the programs of a page
in tests/test_docs.py, the README's in tests/cli/test_pages.py, the size of the wheel in tests/test_packaging.py.
"""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
ECONOMICS = (ROOT / "docs" / "economics.md").read_text()
EVIDENCE = (ROOT / "docs" / "evidence.md").read_text()
NOISE_POINTS = 1
"""A figure of a summary may differ by this from the table that it sums up: both are rounded."""


def cost_of(row: str) -> float:
    """The cost relative to never evicting, in the row of economics' first table that begins so."""
    (cells,) = re.findall(rf"(?m)^\| {re.escape(row)} \|(.*)\|$", ECONOMICS.partition("### How often")[0])
    return float(cells.split("|")[1].strip().strip("*"))


@pytest.mark.parametrize(
    ("said", "row"),
    [
        (r"50 billed sessions, the input cost \[(\d+) % less\]", "50 billed sessions"),
        (r"(\d+) % with Codex", "… Codex"),
        (r"(\d+) % with\s+opencode", "… opencode"),
        (r"(\d+) % with Claude Code", "… Claude Code"),
        (r"over 150 calls (\d+) % less", "both, over 150 calls"),
        (r"under 50 calls (\d+) % less", "both, under 50 calls"),
        (r"109 short runs (\d+) % less", "109 short runs (not counted on)"),
    ],
)
def test_the_readmes_savings_are_those_of_the_table(said: str, row: str) -> None:
    (percent,) = re.findall(said, README)
    assert int(percent) == pytest.approx(100 * (1 - cost_of(row)), abs=NOISE_POINTS)


def test_the_worst_session_is_named() -> None:
    (percent,) = re.findall(r"worst of the 50 cost (\d+) % more", README)
    (cells,) = re.findall(r"(?m)^\| 50 billed sessions \|(.*)\|$", ECONOMICS.partition("### How often")[0])
    assert float(cells.split("|")[3]) == pytest.approx(1 + int(percent) / 100)


def test_other_pages_say_the_same_saving() -> None:
    for page in (ROOT / "docs").rglob("*.md"):
        for percent in re.findall(r"50 billed sessions the input cost \[(\d+) %\s+less\]", page.read_text()):
            assert int(percent) == pytest.approx(100 * (1 - cost_of("50 billed sessions")), abs=NOISE_POINTS), page


def test_the_readmes_evidence_is_that_of_the_page() -> None:
    solved = dict(re.findall(r"(?m)^\| ([^|]+?) \| (\d+) of 500 \|", EVIDENCE))
    said = re.search(
        r"solves (\d+) of 500 tasks, as\s+with everything in the request; (\d+) where old messages are truncated, "
        r"(\d+) where results are cut",
        README,
    )
    assert said is not None
    rows = ("ctxfs", "truncated to the newest 24k tokens", "results cut to 1,000 tokens")
    assert said.groups() == tuple(solved[row] for row in rows)
    assert solved["ctxfs"] == solved["everything is sent"]


def test_what_replay_is_shown_to_print_fits_a_terminal() -> None:
    (block,) = re.findall(
        r"(?s)<!-- replay: billed -->\n```text\n(.*?)\n```", (ROOT / "docs" / "replay.md").read_text()
    )
    assert max(map(len, block.splitlines())) <= 80


def test_the_pictures_figures_stand_in_the_readme() -> None:
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text()
    (shown,) = re.findall(r"(\$[\d.]+ instead of \$[\d.]+)", picture)
    assert f"{shown}, and what left its context](docs/images/demo.svg)" in README


REFERENCES = frozenset({"frameworks.md", "public-names.md"})
"""What is looked up, a section at a time; and the pages of the commands, and of the API."""

MOST_WORDS = 2_500


def test_no_page_is_longer_than_a_reader_reads() -> None:
    pages = [page for page in (ROOT / "docs").glob("*.md") if page.name not in REFERENCES]
    words = {page.name: len(page.read_text().split()) for page in pages if not page.name.startswith("cli")}
    assert {name: count for name, count in words.items() if count > MOST_WORDS} == {}
    assert len(README.split()) <= 800


def test_every_size_of_an_install_is_of_an_extra_that_exists() -> None:
    page = (ROOT / "docs" / "platforms.md").read_text().partition("## What an install brings")[2]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = re.findall(r"`ctxfs\[(\w+)\]`", page)
    assert named
    assert set(named) <= extras.keys()
