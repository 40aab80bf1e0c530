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


def measured_folders() -> set[str]:
    """The names of the folders of tests that stand beside them: each has the name of its modules' package."""
    return {module.parent.name for pattern in measured() for module in ROOT.glob(pattern)}


def main() -> int:
    """Print the report and return the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    print("\nThe pure core:", flush=True)
    return subprocess.run([sys.executable, "-m", "coverage", "report", "--fail-under=100"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
