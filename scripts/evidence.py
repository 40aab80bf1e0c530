"""Measure what docs/evidence.md and docs/replay.md say again, without a model, and fail where it is not so any more.

    python scripts/evidence.py [--short] [--write]

Each row of a table on the page must be printed by the command of its section: "N of M" and words exactly, a number
within one part in a hundred, since costs move in the third digit when a token count does. ``--write`` puts the printed
rows on the page instead. ``--short`` compares what takes seconds and plays 50 generated tasks, of which only the limits
are checked, as CI does. Recorded sessions are replayed from the folder that CTXFS_TRACES names (default:
../shared/traces, as in the tests). What cannot run here is skipped, and the last lines name it.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))

from terminal import on_a_terminal

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "evidence.md"
ENVIRONMENT = ROOT / ".venv-frameworks" / "evidence"
ANSWER_PAGE = ROOT / "docs" / "replay.md"
"""Its block after ``<!-- replay: billed -->`` is what a terminal of 80 columns shows, without the projects."""
KIT = "compaction-conformance-kit==0.8.0"
CASES = "compactbench==0.1.0"
TOLERANCE = 0.01
"""By what part of it a number may differ."""

HIDDEN_ROW = re.compile(r"(?m)^\| `([\w-]+)`.*? \| ([\d.]+) \| ([\d.]+) % \|$")
"""Policy, cost and share, in that page's table of what is hidden later."""
_ROW = re.compile(r"(?m)^\|.*\|$")
_NUMBER = re.compile(r"[+-]?[\d,]*\.?\d+")


def cells_of(row: str) -> list[str]:
    """The cells of a row of a table in Markdown."""
    return [cell.strip() for cell in row.strip().strip("|").split("|")]


def rows_in(text: str) -> dict[str, str]:
    """The rows of the tables in a text by their first cell, without heads and rules."""
    rows = _ROW.findall(text)
    ruled = {number for number, row in enumerate(rows) if set(row) <= set("|-: ")}
    heads = {number - 1 for number in ruled}
    return {cells_of(row)[0]: row for number, row in enumerate(rows) if number not in ruled | heads}


def heads_in(text: str) -> list[str]:
    """The heads of the tables in a text."""
    rows = _ROW.findall(text)
    return [rows[number - 1] for number, row in enumerate(rows) if set(row) <= set("|-: ")]


def is_same(said: str, measured: str) -> bool:
    """Whether a cell of the page says what was measured."""
    if said == measured:
        return True
    if " of " in said or _NUMBER.sub("", said) != _NUMBER.sub("", measured):
        return False
    pairs = zip(_NUMBER.findall(said), _NUMBER.findall(measured), strict=True)
    numbers = [(float(one.replace(",", "")), float(other.replace(",", ""))) for one, other in pairs]
    return all(abs(one - other) <= TOLERANCE * max(abs(one), abs(other)) for one, other in numbers)


def section_of(page: str, title: str) -> str:
    """The part of the page under a heading."""
    found = re.search(rf"(?ms)^## {re.escape(title)}\n.*?(?=^## |\Z)", page)
    if found is None:
        raise SystemExit(f"{PAGE.name} has no section {title!r}")
    return found[0]


def differences(title: str, page: str, printed: str) -> list[str]:
    """Where the tables of a section do not say what its command printed."""
    measured = rows_in(printed)
    wrong = []
    missing = set(heads_in(section_of(page, title))) - set(heads_in(printed))
    wrong += [f"{title}: the command prints no table {head!r} any more" for head in missing]
    for name, row in rows_in(section_of(page, title)).items():
        now = measured.get(name)
        if now is None:
            wrong.append(f"{title}: the command prints no row {name!r} any more")
            continue
        said, found = cells_of(row), cells_of(now)
        if len(said) != len(found) or not all(map(is_same, said, found)):
            wrong.append(f"{title}: the page says {row}\n{' ' * len(title)}  measured:     {now}")
    return wrong


def written(title: str, page: str, printed: str) -> str:
    """The page with the printed rows in a section."""
    section = section_of(page, title)
    new = section
    measured = rows_in(printed)
    for name, row in rows_in(section).items():
        new = new.replace(row, measured.get(name, row))
    return page.replace(section, new)


def hidden_differences(page: str, printed: str) -> list[str]:
    """Where the table of what policies hide later does not say what the replay printed."""
    measured = rows_in(printed)
    wrong = []
    for name, *said in re.findall(HIDDEN_ROW, page):
        row = measured.get(name)
        if row is None:
            wrong.append(f"{ANSWER_PAGE.name}: the command prints no row {name!r} any more")
            continue
        cells = cells_of(row)
        found = [cells[1], cells[-1].rstrip("%")]
        if not all(map(is_same, said, found)):
            wrong.append(f"{ANSWER_PAGE.name}: {name} costs and hides {said}; measured: {found}")
    return wrong


class Measuring:
    """Runs the commands of sections, and gathers what is wrong."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        self.wrong: list[str] = []

    def section(self, title: str, command: Sequence[str | Path], *, compares: bool = True) -> None:
        """Run the command of a section; its tables must say what it prints if ``compares``."""
        print(f"\n== {title} ==\n", flush=True)
        start = time.monotonic()
        done = subprocess.run(command, cwd=ROOT, check=False, stdout=subprocess.PIPE, text=True)
        print(f"{done.stdout}\n({time.monotonic() - start:.0f} s)", flush=True)
        if done.returncode:
            self.wrong.append(f"{title}: exit code {done.returncode}")
        elif compares:
            if self._writes:
                PAGE.write_text(written(title, PAGE.read_text(), done.stdout))
            self.wrong += differences(title, PAGE.read_text(), done.stdout)  # a row that is printed no more stays wrong

    def answer(self, recordings: Path) -> None:
        """Replay the recordings; the page of `ctxfs replay` must show what that prints."""
        unsized = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}}
        shown = on_a_terminal([sys.executable, "-m", "ctxfs", "replay", str(recordings)], unsized)
        printed = re.sub(r"(?ms)^project\n.*?(?=^How well a replay counts)", "", shown).rstrip()
        print(f"\n== {ANSWER_PAGE.name} ==\n\n{printed}\n", flush=True)
        page = ANSWER_PAGE.read_text()
        (block,) = re.findall(r"(?s)<!-- replay: billed -->\n```text\n(.*?)\n```", page)
        if self._writes:
            ANSWER_PAGE.write_text(page.replace(block, printed))
        elif not is_same(" ".join(block.split()), " ".join(printed.split())):
            self.wrong.append(f"{ANSWER_PAGE.name} does not show what `ctxfs replay` prints")

    def hidden(self, recordings: Sequence[Path]) -> None:
        """Replay the transcripts; the page's table of what is hidden later must say what that prints."""
        page = ANSWER_PAGE.read_text()
        policies = [option for name, *_ in re.findall(HIDDEN_ROW, page) for option in ("--policy", name)]
        options = ["--tokens", "chars4", "--rates", "0.1,1.25,5", "--markdown", *policies]
        command: list[str | Path] = [sys.executable, "-m", "ctxfs", "replay", *recordings, *options]
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        print(f"\n== {ANSWER_PAGE.name}, what is hidden later ==\n\n{done.stdout}", flush=True)
        self.wrong += hidden_differences(page, done.stdout)


def uv_program() -> str | None:
    """Where uv is: beside this interpreter, or on the path."""
    return shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")


def kit_python() -> Path | None:
    """The interpreter of an environment with the kit, which the tests do without; None: it cannot be made."""
    python = ENVIRONMENT / "bin" / "python"
    uv = uv_program()
    if uv is None:
        return None
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, ENVIRONMENT], check=False)
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python, "--editable", ROOT, KIT]
    done = subprocess.run(install, check=False, capture_output=True)
    return python if done.returncode == 0 else None


def public_cases(python: Path) -> Path | None:
    """The folder of compactbench's cases, which only its source distribution has; None: it cannot be had."""
    folder = ENVIRONMENT / CASES.replace("==", "-")
    if not folder.exists():
        pip: list[str | Path] = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        command = [*pip, "--no-deps", "--no-binary", "compactbench", "--dest", ENVIRONMENT, CASES]
        if subprocess.run(command, check=False, capture_output=True).returncode:
            return None
        with tarfile.open(f"{folder}.tar.gz") as archive:
            archive.extractall(ENVIRONMENT, filter="data")
    uv = uv_program()
    assert uv is not None, "it made the environment"
    done = subprocess.run([uv, "pip", "install", "--quiet", "--python", python, CASES], check=False)
    return folder if done.returncode == 0 else None


def main() -> int:
    """Measure all sections; return 1 if the page is wrong somewhere."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="what takes seconds")
    parser.add_argument("--write", action="store_true", help="put what was measured on the page")
    given = parser.parse_args()
    measuring = Measuring(writes=given.write)
    skipped = []
    measuring.section("First sight", [sys.executable, "benchmarks/first_sight.py"])
    tasks = ["--tasks", "50"] if given.short else []
    reader: list[str | Path] = [sys.executable, "benchmarks/mechanical_reader.py", *tasks]
    measuring.section("A mechanical reader", reader, compares=not given.short)
    billed = Path(os.environ.get("CTXFS_TRACES", ROOT.parent / "shared" / "traces")) / "billed"
    if billed.is_dir():
        replay: list[str | Path] = [sys.executable, "-m", "ctxfs", "replay", billed]
        measuring.section("Billed sessions, replayed", [*replay, "--policies", "--markdown"])
        measuring.answer(billed)
        if not given.short:
            measuring.hidden(sorted(billed.parent.glob("*.json")))
    else:
        # As pytest prints it, so that CI lists it: whether there are recordings depends on the machine.
        print(f"SKIPPED [1] scripts/evidence.py: NOT TESTED: no {billed}; set CTXFS_TRACES to a folder of recordings")
    python = None if given.short else kit_python()
    if python is not None:
        measuring.section("A public kit for compaction", [python, "benchmarks/canaries.py"])
    else:
        skipped.append(f"{KIT}: it cannot be installed, or --short was given")
    cases = None if python is None else public_cases(python)
    if python is not None and cases is not None:
        measuring.section("Public cases of constraints", [python, "benchmarks/constraints.py", cases])
    else:
        skipped.append(f"{CASES}: it cannot be had, or --short was given")
    for what in skipped:
        print(f"SKIPPED: {what}", flush=True)
    for what in measuring.wrong:
        print(f"WRONG: {what}", flush=True)
    return min(len(measuring.wrong), 1)


if __name__ == "__main__":
    sys.exit(main())
