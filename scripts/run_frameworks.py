"""Run the tests of the adapters, each with its framework, in environments of their own: frameworks' pins conflict.

    python scripts/run_frameworks.py [--only NAME …] [--newest] [--no-types] [--fresh] [--jobs N]

Each section of ``tests/frameworks/table.toml`` is tested twice: with the newest release of the framework, and with the
oldest one that its extra in ``pyproject.toml`` allows. An environment is kept in ``.venv-frameworks/`` until what it
requires changes; ``--fresh`` makes all of them again, with what is newest today. With the newest release, mypy checks
the adapter, its test and its example as strictly as everything else is checked, against the framework's own types.

An environment whose packages cannot be installed is not tested: the last lines name it. What is installed and does not
work is an error.
"""

import argparse
import hashlib
import re
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests" / "frameworks"
ENVIRONMENTS = ROOT / ".venv-frameworks"
TOOLS = ("pytest>=9",)
"""What is installed beside ctxfs and the framework."""
SDKS = ("anthropic",)
"""What ctxfs itself imports, with types that take mypy longer than all others together."""


@dataclass(frozen=True)
class Environment:
    """One framework at one release.

    ``requires``: what pip is to install beside ctxfs; ``npm``: what npm is to install, in a folder of the environment
    with that name; ``apart``: what pip is to install in an environment of its own there; ``typed``: whether mypy checks
    what ctxfs has for it; ``shown``: whether its example and its section of the documentation are run.
    """

    framework: str
    release: str
    requires: tuple[str, ...]
    typed: bool
    npm: tuple[str, ...] = ()
    apart: tuple[str, ...] = ()
    shown: bool = True

    @property
    def name(self) -> str:
        """Its directory's name."""
        return f"{self.framework}-{self.release}"

    @property
    def path(self) -> Path:
        """Its directory."""
        return ENVIRONMENTS / self.name

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return interpreter(self.path)

    @property
    def checked_files(self) -> list[Path]:
        """What mypy checks in it."""
        files = [
            ROOT / "src" / "ctxfs" / "adapters" / f"{self.framework}.py",
            ROOT / "src" / "ctxfs" / "adapters" / f"{self.framework}_messages.py",
            TESTS / f"test_{self.framework}.py",
            ROOT / "examples" / f"with_{self.framework}.py",
        ]
        return [file for file in files if file.exists()]


def environments(table: dict[str, dict[str, Any]], extras: dict[str, list[str]]) -> list[Environment]:
    """The environments that the table and the extras of the project ask for."""
    found = []
    for name, row in table.items():
        needed = row["requires"] if "requires" in row else extras[name]
        also = (*row.get("also", ()), *TOOLS)
        npm = tuple(row.get("npm", ()))
        apart = tuple(row.get("apart", ()))
        shown = row.get("shown", not npm and not apart)
        typed = row.get("types", True)
        found.append(Environment(name, "newest", (*needed, *also), typed=typed, npm=npm, apart=apart, shown=shown))
        if npm or apart or not row.get("oldest", True):
            continue
        found.append(Environment(name, "oldest", (*[oldest(one) for one in needed], *also), typed=False))
    return found


def oldest(requirement: str) -> str:
    """The requirement of the oldest release that ``requirement`` allows: what stands after its ``>=``."""
    name, least, release = requirement.partition(">=")
    if not least:
        raise SystemExit(f"{requirement}: say with >= which release is the oldest one that is supported")
    return f"{name}=={release.partition(',')[0]}"


class BrokenError(Exception):
    """The tests of an environment fail, or ctxfs cannot be installed; the text is what the program printed."""


class NotInstalledError(Exception):
    """The packages of a framework cannot be installed; the text is what the installer printed."""


def run(command: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program, both of its streams in one."""
    return subprocess.run(
        command,
        cwd=ROOT,
        check=False,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )


Run = Callable[[Sequence[str | Path]], subprocess.CompletedProcess[str]]


def built(environment: Environment, project: str, *, fresh: bool, run: Run = run) -> None:
    """Make the environment, unless it is there and requires the same.

    Raises ``NotInstalledError`` when what it requires cannot be installed, and ``BrokenError`` when ctxfs cannot.
    """
    wanted = hashlib.sha256(
        "\n".join([sys.version, project, *environment.requires, *environment.npm, *environment.apart]).encode()
    ).hexdigest()
    stamp = environment.path / ".requirements"
    ctxfs = ["--editable", str(ROOT)]
    if not fresh and stamp.exists() and stamp.read_text() == wanted:
        return
    shutil.rmtree(environment.path, ignore_errors=True)
    done, install = new_environment(environment.path, fresh=fresh, run=run)
    done = run([*install, *ctxfs, *environment.requires]) if done.returncode == 0 else done
    if done.returncode:
        alone = run([*install, *ctxfs])
        if alone.returncode:
            raise BrokenError(f"{environment.name}: ctxfs cannot be installed:\n{alone.stdout}")
        raise NotInstalledError(f"{environment.name} could not be made:\n{done.stdout}")
    if environment.npm:
        install_programs(environment, run)
    if environment.apart:
        done, install = new_environment(environment.path / "apart", fresh=fresh, run=run)
        done = run([*install, *environment.apart]) if done.returncode == 0 else done
        if done.returncode:
            raise NotInstalledError(f"{environment.name} could not be made:\n{done.stdout}")
    stamp.write_text(wanted)


def new_environment(path: Path, *, fresh: bool, run: Run) -> tuple[subprocess.CompletedProcess[str], list[str]]:
    """Make an environment in a directory; return how that ended, and the command that installs into it."""
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    python = str(interpreter(path))
    if uv is None:
        print("uv is not installed: pip makes the environments, which takes longer", flush=True)
        done = run([sys.executable, "-m", "venv", str(path)])
        return done, [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = run([uv, "venv", "--quiet", "--python", sys.executable, str(path)])
    install = [uv, "pip", "install", "--quiet", "--python", python]
    return done, [*install, "--refresh"] if fresh else install


def interpreter(path: Path) -> Path:
    """The interpreter of the environment in a directory."""
    return path / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


def install_programs(environment: Environment, run: Run) -> None:
    """Install the packages of npm. Raises ``NotInstalledError`` if that is not possible here."""
    npm = shutil.which("npm")
    if npm is None:
        raise NotInstalledError(f"{environment.name} could not be made:\nnpm is not installed")
    done = run([npm, "install", "--silent", "--prefix", str(environment.path / "npm"), *environment.npm])
    if done.returncode:
        raise NotInstalledError(f"{environment.name} could not be made:\n{done.stdout}")


def tested(environment: Environment, project: str, arguments: argparse.Namespace) -> str:
    """Test one environment and return a line about it; raise ``BrokenError`` when something is wrong."""
    start = time.monotonic()
    built(environment, project, fresh=arguments.fresh)
    pytest: list[str | Path] = [
        environment.python,
        ROOT / "scripts" / "run_tests.py",
        "-c",
        TESTS / "pytest.ini",
        f"--framework={environment.framework}",
    ]
    shown = [TESTS / "test_shown.py"] if environment.shown else []
    done = run([*pytest, TESTS / f"test_{environment.framework}.py", *shown])
    if done.returncode:
        raise BrokenError(f"{environment.name} fails:\n{done.stdout}")
    said = re.findall(r"(?m)^\d+ passed.* in .*$", done.stdout)[-1:]
    if environment.typed and not arguments.no_types:
        check_types(environment)
        said.append("types checked")
    by_chance = re.findall(r"(?m)^FAILED ONCE.*$", done.stdout)
    return "\n".join([f"{environment.name:24} {'; '.join(said)} ({time.monotonic() - start:.0f} s)", *by_chance])


def check_types(environment: Environment) -> None:
    """Check with mypy what ctxfs has for a framework, with the types that are installed in its environment.

    The first environment that is checked gives the others its cache: what they have in common is checked once.
    """
    common, cache = ENVIRONMENTS / ".mypy_cache", environment.path / ".mypy_cache"
    if common.exists() and not cache.exists():
        shutil.copytree(common, cache)
    settings = environment.path / "mypy.ini"
    settings.write_text(mypy_settings(environment.framework))
    mypy: list[str | Path] = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", cache]
    done = run([*mypy, "--python-executable", environment.python, *environment.checked_files])
    if done.returncode:
        raise BrokenError(f"{environment.name}: types are wrong:\n{done.stdout}")
    if not common.exists():
        copied = shutil.copytree(cache, ENVIRONMENTS / f".{environment.name}")
        with suppress(OSError):  # another environment was faster
            copied.rename(common)
        shutil.rmtree(copied, ignore_errors=True)


def mypy_settings(framework: str) -> str:
    """The project's settings of mypy, as a file of its own: without the SDKs that only our own clients import."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    lines = ["[mypy]"]
    for name, value in settings.items():
        if name not in {"exclude", "files", "overrides"}:
            lines.append(f"{name} = {','.join(value) if isinstance(value, list) else value}")
    missing = [module for override in settings["overrides"] for module in override["module"]]
    lines += [f"[mypy-{','.join(missing)}]", "ignore_missing_imports = True"]
    if skipped := [f"{sdk}.*" for sdk in SDKS if sdk != framework]:  # `make types` checks our clients, in seconds
        lines += [f"[mypy-{','.join(skipped)}]", "follow_imports = skip", "ignore_missing_imports = True"]
    return "\n".join(lines)


def chosen(all_of_them: list[Environment], arguments: argparse.Namespace) -> Iterator[Environment]:
    """Those that the command line asks for."""
    known = {environment.framework for environment in all_of_them}
    if unknown := set(arguments.only) - known:
        raise SystemExit(f"there is no {', '.join(sorted(unknown))}: use one of {', '.join(sorted(known))}")
    for environment in all_of_them:
        if arguments.only and environment.framework not in arguments.only:
            continue
        if environment.release == "newest" or not arguments.newest:
            yield environment


def main() -> int:
    """Test what is asked for; return the number of environments in which something is wrong."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--only", nargs="*", default=[], metavar="NAME", help="these frameworks only")
    parser.add_argument("--newest", action="store_true", help="the newest releases only")
    parser.add_argument("--no-types", action="store_true", help="do not run mypy")
    parser.add_argument("--fresh", action="store_true", help="make the environments again")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: 2)")
    arguments = parser.parse_args()
    table = tomllib.loads((TESTS / "table.toml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    found = environments(table, project["optional-dependencies"])
    needed = "\n".join(project["dependencies"])
    failed, skipped = 0, []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        for done in [pool.submit(tested, one, needed, arguments) for one in chosen(found, arguments)]:
            try:
                print(done.result(), flush=True)
            except BrokenError as error:
                failed += 1
                print(error, flush=True)
            except NotInstalledError as error:
                skipped.append(str(error).partition("\n")[0])
                print(error, flush=True)
    for one in skipped:
        print(f"SKIPPED NOT TESTED: {one}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
