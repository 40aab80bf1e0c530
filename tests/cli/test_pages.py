"""The pages docs/cli*.md are what the commands say: their help, and the keys of their JSON.

``PYTHONPATH=tests python tests/cli/test_pages.py`` updates the help.
"""

import contextlib
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from ctxfs.cli.app import run
from ctxfs.cli.commands import COMMANDS, GROUPS, SUBCOMMANDS
from patience import HANGS_S
from written_session import write_session

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parent.parent.parent
FIRST_PAGE = ROOT / "docs" / "cli.md"
PAGES = {group: ROOT / "docs" / f"cli-{group.replace(' ', '-')}.md" for group in GROUPS}
"""The page of each group of commands."""
HELP = re.compile(r"(?P<head><!-- help: (?P<arguments>[^\n]*?) ?-->\n```text\n)(?P<text>.*?)(?P<tail>```\n)", re.DOTALL)


def ctxfs(*arguments: str, columns: int = 100) -> str:
    """What the command prints; in this process, for a process of its own takes a second."""
    data = io.BytesIO()
    out = io.TextIOWrapper(data, encoding="utf-8", write_through=True)
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("COLUMNS", str(columns))
        assert run(arguments) == 0
    return data.getvalue().decode()


def with_help(page: str) -> str:
    """``page`` with every help text as it is now."""
    return HELP.sub(lambda m: m["head"] + ctxfs(*m["arguments"].split(), "--help") + m["tail"], page)


def test_the_help_is_current() -> None:
    assert [m["arguments"] for m in HELP.finditer(FIRST_PAGE.read_text())] == [""]
    for group, path in PAGES.items():
        of_two_words = [name for name in SUBCOMMANDS if name.split()[0] in GROUPS[group]]
        shown = [m["arguments"] for m in HELP.finditer(path.read_text())]
        assert shown == [*GROUPS[group], *of_two_words]
    for path in (FIRST_PAGE, *PAGES.values()):
        page = path.read_text()
        assert with_help(page) == page, f"PYTHONPATH=tests python {Path(__file__).relative_to(ROOT)} updates it"


def test_the_help_of_all_fits_one_screen() -> None:
    assert len(COMMANDS) <= 28
    shown = ctxfs("--help", columns=80).splitlines()
    assert len(shown) < 40
    assert [name for name in COMMANDS if not any(f" {name} " in line for line in shown)] == []


@pytest.mark.parametrize("command", ["", *COMMANDS, *SUBCOMMANDS])
def test_the_help_fits_80_columns(command: str) -> None:
    shown = ctxfs(*command.split(), "--help", columns=80)
    assert [line for line in shown.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_the_help_has_no_types_of_python(command: str) -> None:
    assert re.findall(r"<[^|>]*>", ctxfs(*command.split(), "--help")) == []


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("root")
    write_session(root, *("".join(f"{start} line {n}\n" for n in range(1, 300)) for start in "abcd"))
    return root


def recording(root: Path) -> str:
    """A session of two messages, recorded."""
    path = root.parent / "recording.json"
    path.write_text(json.dumps([{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi"}]))
    return str(path)


@pytest.mark.service
@pytest.mark.parametrize(
    "command",
    [
        ("sessions", lambda root: ("sessions", "--root", str(root))),
        ("ls", lambda root: ("ls", "last", "--root", str(root))),
        ("show", lambda root: ("show", "last", "--root", str(root))),
        ("diff", lambda root: ("diff", "last", "1", "--root", str(root))),
        ("cat", lambda root: ("cat", "last", "msg_001", "--root", str(root))),
        ("grep", lambda root: ("grep", "last", ".", "--root", str(root))),
        ("explain", lambda root: ("explain", "last", "--root", str(root))),
        ("replay", lambda root: ("replay", recording(root), "--policy", "none")),
        ("doctor", lambda root: ("doctor", "--root", str(root))),
        ("check", lambda root: ("check", "--root", str(root))),
        ("du", lambda root: ("du", "--root", str(root))),
        ("tag", lambda root: ("tag", "last", "--root", str(root))),
        ("forget", lambda root: ("forget", "--keep-last", "1", "--dry-run", "--root", str(root))),
        ("prune", lambda root: ("prune", "--dry-run", "--root", str(root))),
        ("erase", lambda root: ("erase", "last", "msg_001", "--dry-run", "--root", str(root))),
    ],
    ids=lambda command: command[0],
)
def test_the_keys_are_those_that_the_page_names(
    command: tuple[str, Callable[[Path], tuple[str, ...]]], root: Path
) -> None:
    name, arguments = command
    told = json.loads(ctxfs(*arguments(root), "--json"))
    assert set(told[0] if isinstance(told, list) else told) == keys_named(name)


def keys_named(name: str) -> set[str]:
    """The keys of a command's JSON, as its page names them."""
    (page,) = (PAGES[group] for group, commands in GROUPS.items() if name in commands)
    section = page.read_text().partition(f"## ctxfs {name}\n")[2].partition("\n## ")[0]
    keys = re.search(r"^Keys: (.*?)\.$", section, re.MULTILINE | re.DOTALL)
    assert keys is not None
    return set(re.findall(r"`(\w+)`", keys[1]))


@pytest.mark.service
def test_the_readmes_program_evicts_and_previews_as_it_says(tmp_path: Path) -> None:
    program, without_a_key = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[:2]
    imports, line = without_a_key.split("\n\n")
    scripted = re.sub(r"(?m)^    llm = .*\n", f"    {line}", program)
    done = subprocess.run(
        [sys.executable, "-c", f"{imports}\n{scripted}"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "HOME": str(tmp_path)},
        timeout=HANGS_S,
    )
    assert (done.stdout, done.stderr) == ("None has.\n", "")
    explained = json.loads(ctxfs("explain", "last", "--json", "--root", str(tmp_path / ".agent" / "context")))
    why = [item["why"].partition(":")[0] for item in explained["items"] if item["item_type"] == "tool_result"]
    assert why == ["evicted", "evicted", "previewed"]


@pytest.mark.service
def test_the_page_shows_what_a_replay_of_recordings_prints_first(traces: list[Path]) -> None:
    recordings = traces[0].parent / "raw"
    if not recordings.is_dir():
        pytest.skip(f"NOT TESTED on real sessions: there is no {recordings}")
    first = ctxfs("replay", str(recordings)).splitlines()[0]
    assert f"\n{first}\n" in PAGES["lab"].read_text()


if __name__ == "__main__":
    for file in (FIRST_PAGE, *PAGES.values()):
        file.write_text(with_help(file.read_text()))
