"""Report the coverage of the pure core; fail unless every line and branch of it was run.

It is measured in the tests of its own rooms: see ``pytest_collection_modifyitems`` in ``tests/conftest.py``.
"""

import argparse
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ctxfs"

# Without disk, network and clock nothing is hard to reach, so nothing in these rooms stays untested.
PURE_ROOMS = ("errors", "text", "messages", "eviction")
# Of the rooms that act, the modules that only decide.
PURE_MODULES = (
    "session/archive.py",
    "session/fingerprint.py",
    "session/journal.py",
    "session/losses.py",
    "session/record_json.py",
    "session/records.py",
    "session/redaction.py",
    "session/state.py",
    "session/cleanup/live.py",
    "session/cleanup/policy.py",
    "session/content/blocks.py",
    "session/content/compression.py",
    "session/content/encoding.py",
    "session/content/file.py",
    "session/content/stored.py",
    "session/timeline/back.py",
    "session/timeline/calls.py",
    "session/timeline/changes.py",
    "session/timeline/costs.py",
    "session/timeline/effect.py",
    "session/timeline/lives.py",
    "session/timeline/request.py",
    "session/timeline/timeline.py",
    "context/entry.py",
    "context/readers.py",
    "context/repair.py",
    "context/requests.py",
    "context/settings.py",
    "context/transcript.py",
    "context/history/arrival.py",
    "context/history/counting.py",
    "context/history/decisions.py",
    "context/history/parts.py",
    "context/history/slots.py",
    "context/history/wire.py",
    "context/history/wire_chat.py",
    "context/history/wire_gemini.py",
    "context/history/wire_messages.py",
    "context/history/wire_responses.py",
    "agent/llm/bound_thinking.py",
    "testing/invariants.py",
    "view/activity.py",
    "view/activity_builder.py",
    "view/call_panel.py",
    "view/chart.py",
    "view/figures.py",
    "view/findings.py",
    "view/item_list.py",
    "view/overview.py",
    "view/security.py",
    "view/worth.py",
)


def pure_core() -> list[Path]:
    """The modules of the pure core, inside ``ctxfs``."""
    modules = [Path(name) for name in PURE_MODULES]
    for room in PURE_ROOMS:
        modules += [path.relative_to(SOURCE) for path in sorted((SOURCE / room).rglob("*.py"))]
    return modules


def measured_folders() -> set[str]:
    """The names of the folders of tests that stand beside them: each has the name of its modules' package."""
    return {module.parent.name for module in pure_core()}


def main() -> int:
    """Print the report and return the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    core = ",".join(str(SOURCE / module) for module in pure_core())
    print("\nThe pure core:", flush=True)
    report = [sys.executable, "-m", "coverage", "report", f"--include={core}", "--fail-under=100"]
    return subprocess.run(report, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
