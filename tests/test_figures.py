"""The figures of README and docs are the same wherever they stand, and so are those that a command prints beside them.
Those that count what is in the code are compared with it.

``COMPARED`` says where what a command prints is compared with the pages, ``NOT_COMPARED`` which commands are not run
for that, and why. The programs of a page are compared in tests/test_docs.py, the README's in tests/cli/test_pages.py,
and the size of the wheel in tests/test_packaging.py.
"""

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ctxfs import History
from ctxfs.cli.commands import COMMANDS, GROUPS
from ctxfs.messages.tokens import tiktoken_counter
from ctxfs.storage import Store
from patience import HANGS_S
from prove.crash_controls import CONTROLS as CRASH_CONTROLS
from prove.endings import WAYS as ENDINGS
from prove.fuzz_targets import TARGETS
from prove.mutant_removals import CHECKSUMS, CLEANUP, CONTAINMENT, REMOVALS, SYNCS
from prove.part_swaps import KINDS as SWAPS
from prove.part_transcripts import POLICIES

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text()
ECONOMICS = (ROOT / "docs" / "economics.md").read_text()
EVIDENCE = (ROOT / "docs" / "evidence.md").read_text()
NOISE_POINTS = 0.56
"""A figure of a summary may differ by this from the table: it is rounded to a point, and the table to a tenth."""


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


RESULT = re.compile(r"\$\d|\d ?[%×]|\d ms\b|\bmilliseconds\b|\d times (?:as|its)\b|\btook [\d,]+ tokens")
"""What was measured, or comes of a replay. Other sizes and counts of tokens are mostly settings and limits."""

SETTINGS = re.compile(r"\$5 unless given")
"""Figures that look like results, and are given by who uses ctxfs."""

COMMAND = re.compile(
    r"(?m)(?:^|`|\$ )(?:make (?P<target>[\w-]+)|ctxfs (?P<command>demo|replay|proxy|explain|ab)\b)"
    r"|python\s+(?P<script>(?:benchmarks|scripts)/\w+\.py)"
)


COMPARED = {
    "ctxfs demo": "tests/cli/test_process.py",
    "make demo": "tests/cli/test_process.py",
    "ctxfs replay": "tests/cli/test_pages.py",
    "ctxfs explain": "tests/test_docs.py",
    "ctxfs proxy": "tests/test_examples.py",
    "benchmarks/bench_repeats.py": "tests/test_figures.py",
    "make evidence": "scripts/evidence.py",
    "benchmarks/bench_recall.py": "tests/test_figures.py",
    "benchmarks/bench_compression.py": "tests/test_figures.py",
    "benchmarks/bench_query.py": "tests/test_figures.py",
    "benchmarks/bench_ways.py": "tests/test_figures.py",
    "benchmarks/bench_requests.py": "tests/test_figures.py",
}
"""By the command: the test that compares what it prints with what stands beside it, or the program of `make check`."""

_TIMES = "prints times, which another machine does not have; `make bench` runs it, with limits of its own"
NOT_COMPARED = {
    "benchmarks/bench_agents.py": _TIMES,
    "benchmarks/bench_bookkeeping.py": _TIMES,
    "benchmarks/bench_bounded.py": _TIMES,
    "benchmarks/bench_durability.py": _TIMES,
    "benchmarks/bench_fleet.py": _TIMES,
    "benchmarks/bench_history.py": _TIMES,
    "benchmarks/bench_import.py": _TIMES,
    "benchmarks/bench_journal.py": _TIMES,
    "benchmarks/bench_loop.py": _TIMES,
    "benchmarks/bench_materialize.py": _TIMES,
    "benchmarks/bench_offload.py": _TIMES,
    "benchmarks/bench_peers.py": _TIMES,
    "benchmarks/bench_replay.py": _TIMES,
    "benchmarks/bench_retrieval.py": _TIMES,
    "benchmarks/bench_view.py": _TIMES,
    "benchmarks/bench_workspace.py": _TIMES,
    "benchmarks/bench_economics.py": "takes minutes of processor time",
    "scripts/fit_planner.py": "takes minutes of processor time; what README says of its table is compared",
    "make live": "needs a real model and its server",
    "make prove": "takes hours",
    "make test": "is what runs this test",
    "make check": "is what runs this test",
    "make frameworks": "installs each framework; its figures are what they keep, read from their sources",
    "ctxfs ab": "needs a model; its pages show what it prints for made-up tasks",
}
"""Why no test compares what these print."""


def commands_in(text: str) -> set[str]:
    """The commands that stand in a section and its page's introduction, as ``COMPARED`` names them."""
    found = set()
    for command in COMMAND.finditer(text):
        if command["target"]:
            found.add(f"make {command['target']}")
        elif command["command"]:
            found.add(f"ctxfs {command['command']}")
        else:
            found.add(command["script"])
    return found


def test_each_command_beside_a_result_is_compared_or_says_why_not() -> None:
    beside: set[str] = set()
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        introduction, *sections = re.split(r"(?m)^(?=## )", page.read_text())
        for section in (introduction, *sections):
            if RESULT.search(SETTINGS.sub("", re.sub(r"(?s)```.*?```", "", section))):
                beside |= commands_in(introduction + section)
    assert beside == COMPARED.keys() | NOT_COMPARED.keys()
    assert not COMPARED.keys() & NOT_COMPARED.keys()
    assert all((ROOT / test).is_file() for test in COMPARED.values())


def printed_by(script: str, *arguments: str, fails: bool = False, **environment: str) -> str:
    """What a program in ``benchmarks`` prints; ``fails``: one of its limits is known not to be reached."""
    command = [sys.executable, str(ROOT / "benchmarks" / script), *arguments]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, **environment}, timeout=HANGS_S
    )
    assert done.returncode in ({0, 1} if fails else {0}), done.stderr
    return done.stdout


def _differences(table: str) -> Iterator[list[int]]:
    """For each column of a table that has "before → after": the differences, by row."""
    pairs = re.findall(r"([\d,]+) → ([\d,]+) \| ([\d,]+) → ([\d,]+) \|", table)
    numbers = [[int(number.replace(",", "")) for number in pair] for pair in pairs]
    yield [after - before for before, after, _, _ in numbers]
    yield [after - before for _, _, before, after in numbers]


@pytest.mark.service
def test_the_repeats_in_recorded_sessions_are_those_of_the_page(traces: list[Path]) -> None:
    if not {"long", "billed"} <= {folder.name for folder in traces[0].parent.iterdir()}:
        pytest.skip("NOT TESTED: no folders long and billed beside the recordings")
    printed = printed_by("bench_repeats.py", CTXFS_TRACES=str(traces[0].parent))
    rows = re.findall(r"(?m)^\| \w+, (\d+) \| ([\d,]+) \| (\d+) \(.*?\) \| ([\d.]+)% \|$", printed)
    page = (ROOT / "docs" / "questions.md").read_text()
    _, replayed = printed.split("\n\n")
    assert replayed in page
    more = [sum(one) for one in _differences(replayed)]
    assert f"in all, {more[1]} read-backs more, and {more[0]} uses more" in " ".join(page.split())
    said = re.search(
        r"Of ([\d,]+) results in (\d+) recorded sessions, (\d+)\s+were equal .*?, and their tokens were "
        r"([\d.]+) %, ([\d.]+) % and ([\d.]+) % of all",
        " ".join(page.split()),
    )
    assert said is not None
    sessions, results, equal = (sum(int(row[k].replace(",", "")) for row in rows) for k in range(3))
    assert said.groups() == (f"{results:,}", str(sessions), str(equal), *(row[3] for row in rows))


@pytest.mark.service
def test_what_questions_in_sql_cost_is_what_their_page_says(traces: list[Path]) -> None:
    printed = printed_by("bench_query.py", CTXFS_TRACES=str(traces[0].parent))
    if "SKIPPED" in printed:
        pytest.skip("NOT TESTED: the results of bench_query.py are not in the recordings")
    found = re.search(
        r"(\d+) questions: ([\d,]+) tokens, ([\d,]+) with a wrong .*\nReading a result once: ([\d,]+)", printed
    )
    said = re.search(
        r"(\d+) questions to ten results .*? took ([\d,]+) tokens with their calls, or ([\d,]+) where .*?; reading "
        r"each result once takes ([\d,]+), of which the CSV takes ([\d,]+)\.",
        " ".join((ROOT / "docs" / "tools.md").read_text().split()),
    )
    assert found is not None
    assert said is not None
    assert said.groups() == (*found.groups(), *re.findall(r"passengers, CSV \| [\d,]+ \| ([\d,]+)", printed))


@pytest.mark.service
def test_what_compression_saves_is_what_its_page_says(traces: list[Path]) -> None:
    """The sizes; what it costs is a time."""
    if len(traces) != 33:
        pytest.skip("NOT TESTED: the recordings are not the 33 of the page")
    printed = printed_by("bench_compression.py", "--recordings", CTXFS_TRACES=str(traces[0].parent))
    rows = re.findall(r"(?m)^\| ([\d,]+)-.*? characters \| (\d+) \| ([\d,]+) \| ([\d,]+) \| (\d+)% \|", printed)
    assert len(rows) == 3
    page = (ROOT / "docs" / "files.md").read_text()
    for first, number, plain, compressed, blocks in rows:
        assert re.search(
            rf"(?m)^\| (?:from )?{first} .*?\| {number} \| {plain} \| {compressed} \| {blocks} % \|", page
        ), first


FIRST_CELLS = {
    "add": "a result of 16 KB is added",
    "evict": "the next request evicts one",
    "rewrite": "a framework's history of 7 parts is rewritten, and one is evicted",
    "open": "a session of 8 items is opened",
    "read": "50 lines of an evicted result are read",
}


@pytest.mark.service
def test_the_ways_through_the_code_are_those_of_the_page() -> None:
    """Within a tenth, or two functions, by how a thread ends. Calls differ by more, by what is cached."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("NOT TESTED: the figures are those of Python 3.11, and this is another one")
    found = re.findall(
        r"(?m)^(\w+) +(\d+) \(\d+\) +(\d+) \(\d+\) +(\d+) \(\d+\)", printed_by("bench_ways.py", fails=True)
    )
    assert {row[0] for row in found} == FIRST_CELLS.keys()
    page = (ROOT / "docs" / "performance.md").read_text()
    for name, *figures in found:
        (said,) = re.findall(rf"(?m)^\| {FIRST_CELLS[name]} \|.*?, (\d+) \|.*?, (\d+) \|.*?, (\d+) \|", page)
        assert [int(one) for one in figures] == pytest.approx([int(one) for one in said], rel=0.1, abs=2), name


@pytest.mark.service
def test_what_recall_finds_is_what_its_page_says() -> None:
    shown = (ROOT / "docs" / "recall.md").read_text()
    rows = re.findall(
        r"(?m)^\| (search and read|all summaries) \| ([\d.]+)% \| ([\d.]+) \| (\d+)", printed_by("bench_recall.py")
    )
    assert len(rows) == 2
    for way, found, calls, tokens in rows:
        named = way.replace("all summaries", "the summaries alone")
        assert f"\n| {named} | {float(found):.0f} % | {calls} | {tokens}" in shown


@pytest.mark.service
def test_what_a_query_asks_of_a_bucket_is_what_its_page_says() -> None:
    """Within a tenth of a request, and a dollar: what a segment holds depends on how long ids and paths are."""
    page = (ROOT / "docs" / "fleet-promises.md").read_text()
    rows = re.findall(
        r"(?m)^\| (\D+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", printed_by("bench_requests.py")
    )
    assert len(rows) == 6
    for way, *figures, dollars in rows:
        (said,) = re.findall(rf"(?m)^\| {re.escape(way)} \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \| (\d+) \|$", page)
        assert [float(one) for one in said[:3]] == pytest.approx([float(one) for one in figures], abs=0.11), way
        assert int(said[3]) == pytest.approx(int(dollars), abs=1), way


def test_a_result_stands_beside_the_command_that_prints_it() -> None:
    """In its section or in the introduction of its page; or it says on which page it does."""
    alone = []
    targets = set(re.findall(r"(?m)^([\w-]+):", (ROOT / "Makefile").read_text()))
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))):
        introduction, *sections = re.split(r"(?m)^(?=## )", page.read_text())
        for section in (introduction, *sections):
            prose = SETTINGS.sub("", re.sub(r"(?s)```.*?```", "", section))
            commands = list(COMMAND.finditer(introduction + section))
            elsewhere = re.search(r"\((?:\.\./)*(?:docs/)?(?:economics|evidence|performance)\.md[#)]", section)
            if RESULT.search(prose) and not commands and elsewhere is None:
                alone.append(f"{page.name}: {section.splitlines()[0]}")
            for command in commands:
                assert command["target"] is None or command["target"] in targets, page
                assert command["script"] is None or (ROOT / command["script"]).is_file(), page
    assert alone == []


def test_the_summary_of_the_evidence_is_that_of_its_tables() -> None:
    summary, _, tables = EVIDENCE.partition("## A mechanical reader")
    rows = {
        row.partition("|")[0].strip(): [cell.strip() for cell in row.split("|")[1:-1]]
        for row in re.findall(r"(?m)^\| (.*\|)$", tables.partition("## Billed sessions, replayed")[2])
    }
    hidden = re.search(r"\*\*([\d.]+) % of later uses were", summary)
    others = re.search(
        r"hides fewer \(([\d.]+) to ([\d.]+) %\), and saves less \(([\d.]+) to ([\d.]+) against ([\d.]+)\)", summary
    )
    unseen = re.search(r"costs ([\d.]+),\s+not far from ctxfs's ([\d.]+)\.", summary)
    assert hidden
    assert others
    assert unseen
    ours, clearing, most = rows["economic"], rows["clear-100k-keep-3"], rows["clear-100k-keep-3-clear-at-least-20k"]
    assert hidden[1] == ours[-1].rstrip("%")
    assert (others[1], others[2]) == (most[-1].rstrip("%"), clearing[-1].rstrip("%"))
    costs = [float(row[0]) for row in (most, clearing, ours)]
    assert [float(others[n]) for n in (3, 4, 5)] == pytest.approx(costs, abs=0.0051)
    assert (unseen[1], unseen[2]) == (rows["eager-2k"][0], ours[0])


def test_what_is_not_in_our_favour_is_in_the_tables() -> None:
    """The sentences before them say the same, rounded."""
    bad = " ".join(EVIDENCE.partition("## Not in our favour")[2].partition("\n## ")[0].split())
    tables = EVIDENCE.partition("## A mechanical reader")[2].partition("## Billed sessions, replayed")[0]
    rows = {cells[0].strip(): cells[1:] for row in re.findall(r"(?m)^\| (.*) \|$", tables) if (cells := row.split("|"))}
    calls, cost = (float(cell) for cell in rows["ctxfs"][-2:])
    said = re.search(r"cost ([\d.]+) of sending everything, for ([\d.]+) more calls", bad)
    assert said
    assert [float(one) for one in said.groups()] == pytest.approx([cost, calls], abs=0.051)
    assert float(said[1]) == cost
    said = re.search(r"Keep-recent of 1 costs ([\d.]+) times .*? 24,000 tokens costs ([\d.]+)\.", bad)
    assert said
    small = rows["ctxfs, a window of 24k tokens"]
    costs = [float(row[-1]) for row in (rows["ctxfs, keep-recent of 1"], small)]
    assert [float(one) for one in said.groups()] == pytest.approx(costs, abs=0.0051)
    said = re.search(r"(\d+) of 100 look-ups are lost .*? (\d+) of 100 joins", bad)
    assert said
    assert [100 - int(one) for one in said.groups()] == [int(small[1]), int(small[3])]
    kept = re.findall(r"(?m)^\| a summary that keeps nothing \| (\d+ of \d+) \|", tables)
    said = re.search(r"(\d+ of \d+) canaries of the kit are in the request, and (\d+ of \d+) things", bad)
    assert said
    assert list(said.groups()) == kept


def test_why_replay_and_economics_differ_says_the_figures_of_both() -> None:
    page = (ROOT / "docs" / "replay.md").read_text()
    said = re.search(
        r"same 50 sessions save (\d+) % there, and those of Claude Code (\d+) %, where the dollars say (\d+) % and "
        r"(\d+) %",
        " ".join(page.split()),
    )
    assert said is not None
    inputs = [100 * (1 - cost_of(row)) for row in ("50 billed sessions", "… Claude Code")]
    bills = re.findall(r"(?m)^Claude Code,.*? \$([\d.]+) +\$([\d.]+) ", page)
    paid, less = (sum(float(row[n]) for row in bills) for n in (0, 1))
    (whole,) = re.findall(r"would have been \$[\d.]+ \((\d+)%\nless\)", page)
    assert [int(one) for one in said.groups()[:2]] == pytest.approx(inputs, abs=NOISE_POINTS)
    assert said[3] == whole
    assert int(said[4]) == pytest.approx(100 * (1 - less / paid), abs=NOISE_POINTS)


def test_the_counts_of_what_is_in_the_code_are_those_of_the_code() -> None:
    def page(*parts: str) -> str:
        return " ".join(ROOT.joinpath(*parts).read_text().split())

    proof = page("docs", "proof.md")
    groups = (SYNCS, CHECKSUMS, CONTAINMENT, CLEANUP)
    guards = re.search(
        r"names (\d+) guards: (\d+) syncs, (\d+) checks of checksums and order, (\d+) checks of names, owners, links, "
        r"locks and bounds, (\d+) of what a clean-up may remove",
        proof,
    )
    assert guards is not None
    assert [int(one) for one in guards.groups()] == [len(REMOVALS), *map(len, groups)]
    words = {6: "six", 7: "seven", 8: "eight", 9: "nine", 10: "ten", 13: "thirteen"}
    assert f"programs in each of {words[len(ENDINGS)]} ways" in proof
    assert f"{words[len(CRASH_CONTROLS)].capitalize()} ways to break the code are detected" in proof
    assert f"inputs to each of {len(TARGETS)} readers" in proof
    assert f"| {len(SWAPS)} kinds, " in proof
    assert f"sessions under {len(POLICIES)} policies" in proof
    written = {
        function.name
        for part in ast.walk(ast.parse((ROOT / "examples" / "own_store.py").read_text()))
        if isinstance(part, ast.ClassDef)
        for function in part.body
        if isinstance(function, ast.FunctionDef)
    }
    methods = [name for name in written & vars(Store).keys() if not name.startswith("_")]
    assert f"write its {words[len(methods)]} methods" in page("docs", "own-store.md")
    changelog = page("CHANGELOG.md")
    assert f"{words[len(methods)]} methods over names and bytes" in changelog
    assert f"{len(COMMANDS)} commands in {words[len(GROUPS)]} groups" in changelog


def test_what_the_recall_tools_cost_each_request_is_what_their_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "recall.md").read_text()
    named = re.findall(r"(?m)^\| `(\w+)` \|", page)
    with History("session", root_path=tmp_path, recall=True) as history:
        shown = {tool.schema.name: json.dumps(tool.schema.for_messages()) for tool in history.tools}
    (tokens,) = re.findall(r"about ([\d,]+) for all six", page)
    assert len(named) == 6
    assert int(tokens.replace(",", "")) == round(sum(tiktoken_counter().count(shown[name]) for name in named), -2)


def test_the_packages_that_an_install_needs_are_those_of_the_project() -> None:
    page = " ".join((ROOT / "docs" / "platforms.md").read_text().split())
    said = re.search(r"alone needs seven packages: (.*?), and before Python 3\.14 (.*?)\. It talks", page)
    assert said is not None
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [re.split(r"[>;]", one)[0] for one in needed]
    assert len(names) == 7 + 1
    assert sorted([*re.split(r", | and ", said[1]), said[2]]) == sorted(names)


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
