"""Report the coverage of the pure core; fail unless every line and branch of it was run.

What it is stands in ``pyproject.toml``, as what coverage includes: to trace all else would take the tests a third
longer. It is measured in the tests of its own rooms: see ``pytest_collection_modifyitems`` in ``tests/conftest.py``.
"""

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def measured() -> list[str]:
    """The patterns of the paths of the pure core's modules."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    return list(settings["tool"]["coverage"]["run"]["include"])


def measured_files() -> list[Path]:
    """The files of the pure core's modules."""
    return [module for pattern in measured() for module in sorted(ROOT.glob(pattern))]


def measured_modules() -> list[str]:
    """The names by which they are imported."""
    paths = [file.relative_to(ROOT / "src").with_suffix("") for file in measured_files()]
    return [".".join(path.parts).removesuffix(".__init__") for path in paths]


def measured_folders() -> set[str]:
    """The names of the folders of tests that stand beside them: each has the name of its modules' package."""
    return {file.parent.name for file in measured_files()}


def main() -> int:
    """Print the report and return the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("\nThe pure core:", flush=True)
    return subprocess.run([sys.executable, "-m", "coverage", "report", "--fail-under=100"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
