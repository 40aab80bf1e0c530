"""Print the rows of docs/evidence.md: what can be known without a model and without a key.

    python scripts/evidence.py [--short]

``--short`` plays 50 generated tasks instead of 500, as CI does. Recorded sessions are replayed from the folder that
CTXFS_TRACES names. What cannot run here is skipped, and the last lines name it.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = ROOT / ".venv-frameworks" / "evidence"
KIT = "compaction-conformance-kit==0.8.0"


def row(title: str, command: Sequence[str | Path]) -> bool:
    """Run one program under a heading, and return whether it did."""
    print(f"\n== {title} ==\n", flush=True)
    start = time.monotonic()
    code = subprocess.run(command, cwd=ROOT, check=False).returncode
    print(f"\n({time.monotonic() - start:.0f} s{'' if code == 0 else f', exit code {code}'})", flush=True)
    return code == 0


def kit_python() -> Path | None:
    """The interpreter of an environment with the kit, which the tests do without; None: it cannot be made."""
    python = ENVIRONMENT / "bin" / "python"
    uv = shutil.which("uv", path=str(Path(sys.executable).parent)) or shutil.which("uv")
    if uv is None:
        return None
    if not python.exists():
        subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, ENVIRONMENT], check=False)
    install: list[str | Path] = [uv, "pip", "install", "--quiet", "--python", python, "--editable", ROOT, KIT]
    done = subprocess.run(install, check=False, capture_output=True)
    return python if done.returncode == 0 else None


def main() -> int:
    """Print all rows; return how many failed."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("--short", action="store_true", help="fewer generated tasks")
    given = parser.parse_args()
    tasks = "50" if given.short else "500"
    skipped = []
    done = [
        row("first sight", [sys.executable, "benchmarks/first_sight.py"]),
        row(
            f"a mechanical reader, {tasks} tasks", [sys.executable, "benchmarks/mechanical_reader.py", "--tasks", tasks]
        ),
    ]
    traces = os.environ.get("CTXFS_TRACES")
    if traces and not given.short:
        replay: list[str | Path] = [sys.executable, "-m", "ctxfs", "replay", Path(traces) / "billed"]
        done.append(row("billed sessions, replayed: policies", [*replay, "--policies", "--markdown"]))
        done.append(row("billed sessions, replayed: the bill", replay))
    else:
        skipped.append("billed sessions: CTXFS_TRACES names no folder of recorded sessions, or --short was given")
    python = None if given.short else kit_python()
    if python is not None:
        done.append(row(f"a public kit for compaction ({KIT})", [python, "benchmarks/canaries.py"]))
    else:
        skipped.append(f"{KIT}: it cannot be installed, or --short was given")
    for what in skipped:
        print(f"SKIPPED: {what}", flush=True)
    return done.count(False)


if __name__ == "__main__":
    sys.exit(main())
