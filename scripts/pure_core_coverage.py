"""Report the coverage of the pure core; fail unless every line and branch of it was run.

It is measured in the tests of its own rooms: see ``pytest_collection_modifyitems`` in ``tests/conftest.py``.
"""

import argparse
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ctxfs"

# Modules without disk, network and clock: nothing in them is hard to reach, so nothing in them stays untested.
PURE_CORE = (
    "errors/base.py",
    "errors/models.py",
    "errors/sessions.py",
    "jsontext/codec.py",
    "media.py",
    "models/prices.py",
    "models/known.py",
    "models/genai.py",
    "tokens.py",
    "llm/messages.py",
    "llm/base.py",
    "llm/invariants.py",
    "llm/serialize.py",
    "llm/wire_names.py",
    "llm/bound_thinking.py",
    "items.py",
    "events.py",
    "placeholder/text.py",
    "session/names.py",
    "eviction/budget.py",
    "economics/planner.py",
    "economics/plans.py",
    "economics/outlook.py",
    "economics/held.py",
    "economics/features.py",
    "economics/identifiers.py",
    "economics/ledger.py",
    "economics/belief.py",
    "economics/price_steps.py",
    "economics/parameters.py",
    "economics/prices.py",
    "placeholder/digest.py",
    "placeholder/lines.py",
    "jsontext/shape.py",
    "jsontext/tokens.py",
    "jsontext/write_stream.py",
    "jsontext/validate.py",
    "placeholder/excerpts.py",
    "content/compression.py",
    "content/encoding.py",
    "content/blocks.py",
    "content/file.py",
    "content/readable.py",
    "content/utf8.py",
    "session/archive.py",
    "session/records.py",
    "session/record_json.py",
    "content/stored.py",
    "session/journal.py",
    "session/state.py",
    "replay/journal_costs.py",
    "replay/effect.py",
    "eviction/plan.py",
    "eviction/eager.py",
    "eviction/preview.py",
    "eviction/policy.py",
    "eviction/holds.py",
    "eviction/keep_recent.py",
    "eviction/compaction.py",
    "eviction/summary.py",
    "timeline/back.py",
    "timeline/calls.py",
    "timeline/changes.py",
    "timeline/lives.py",
    "timeline/request.py",
    "timeline/timeline.py",
    "context/entry.py",
    "context/settings.py",
    "context/requests.py",
    "placeholder/attach.py",
    "eviction/candidates.py",
    "context/trims.py",
    "placeholder/arguments.py",
    "economics/economy.py",
    "context/transcript.py",
    "context/repair.py",
    "session/losses.py",
    "cleanup/live.py",
    "cleanup/policy.py",
    "history/arrival.py",
    "history/counting.py",
    "history/decisions.py",
    "session/fingerprint.py",
    "history/parts.py",
    "history/slots.py",
    "history/wire.py",
    "history/wire_messages.py",
    "history/wire_chat.py",
    "history/wire_responses.py",
    "view/activity.py",
    "view/activity_builder.py",
    "view/call_panel.py",
    "view/chart.py",
    "view/figures.py",
    "view/findings.py",
    "view/item_list.py",
    "view/overview.py",
    "redaction.py",
    "view/security.py",
    "view/worth.py",
)


def main() -> int:
    """Print the report and return the exit code."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    if missing := [name for name in PURE_CORE if not (SOURCE / name).exists()]:
        print(f"no such modules, correct PURE_CORE: {', '.join(missing)}")
        return 1
    core = ",".join(str(SOURCE / name) for name in PURE_CORE)
    print("\nThe pure core:", flush=True)
    report = [sys.executable, "-m", "coverage", "report", f"--include={core}", "--fail-under=100"]
    return subprocess.run(report, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
