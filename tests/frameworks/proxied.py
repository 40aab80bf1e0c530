"""Programs behind ``ctxfs proxy``, as people start them."""

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

LONGEST_S = 600


def behind_the_proxy(
    command: Sequence[str], options: Sequence[str], *, sessions: Path, cwd: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``command`` to its end, which must be a good one; ``options`` are those of the proxy."""
    own = {name: value for name, value in os.environ.items() if not name.upper().endswith("_PROXY")}
    proxy = [sys.executable, "-m", "ctxfs", "proxy", "--root", str(sessions), *options]
    done = subprocess.run(
        [*proxy, "--", *command],
        cwd=cwd,
        env={**own, **environment},
        check=False,
        capture_output=True,
        text=True,
        timeout=LONGEST_S,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done
