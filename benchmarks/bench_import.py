"""What ``import ctxfs`` costs over bare Python, and which packages it goes to.

Limit: 150 ms over bare Python, as the median of pairs that run one after the other.
"""

import statistics
import subprocess
import sys
import time
from collections import defaultdict

LIMIT_MS = 150
PAIRS = 15
IMPORT = "import ctxfs"


def run_ms(code: str) -> float:
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", code], check=True)
    return (time.perf_counter() - start) * 1000


def own_ms_by_package() -> dict[str, float]:
    """Return each package's own share in ms, its subpackages included, from ``-X importtime``."""
    command = [sys.executable, "-X", "importtime", "-c", IMPORT]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    shares: dict[str, float] = defaultdict(float)
    for line in done.stderr.splitlines():
        microseconds, _, name = (part.strip() for part in line.removeprefix("import time:").split("|"))
        if microseconds.isdigit():
            package = name.partition(".")[0]
            shares["(standard library)" if package in sys.stdlib_module_names else package] += int(microseconds) / 1000
    return shares


def main() -> int:
    run_ms(IMPORT)  # byte code is compiled once, when ctxfs is installed
    pairs = [(run_ms("pass"), run_ms(IMPORT)) for _ in range(PAIRS)]
    bare = statistics.median(bare for bare, _ in pairs)
    over = statistics.median(full - bare for bare, full in pairs)
    print(f"bare Python {bare:6.1f} ms")
    print(f"import ctxfs {over:5.1f} ms over that (limit {LIMIT_MS})")
    print("\nwhere it goes, under -X importtime (which slows everything):")
    shares = sorted(own_ms_by_package().items(), key=lambda share: -share[1])
    for package, ms in shares[:10]:
        print(f"{ms:8.1f} ms  {package}")
    return int(over > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main())
