"""One fuzz target under atheris: ``python fuzz_main.py <target> <libFuzzer's arguments>``."""

import logging
import sys
from pathlib import Path

import atheris

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

with atheris.instrument_imports(include=["ctxfs"]):
    from prove.fuzz_targets import TARGETS

__all__ = ["main"]


def control(data: bytes) -> None:
    """A reader with a mistake: an index that is not there."""
    if data.startswith(b"{"):
        ["nothing"][data.count(b"{")]


def main() -> None:
    """Run until libFuzzer's limits are reached, or something is found."""
    name, *arguments = sys.argv[1:]
    logging.disable(logging.CRITICAL)
    run = control if name == "control" else TARGETS[name].run
    atheris.Setup([sys.argv[0], *arguments], run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
