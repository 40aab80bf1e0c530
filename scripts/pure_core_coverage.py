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
    "text/jsontext/codec.py",
    "text/media.py",
    "messages/models/prices.py",
    "messages/models/known.py",
    "messages/models/genai.py",
    "messages/tokens.py",
    "messages/messages.py",
    "messages/base.py",
    "testing/invariants.py",
    "messages/serialize.py",
    "messages/wire_names.py",
    "agent/llm/bound_thinking.py",
    "messages/items.py",
    "eviction/events.py",
    "eviction/placeholder/text.py",
    "messages/names.py",
    "eviction/budget.py",
    "eviction/economics/planner.py",
    "eviction/economics/plans.py",
    "eviction/economics/outlook.py",
    "eviction/economics/held.py",
    "eviction/economics/features.py",
    "eviction/economics/identifiers.py",
    "eviction/economics/ledger.py",
    "eviction/economics/belief.py",
    "eviction/economics/price_steps.py",
    "eviction/economics/parameters.py",
    "messages/rates.py",
    "eviction/placeholder/digest.py",
    "eviction/placeholder/lines.py",
    "text/jsontext/path.py",
    "text/jsontext/shape.py",
    "text/jsontext/tokens.py",
    "text/jsontext/write_stream.py",
    "text/jsontext/validate.py",
    "eviction/placeholder/excerpts.py",
    "session/content/compression.py",
    "session/content/encoding.py",
    "session/content/blocks.py",
    "session/content/file.py",
    "messages/readable.py",
    "text/utf8.py",
    "session/archive.py",
    "session/records.py",
    "session/record_json.py",
    "session/content/stored.py",
    "session/journal.py",
    "session/state.py",
    "session/timeline/costs.py",
    "session/timeline/effect.py",
    "eviction/offload_plan.py",
    "eviction/eager.py",
    "eviction/preview.py",
    "eviction/policy.py",
    "eviction/holds.py",
    "eviction/keep_recent.py",
    "eviction/compaction.py",
    "eviction/summary.py",
    "session/timeline/back.py",
    "session/timeline/calls.py",
    "session/timeline/changes.py",
    "session/timeline/lives.py",
    "session/timeline/request.py",
    "session/timeline/timeline.py",
    "context/entry.py",
    "context/settings.py",
    "context/requests.py",
    "eviction/placeholder/attach.py",
    "eviction/candidates.py",
    "eviction/placeholder/arguments.py",
    "eviction/economics/economy.py",
    "context/transcript.py",
    "context/repair.py",
    "session/losses.py",
    "session/cleanup/live.py",
    "session/cleanup/policy.py",
    "context/history/arrival.py",
    "context/history/counting.py",
    "context/history/decisions.py",
    "session/fingerprint.py",
    "context/history/parts.py",
    "context/history/slots.py",
    "context/history/wire.py",
    "context/history/wire_messages.py",
    "context/history/wire_chat.py",
    "context/history/wire_responses.py",
    "view/activity.py",
    "view/activity_builder.py",
    "view/call_panel.py",
    "view/chart.py",
    "view/figures.py",
    "view/findings.py",
    "view/item_list.py",
    "view/overview.py",
    "session/redaction.py",
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
