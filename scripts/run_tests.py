"""Run the tests; the few that fail are run once more, alone, and named at the end if they pass then.

    python scripts/run_tests.py [argument of pytest …]

A test that fails by chance would fail a run of many minutes. The second run is a process of its own, without other
tests beside it: what an earlier test left behind, or a busy machine, does not reach it. It is run only after failures
of tests: an error in collecting them, an interrupt or many failures are no chance. Each test that is named is a defect.

The first run does not rewrite the assertions of the test modules, which takes longer than a hundred tests; the second
one does, and shows what was compared. What passes then was only seen failing in the first run, which shows the values
of local variables instead.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

MOST_RUN_AGAIN = 10
"""More failures than that are one defect, not chance."""
FIRST = ("--assert=plain", "--showlocals")
AGAIN = ("--last-failed", "--last-failed-no-failures=none")
ALONE = ("--numprocesses=0", "--dist=no")


def failed_tests(cache: Path) -> list[str]:
    """The ids of the tests that failed when they were run last."""
    known = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(known.read_text())) if known.exists() else []


def main(arguments: Sequence[str]) -> int:
    """Run pytest, and once more what failed; return its exit code."""
    with tempfile.TemporaryDirectory() as folder:
        cache = Path(folder) / "cache"
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={cache}", *arguments]
        first = subprocess.run([*pytest, *FIRST], check=False).returncode
        failed = failed_tests(cache)
        collected = all("::" in test for test in failed)
        if first != 1 or not collected or not 0 < len(failed) <= MOST_RUN_AGAIN:
            return first
        print(f"\n{len(failed)} failed. Once more, alone:", *failed, sep="\n  ", flush=True)
        alone = ALONE if any(one.startswith("--numprocesses") for one in arguments) else ()
        measured = ["--cov-append"] if "--cov" in arguments else []
        again = subprocess.run([*pytest, *AGAIN, *alone, *measured], check=False).returncode
        still = failed_tests(cache)
    for test in failed:
        if test not in still:
            print(f"FAILED ONCE, PASSED WHEN RUN AGAIN: {test}")
    for test in still:
        print(f"FAILED TWICE: {test}")
    return again or int(bool(still))


if __name__ == "__main__":
    described = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=described, allow_abbrev=False)
    sys.exit(main(parser.parse_known_args()[1]))
