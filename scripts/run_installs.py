"""Install the wheel and the sdist in fresh environments of each Python that ctxfs supports, and use what they bring.

    python scripts/run_installs.py [--python X.Y …] [--jobs N]

For each Python that is on this machine: the wheel alone, and with all extras of its own (those of frameworks are tested
by ``run_frameworks.py``); of the first one the sdist too. Of a Python with several patch releases here, the others get
the wheel alone. A Python that is not here is skipped, in a line that says so. What an environment takes on the disk
must be what docs/platforms.md says.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import textwrap
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
EXTRAS = ("cli", "anthropic", "openai", "proxy", "view", "prices", "atif", "objects", "postgres", "otel", "mcp", "fast")
PAGE = ROOT / "docs" / "platforms.md"
ROWS = {"the wheel alone": "`ctxfs`", "with all its own extras": "all extras but those of frameworks"}
"""By what is installed: the row of the page with its size."""
MOST_OFF = 0.1
"""By what part of it a size may differ: the packages that ctxfs needs have releases of their own."""
BUILD = "import sys; from hatchling import build; print(getattr(build, sys.argv[1])(sys.argv[2]))"

ALONE = textwrap.dedent(
    """
    import asyncio, re, subprocess, sys, tempfile

    from ctxfs import Agent, AgentConfig, History, Part, tool
    from ctxfs.errors import MissingExtra
    from ctxfs.agent import ChatAnthropic, ChatOpenAI
    from ctxfs.text.patterns import possessive
    from ctxfs.testing import MessagesServer, ScriptedModel
    from ctxfs.messages import ToolCall


    @tool("Read a chapter", ephemeral=1)
    async def chapter(n: int) -> str:
        return f"Chapter {n}\\n" + "It was a dark and stormy night.\\n" * 400


    async def main(root):
        model = ScriptedModel([[ToolCall("chapter", {"n": n})] for n in (1, 2)] + ["Stormy."])
        async with Agent(model, AgentConfig(tools=[chapter], offload_root_path=root)) as agent:
            assert await agent.query("How is the weather?") == "Stormy."
            assert [item.id for item in agent.context.items if item.offloaded] == ["call_001"]
        async with MessagesServer(["Hello."]) as server:
            assert server.url


    assert re.match(possessive("ab?c", "*"), "aca").end() == 2, "as in Python 3.11.4 and before"
    with tempfile.TemporaryDirectory() as root:
        asyncio.run(main(root))
        parts = [Part("call", {}, 0, "c1", "t"), Part("result", "a line\\n" * 4000, 1, "c1", "t")]
        parts += [Part("reply", "ok", 2)]
        parts += [Part("call", {}, 3, "c2", "t"), Part("result", "short", 4, "c2", "t"), Part("reply", "ok", 5)]
        with History(root_path=root, keep_recent={"t": 1}) as history:
            assert list(history.rewrite(parts)) == [1]
    for model in (ChatAnthropic(api_key="k"), ChatOpenAI("m", api_key="k")):
        try:
            model.check()
        except MissingExtra as error:
            assert "pip install 'ctxfs[" in str(error)
        else:
            raise AssertionError(f"{type(model).__name__} needs no SDK")
    done = subprocess.run([sys.executable, "-m", "ctxfs", "ls"], capture_output=True, text=True)
    assert (done.returncode, "pip install 'ctxfs[cli]'" in done.stderr) == (2, True), done
    """
)
"""What works with nothing but ``pip install ctxfs``, and what says which extra it needs."""

WHOLE = textwrap.dedent(
    """
    import importlib, json, pathlib, subprocess, sys, tempfile

    for name in ("agent", "adapters.serve.mcp", "adapters.serve.proxy", "adapters.anthropic", "view", "lab", "testing"):
        importlib.import_module(f"ctxfs.{name}")
    with tempfile.TemporaryDirectory() as root:

        def ctxfs(*arguments):
            command = [sys.executable, "-m", "ctxfs", *map(str, arguments)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, done
            return done.stdout

        sessions = pathlib.Path(root, "sessions")
        assert json.loads(ctxfs("demo", "--root", sessions, "--json"))["ok"]
        assert json.loads(ctxfs("sessions", "--root", sessions, "--json"))
        assert json.loads(ctxfs("explain", "last", "--root", sessions, "--json"))["items"]
        asks = "import httpx2, os; assert httpx2.get(os.environ['OPENAI_BASE_URL'] + '/models').status_code == 502"
        nowhere = "http://127.0.0.1:9"  # a port where nothing listens
        ctxfs("proxy", "--root", sessions, "--upstream-openai", nowhere, "--", sys.executable, "-c", asks)
        doctor = json.loads(ctxfs("doctor", "--root", sessions, "--json"))
        wanted = set(sys.argv[1:])
        assert not [one for one in doctor["packages"] if one["extra"] in wanted and not one["installed"]], doctor
    """
)
"""What works with all extras of its own."""


@dataclass(frozen=True)
class Install:
    """An environment to make: which Python, what is installed in it, and the program that must run there."""

    python: str
    interpreter: Path
    what: str
    package: str
    program: str


class BrokenError(Exception):
    """Something could not be installed, or does not work; the text is what the program printed."""


def interpreters(release: str) -> dict[str, Path]:
    """By version: the interpreters of that release on this machine. The first one is tried with everything."""
    named = [shutil.which(f"python{release}"), *_pyenv(release), shutil.which(f"python{release}", path="/usr/bin")]
    if sys.version_info[:2] == tuple(map(int, release.split("."))):
        named.insert(0, sys.executable)
    found: dict[str, Path] = {}
    for path in filter(None, named):
        code = "import platform; print(platform.python_version())"
        version = subprocess.run([path, "-c", code], check=False, capture_output=True, text=True).stdout.strip()
        if version.startswith(f"{release}."):
            found.setdefault(version, Path(path))
    return found


def _pyenv(release: str) -> Iterator[str]:
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    for path in sorted(root.glob(f"versions/{release}.*/bin/python"), reverse=True):
        yield str(path)


def run(command: Sequence[str | Path], **settings: str | Path) -> str:
    """Run a program and return what it printed; raise ``BrokenError`` when it fails."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        command,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
        cwd=settings.get("cwd", ROOT),
        env=inherited,
    )
    if done.returncode:
        raise BrokenError(f"{' '.join(map(str, command))[:200]} fails:\n{done.stdout}")
    return done.stdout


def built(kind: str, target: Path) -> Path:
    """The wheel or the sdist of the project, made in ``target``."""
    return target / run([sys.executable, "-c", BUILD, f"build_{kind}", str(target)]).split()[-1]


def check_size(what: str, size_mb: float, page: str) -> None:
    """Raise ``BrokenError`` where the page says another size; what has no row there may have any."""
    if what not in ROWS:
        return
    (said,) = re.findall(rf"(?m)^\| {re.escape(ROWS[what])} \| (\d+) \|$", page)
    if abs(size_mb - int(said)) > MOST_OFF * int(said):
        raise BrokenError(f"{what}: {size_mb:.0f} MB, and {PAGE.name} says {said}: write what it is now")


def tried(install: Install, uv: str) -> str:
    """Make one environment and run its program there; a line about it. The program runs outside of the project."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as made:
        run([uv, "venv", "--quiet", "--python", install.interpreter, f"{made}/env"])
        python = Path(made, "env", "bin", "python")
        run([uv, "pip", "install", "--quiet", "--python", python, install.package], cwd=made)
        size_mb = sum(file.stat().st_size for file in Path(made, "env", "lib").rglob("*") if file.is_file()) / 1_000_000
        check_size(install.what, size_mb, PAGE.read_text())
        run([python, "-W", "error", "-c", install.program, *EXTRAS], cwd=made)
    seconds = time.monotonic() - start
    return f"Python {install.python:7}  {install.what:24} {size_mb:5.0f} MB, works ({seconds:.0f} s)"


def installs(pythons: Sequence[str], wheel: Path, sdist: Path) -> Iterator[Install]:
    """What is to be tried, with each Python that is on this machine."""
    first = True
    for release in pythons:
        for number, (version, path) in enumerate(interpreters(release).items()):
            yield Install(version, path, "the wheel alone", str(wheel), ALONE)
            if number == 0:
                yield Install(version, path, "with all its own extras", f"{wheel}[{','.join(EXTRAS)}]", WHOLE)
            if first:
                yield Install(version, path, "the sdist alone", str(sdist), ALONE)
            first = False


def main() -> int:
    """Try what is asked for; return the number of environments in which something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--python", nargs="*", default=PYTHONS, metavar="X.Y", help="these releases only")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    arguments = parser.parse_args()
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        raise SystemExit("uv is not installed: `make setup` installs it")
    failed = 0
    with tempfile.TemporaryDirectory() as target, ThreadPoolExecutor(arguments.jobs) as pool:
        wheel, sdist = built("wheel", Path(target)), built("sdist", Path(target))
        for done in [pool.submit(tried, one, uv) for one in installs(arguments.python, wheel, sdist)]:
            try:
                print(done.result(), flush=True)
            except BrokenError as error:
                failed += 1
                print(error, flush=True)
    for release in arguments.python:  # the last lines, so that nobody overlooks them; CI lists what was not tested
        if not interpreters(release):
            print(f"SKIPPED [1] scripts/run_installs.py: NOT TESTED: Python {release} is not on this machine")
    return failed


if __name__ == "__main__":
    sys.exit(main())
