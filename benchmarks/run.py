"""Run every benchmark and print its table: ``python benchmarks/run.py [name …]``; a name is that of bench_<name>.py.

A benchmark is a program that prints a table, compares within one run (ratios travel between machines, times do not),
and exits with 1 when a figure that it states as a limit is not reached.
"""

import argparse
import platform
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
NAMES = sorted(file.stem.removeprefix("bench_") for file in FOLDER.glob("bench_*.py"))


def main(names: list[str]) -> int:
    """Run the benchmarks, one process each, and return the number of those that failed."""
    programs = [FOLDER / f"bench_{name}.py" for name in names or NAMES]
    print(f"Python {platform.python_version()}, {platform.system()} {platform.machine()}")
    failed = []
    for program in programs:
        title = program.stem.removeprefix("bench_")
        print(f"\n== {title} ==", flush=True)
        start = time.perf_counter()
        if subprocess.run([sys.executable, str(program)], check=False).returncode:
            failed.append(title)
        print(f"({time.perf_counter() - start:.1f} s)", flush=True)
    print(f"\nlimits not reached: {', '.join(failed)}" if failed else "\nall limits reached")
    return len(failed)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(NAMES)}; none: all")
    given = parser.parse_args().names
    if unknown := sorted({*given} - {*NAMES}):
        parser.error(f"there is no benchmark {', '.join(unknown)}: use some of {', '.join(NAMES)}")
    sys.exit(main(given))
