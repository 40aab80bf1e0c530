"""Draw the terminal of ``ctxfs demo`` as docs/images/demo.svg.

    python scripts/make_demo_picture.py

It explores a small directory that it makes first, so that the picture is the same from one version to the next, but for
the session's name and the seconds.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

OUT = Path(__file__).resolve().parent.parent / "docs" / "images" / "demo.svg"
COLUMNS = 100
TOPICS = ("ledger", "planner", "journal", "window", "digest", "reader", "writer", "policy", "budget", "archive")


def small_project(directory: Path) -> None:
    """Ten modules of different lengths."""
    for number, topic in enumerate(TOPICS):
        lines = [
            f"def {topic}_{n}(value: int) -> int:  # TODO {n}\n    return value + {n}\n"
            for n in range(60 + 30 * number)
        ]
        (directory / f"{topic}.py").write_text(f'"""The {topic}."""\n\n' + "\n\n".join(lines))


def main() -> None:
    """Run the demo, and draw what it printed."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryDirectory() as project:
        small_project(Path(project))
        environment = {**os.environ, "COLUMNS": str(COLUMNS), "HOME": home}
        command = [sys.executable, "-m", "ctxfs", "demo", "."]
        done = subprocess.run(command, cwd=project, env=environment, check=True, capture_output=True, text=True)
    shown = done.stdout.replace(home, "~").replace(project, "~/project")
    with Path(os.devnull).open("w") as nowhere:
        console = Console(width=COLUMNS, record=True, file=nowhere, force_terminal=True)
        console.print(Text.from_ansi(shown))
        svg = console.export_svg(title="ctxfs demo")
    OUT.write_text(re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL))


if __name__ == "__main__":
    main()
