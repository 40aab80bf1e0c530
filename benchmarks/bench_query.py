"""What a question in SQL costs beside reading the pages of a result: 20 questions on 10 results of recorded sessions.

    CTXFS_TRACES=FOLDER python benchmarks/bench_query.py

Each result is stored whole, as an agent's session stores it. A question costs its call and its answer; reading costs
the calls and the pages of ``context_read`` until the result has been read, as lines or as a tree of JSON (which cuts
long texts), whichever is cheaper. A count, a sum or a largest value needs all of it. Whoever looks for one row may find
it on the first page, or with one search, so for these reading is an upper bound. A model that does not know the columns
asks wrongly first: the last column is what that call and its error cost, which shows them. Results are named by the
beginning of their SHA-256; what a folder lacks is skipped, and named.
"""

import hashlib
import json
import os
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ctxfs import History
from ctxfs.errors import CtxfsError
from ctxfs.lab.recordings.formats.table import load
from ctxfs.lab.recordings.recording import Kind
from ctxfs.messages.tokens import default_counter
from ctxfs.tools import Materialize

MOST_CPU_S = 1.0
MOST_ANSWER_TOKENS = 4_000
_NEXT = re.compile(r"; next: offset=(?P<offset>\d+)(?:, char_offset=(?P<char_offset>\d+))?\]$")
WRONG = "SELECT no_such_column FROM rows"

QUESTIONS: dict[str, tuple[str, str, str]] = {
    "b4beb1e55215": (
        "review comments, JSON",
        "SELECT path, start_line, body FROM rows WHERE \"user.type\" = 'Bot'",
        "SELECT path, count(*) FROM rows GROUP BY path",
    ),
    "6438c0d003ca": (
        "log of a program, JSON lines",
        "SELECT msg, count(*) AS n FROM rows GROUP BY msg ORDER BY n DESC",
        "SELECT time, msg FROM rows WHERE level <> 'INFO' ORDER BY time",
    ),
    "4a437fde05fe": (
        "passengers, CSV",
        "SELECT Pclass, Sex, round(avg(Survived), 3), count(*) FROM rows GROUP BY Pclass, Sex",
        "SELECT Name, Fare FROM rows ORDER BY Fare DESC LIMIT 5",
    ),
    "df14311da6da": (
        "results of a web search, JSON",
        "SELECT title, url FROM rows",
        "SELECT title, length(snippet) FROM rows ORDER BY 2 DESC LIMIT 1",
    ),
    "7f3b055e833e": (
        "pull requests, JSON",
        'SELECT number, title, "author.login", headRefName FROM rows',
        "SELECT number, length(body) FROM rows WHERE body LIKE '%breaking%'",
    ),
    "2df0c113f255": (
        "files of a pull request, JSON",
        "SELECT path, additions + deletions AS lines FROM files ORDER BY lines DESC LIMIT 5",
        "SELECT changeType, count(*), sum(additions) FROM files GROUP BY changeType",
    ),
    "0761c3a6c616": (
        "checks of a pull request, JSON",
        "SELECT name, conclusion FROM statusCheckRollup WHERE conclusion <> 'SUCCESS'",
        "SELECT name, unixepoch(completedAt) - unixepoch(startedAt) AS seconds FROM statusCheckRollup ORDER BY 2 DESC",
    ),
    "d0c514c27046": (
        "reviews, JSON",
        'SELECT "user.login", state, submitted_at FROM rows',
        "SELECT state, count(*) FROM rows GROUP BY state",
    ),
    "ce3e25825ad2": (
        "states of agents, JSON",
        "SELECT agent_name, agent_status IS NOT NULL AS is_running FROM agents",
        "SELECT agent_name, substr(\"agent_status.completed\", 1, 200) FROM agents WHERE agent_name LIKE '%review%'",
    ),
    "f7250ba5e9af": (
        "a checkpoint of a session, JSON",
        'SELECT branch, checkpoints_count, "token_usage.input_tokens", "token_usage.output_tokens" FROM top',
        "SELECT value FROM files_touched WHERE value LIKE '%test%'",
    ),
}
"""By the beginning of a result's SHA-256: what it is, and two questions."""


class Cost(NamedTuple):
    """What an exchange takes in the context, in tokens."""

    tokens: int
    calls: int


def results(folder: Path) -> Iterator[tuple[str, str]]:
    """Each tool result of the recordings in a folder, by the beginning of its SHA-256."""
    for file in sorted(folder.iterdir()):
        if file.suffix not in {".json", ".jsonl"} or file.name.endswith(".times.json"):
            continue
        try:
            recordings = list(load(file))
        except CtxfsError as error:
            print(f"not read: {file.name}: {error}"[:150], file=sys.stderr)
            continue
        for recording in recordings:
            for message in recording.messages:
                for block in message.blocks:
                    if block.kind is Kind.TOOL_RESULT:
                        yield hashlib.sha256(block.text.encode("utf-8", "replace")).hexdigest()[:12], block.text


def wanted(folder: Path) -> dict[str, str]:
    """The results to be asked, as many as there are in the folder and its part ``billed``."""
    found = {}
    for place in (folder, folder / "billed"):
        if place.is_dir():
            found.update({name: text for name, text in results(place) if name in QUESTIONS})
    return found


def exchanged(history: History, tool: str, arguments: dict[str, Any]) -> tuple[Cost, str]:
    """What a call and its result cost, and the result."""
    answer = history.run_tool(tool, arguments).text
    count = default_counter().count
    return Cost(count(json.dumps(arguments)) + count(tool) + count(answer), 1), answer


def read_whole(history: History, ref: str) -> Cost:
    """What it costs to read a result page by page: its lines, or those of its JSON as a tree, whichever is cheaper."""
    ways = [pages(history, {"ref": ref})]
    if not history.run_tool("context_read", {"ref": ref, "path": "$"}).is_error:
        ways.append(pages(history, {"ref": ref, "path": "$"}))
    return min(ways)


def pages(history: History, arguments: dict[str, Any]) -> Cost:
    """What all pages cost, from these arguments on."""
    tokens = 0
    calls = 0
    following: dict[str, int] = {}
    while True:
        cost, page = exchanged(history, "context_read", {**arguments, **following})
        tokens += cost.tokens
        calls += 1
        found = _NEXT.search(page)
        if found is None:
            return Cost(tokens, calls)
        following = {name: int(number) for name, number in found.groupdict().items() if number is not None}


def main() -> int:
    """Print a row for each result."""
    if (named := os.environ.get("CTXFS_TRACES")) is None:
        print("SKIPPED: set CTXFS_TRACES to a folder of recorded sessions")
        return 0
    texts = wanted(Path(named))
    for missing in QUESTIONS.keys() - texts.keys():
        print(f"SKIPPED: no recording has the result {missing} ({QUESTIONS[missing][0]})")
    print("| result | characters | reading it | first question | second | with a wrong name first |")
    print("|---|---:|---:|---:|---:|---:|")
    read, asked, slowest = [], [], 0.0
    with (
        tempfile.TemporaryDirectory() as root,
        History("bench", root_path=root, recall=True, materialize=Materialize(max_inline_chars=1_000)) as history,
    ):
        for name, (what, *questions) in QUESTIONS.items():
            if name not in texts:
                continue
            history.arrive(texts[name], tool="result", call_id=name)
            whole = read_whole(history, name)
            _, error = wrong = exchanged(history, "context_query", {"ref": name, "sql": WRONG})
            assert "has the columns" in error, error
            costs = []
            for sql in questions:
                start = time.process_time()
                cost, answer = exchanged(history, "context_query", {"ref": name, "sql": sql})
                slowest = max(slowest, time.process_time() - start)
                assert re.search(r"\n\[\d+ rows?\]$", answer), answer
                assert default_counter().count(answer) <= MOST_ANSWER_TOKENS
                costs.append(cost.tokens)
            pages = f"{whole.tokens:,} ({whole.calls} page{'s'[: whole.calls > 1]})"
            first, second = costs
            row = f"{what} | {len(texts[name]):,} | {pages} | {first:,} | {second:,} | +{wrong[0].tokens:,}"
            print(f"| {row} |")
            read.append(whole.tokens)
            asked.append((first + second, wrong[0].tokens))
    if not read:
        return 1
    questions_asked = sum(one for one, _ in asked)
    with_wrong = sum(one + 2 * wrong_one for one, wrong_one in asked)
    both = 2 * sum(read)
    print(f"\n{2 * len(read)} questions: {questions_asked:,} tokens, {with_wrong:,} with a wrong name before each.")
    print(f"Reading a result once: {sum(read):,} tokens; for each question: {both:,}.")
    print(f"The slowest question took {slowest:.2f} s of CPU.")
    assert slowest <= MOST_CPU_S
    return 0


if __name__ == "__main__":
    sys.exit(main())
