"""Examples that compare arms with a harness."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def figures_of(example: str) -> list[dict[str, Any]]:
    """The figures of each arm, by ``--json``, which the example passes on."""
    command = [sys.executable, str(EXAMPLES / example), "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    figures: list[dict[str, Any]] = json.loads(done.stdout)["arms"]
    return figures
