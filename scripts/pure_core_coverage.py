"""Report the coverage of ctxfs; fail unless every line and branch of the pure core was run."""

import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).resolve().parent.parent / "src" / "ctxfs"

# Modules without disk, network and clock: nothing in them is hard to reach, so nothing in them stays untested.
PURE_CORE = (
    "errors.py",
    "json_codec.py",
    "media.py",
    "tokens.py",
    "llm/messages.py",
    "llm/base.py",
    "llm/invariants.py",
    "llm/serialize.py",
    "context/items.py",
    "context/events.py",
    "context/placeholder.py",
    "context/layout.py",
    "context/trigger.py",
    "context/budget.py",
    "context/economics.py",
    "context/economics_features.py",
    "context/economics_ledger.py",
    "context/economics_parameters.py",
    "context/economics_prices.py",
    "context/digest.py",
    "context/json_shape.py",
    "context/json_pieces.py",
    "context/json_text.py",
    "context/snippets.py",
    "context/encoding.py",
    "context/archive.py",
    "context/records.py",
    "context/journal.py",
    "context/journal_account.py",
    "context/plan.py",
    "context/arrival.py",
    "context/offload.py",
    "context/ephemeral.py",
    "context/compaction.py",
    "context/summary.py",
    "context/ingest.py",
    "context/trims.py",
    "context/economy.py",
    "context/transcript.py",
)


def main() -> int:
    """Print both reports and return the exit code."""
    coverage = [sys.executable, "-m", "coverage", "report"]
    subprocess.run(coverage, check=True)
    core = ",".join(str(SOURCE / name) for name in PURE_CORE if (SOURCE / name).exists())
    print("\nThe pure core:")
    return subprocess.run([*coverage, f"--include={core}", "--fail-under=100"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
