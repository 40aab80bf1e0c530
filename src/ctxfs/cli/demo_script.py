"""The replies of the demo's model: in a hundred calls an agent finds a bug in a small project, and mends it.

The project is ``ctxfs/data/demo``. The replies are written down; the one that reads a result back takes its file from
the request, as a model would.
"""

import re
from collections.abc import Iterator
from typing import Any

from ctxfs.eviction.placeholder.text import HEADER, SHORT_HEADER
from ctxfs.messages.messages import ToolCall
from ctxfs.testing.scripted import Turn

TASK = (
    "The network operator bills customer 1042 with 206.96 EUR for March 2024, and we with 205.50 EUR. Find out why, "
    "and mend it. Which other bills are wrong?"
)
SYSTEM_PROMPT = (
    "You mend bugs in the project in the current directory. Look before you change anything, run the tests before and "
    "after, and check the result against what was reported."
)
ANSWER = (
    "In March 2024 our clocks went to summer time a week early: last_sunday took the first Sunday from the 24th on, "
    "and that year the 24th was a Sunday itself. So for a week the evening peak was billed at the wrong hours. It "
    "counts from the 25th on now, with a test. The bill of 1042 is 206.96 EUR. From 2022 to 2027, the bills of "
    "March 2024 and October 2027 were wrong, for all contracts but flat."
)

_REPORT = "python -m tariff invoice 1042 2024-03"
_WRONG_WEEK = "python -m tariff week 1042 2024-03-25"
_MONDAY = 3
"""The line of a week's report at which its Monday begins."""

_MODULES = ("bill", "rates", "clock", "holidays", "readings", "money", "invoice", "customers")
_TESTS = ("test_bill", "test_rates", "test_clock")
_MONTHS = ("2023-12", "2024-01", "2024-02", "2024-04", "2024-05", "2024-06")
_OTHERS = ("1007", "1019", "1023", "1058", "1066")
_DAYS = ("2024-03-22", "2024-03-23", "2024-03-24", "2024-03-25", "2024-03-26", "2024-03-30")
_YEARS = (2022, 2023, 2024, 2025, 2026, 2027)
_WRONG = "it is the one from the 24th on."
_RIGHT = "it is the one from the 25th on."
_TEST_BEFORE = "        self.assertEqual(last_sunday(2025, 3), date(2025, 3, 30))\n"
_TEST_AFTER = "        self.assertEqual(last_sunday(2024, 3), date(2024, 3, 31))\n" + _TEST_BEFORE


def turns() -> list[Turn]:
    """All replies, in order."""
    return [*_look_around(), *_narrow_down(), *_find_the_cause(), *_mend(), *_check(), ANSWER]


def _look_around() -> Iterator[Turn]:
    yield ["I begin with what is here.", *(ToolCall("list_dir", {"path": path}) for path in (".", "tariff", "tests"))]
    yield _read("README.md", "The README first.")
    yield _run(_REPORT, "How does our bill come to 205.50?")
    yield _run("python -m unittest -v", "Do the tests pass as it is?")
    for module in _MODULES:
        yield _read(f"tariff/{module}.py", f"Now {module}.py.")
    for test in _TESTS:
        yield _read(f"tests/{test}.py", f"What does {test}.py cover?")


def _narrow_down() -> Iterator[Turn]:
    yield _run(f"{_REPORT} --hours", "The whole month by the hour, to look for a pattern.")
    for month in _MONTHS:
        yield _run(f"python -m tariff invoice 1042 {month}", f"To compare: {month}.")
    for number in _OTHERS:
        yield _run(f"python -m tariff invoice {number} 2024-03", f"Is it only 1042? The same month of {number}.")
    yield _search("zone\\(|price\\(", "Where is the zone of an hour decided?")
    yield _search("local\\(|offset\\(", "And where does local time come in?")
    for week in ("2024-03-04", "2024-03-11", "2024-03-18", "2024-03-25"):
        yield _run(f"python -m tariff week 1042 {week}", f"Week by week: from {week} on.")
    for day in _DAYS:
        yield _run(f"python -m tariff day 1042 {day}", f"By the quarter of an hour: {day}.")


def _find_the_cause() -> Iterator[Turn]:
    yield _search("summer", "On 25 March local time is UTC+2 already. Who says that it is summer?")
    yield _read("tariff/clock.py", "The clock once more, now line by line.")
    for year in _YEARS:
        if year != 2024:
            yield _run(f"python -m tariff week 1042 {_last_week(year)}", f"The end of March {year}, for comparison.")
    for year in _YEARS:
        yield _run(f"python -m tariff check {year}-03", f"All customers in March {year}, before I change anything.")
        yield _run(f"python -m tariff check {year}-10", f"And in October {year}.")
    yield _search("24|25", "Does the 24th stand anywhere else?")


def _mend() -> Iterator[Turn]:
    change = {"path": "tests/test_clock.py", "old": _TEST_BEFORE, "new": _TEST_AFTER}
    yield ["First a test that fails: in 2024 the last Sunday of March is the 31st.", ToolCall("edit", change)]
    yield _run("python -m unittest -v", "It must fail now.")
    change = {"path": "tariff/clock.py", "old": "date(year, month, 24)", "new": "date(year, month, 25)"}
    yield ["A month of 31 days has its last Sunday from the 25th on.", ToolCall("edit", change)]
    yield ["Its docstring says the same.", ToolCall("edit", {"path": "tariff/clock.py", "old": _WRONG, "new": _RIGHT})]
    yield _run("python -m unittest -v", "All tests again.")


def _check() -> Iterator[Turn]:
    yield _run(_REPORT, "And the bill that was reported?")
    yield _run(_WRONG_WEEK, "206.96, as the operator has it. The week that was wrong:")
    yield _read_back
    for day in _DAYS[2:]:
        yield _run(f"python -m tariff day 1042 {day}", f"{day} as it is now.")
    for number in _OTHERS:
        yield _run(f"python -m tariff invoice {number} 2024-03", f"The same month of {number}, mended.")
    for month in _MONTHS:
        yield _run(f"python -m tariff invoice 1042 {month}", f"{month} must not have changed.")
    for year in _YEARS:
        yield _run(f"python -m tariff check {year}-03", f"All customers in March {year}, after it.")
        yield _run(f"python -m tariff check {year}-10", f"And in October {year}.")


def _last_week(year: int) -> str:
    return f"{year}-03-25"


def _read(path: str, why: str) -> Turn:
    return [why, ToolCall("read_file", {"path": path})]


def _run(command: str, why: str) -> Turn:
    return [why, ToolCall("run", {"command": command})]


def _search(pattern: str, why: str) -> Turn:
    return [why, ToolCall("search", {"pattern": pattern})]


def _read_back(body: dict[str, Any]) -> Turn:
    """Read the Monday of the first report of that week again, by the name in its placeholder."""
    first = next(block for block in _results(body) if block["tool_use_id"] == _id_of(body, _WRONG_WEEK))
    placeholder = _text(first)
    name = re.match(rf"{re.escape(SHORT_HEADER)}Read (\S+?)\]|{re.escape(HEADER)}\nPath: (.+)\n", placeholder)
    assert name is not None, f"the first report is still in the request: {placeholder[:80]!r}"
    where = {"file_path": name[1] or name[2], "offset": _MONDAY, "limit": 24}
    return ["And its Monday before the change, to see that only the zones moved.", ToolCall("Read", where)]


def _id_of(body: dict[str, Any], command: str) -> str:
    """The id of the first call of ``command``."""
    calls = (block for block in _blocks(body) if block["type"] == "tool_use")
    return next(str(block["id"]) for block in calls if block["input"].get("command") == command)


def _results(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (block for block in _blocks(body) if block["type"] == "tool_result")


def _blocks(body: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for message in body["messages"]:
        if not isinstance(message["content"], str):
            yield from message["content"]


def _text(result: dict[str, Any]) -> str:
    content = result["content"]
    return content if isinstance(content, str) else "\n".join(block["text"] for block in content)
