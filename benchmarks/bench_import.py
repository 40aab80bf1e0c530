"""What ``import ctxfs`` costs over bare Python, and which packages it goes to, in processor time.

Limit: 150 ms over bare Python, as the median of pairs that run one after the other.
"""

import resource
import statistics
import subprocess
import sys
from collections import defaultdict

LIMIT_MS = 150
PAIRS = 15
IMPORT = "import ctxfs"
CONTEXT = "from ctxfs import Context"
AGENT = "from ctxfs import Agent"
EVERYTHING = "from ctxfs import *"


def run_ms(code: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", code], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def over_bare_ms(code: str) -> float:
    """Return what ``code`` costs over a bare Python that runs before it."""
    run_ms(code)  # byte code is compiled once, when ctxfs is installed
    return statistics.median(-run_ms("pass") + run_ms(code) for _ in range(PAIRS))


def own_ms_by_package() -> dict[str, float]:
    """Return each package's own share in ms, its subpackages included, from ``-X importtime``."""
    command = [sys.executable, "-X", "importtime", "-c", EVERYTHING]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    shares: dict[str, float] = defaultdict(float)
    for line in done.stderr.splitlines():
        microseconds, _, name = (part.strip() for part in line.removeprefix("import time:").split("|"))
        if microseconds.isdigit():
            package = name.partition(".")[0]
            shares["(standard library)" if package in sys.stdlib_module_names else package] += int(microseconds) / 1000
    return shares


def main() -> int:
    over = over_bare_ms(IMPORT)
    print(f"{IMPORT:24} {over:6.1f} ms over bare Python (limit {LIMIT_MS})")
    for code in (CONTEXT, AGENT, EVERYTHING):
        print(f"{code:24} {over_bare_ms(code):6.1f} ms over bare Python")
    print(f"\nwhere {EVERYTHING!r} goes, under -X importtime (which slows everything):")
    shares = sorted(own_ms_by_package().items(), key=lambda share: -share[1])
    for package, ms in shares[:10]:
        print(f"{ms:8.1f} ms  {package}")
    return int(over > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
