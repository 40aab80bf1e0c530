"""What ``ctxfs replay`` and ``ctxfs tune`` call: plain functions from files to values, and values to text."""

import json
from collections.abc import Sequence
from pathlib import Path

from ctxfs.economics.prices import ANTHROPIC_RATES, Rates
from ctxfs.replay.cost import Cached
from ctxfs.replay.html import render_html
from ctxfs.replay.lab import Progress, Tokens, replay_files
from ctxfs.replay.policies import DEFAULT_POLICIES
from ctxfs.replay.report import Report
from ctxfs.replay.tune import Tuned, tune_files

__all__ = ["Report", "Tuned", "render_html", "render_json", "render_table", "replay", "tune"]

_COLUMNS = ("policy", "cost", "mean", "worst", "peak", "hits", "breaks", "evictions", "read-backs", "per 100")


def replay(
    files: Sequence[Path],
    policies: Sequence[str] = (),
    tokens: Tokens = "o200k",
    *,
    rates: Rates = ANTHROPIC_RATES,
    cached: Cached = "prefix",
    progress: Progress | None = None,
) -> Report:
    """Replay recorded sessions under the named policies; without names, under those worth comparing.

    Files without a reply of a model are left out, and named in the report.

    Raises:
        ConfigError: no files, or an unknown policy or counter.
        ReplayFormatError: a file is in no known format, or none has a reply in it.
        OSError: a file cannot be read.
    """
    return replay_files(
        files, policies or DEFAULT_POLICIES, tokens=tokens, rates=rates, cached=cached, progress=progress
    )


def tune(
    files: Sequence[Path],
    tokens: Tokens = "o200k",
    *,
    rates: Rates = ANTHROPIC_RATES,
    trials: int = 24,
    folds: int = 5,
    progress: Progress | None = None,
) -> Tuned:
    """Find eviction parameters, and say what they are worth on sessions that they were not found on.

    Raises:
        ConfigError: fewer than two files, folds or trials.
        ReplayFormatError: a file is in no known format.
        OSError: a file cannot be read.
    """
    return tune_files(files, tokens=tokens, rates=rates, trials=trials, folds=folds, progress=progress)


def render_json(report: Report) -> str:
    """The report as JSON; keys and figures as in ``Report.to_dict``."""
    return json.dumps(report.to_dict(), indent=1)


def render_table(report: Report) -> str:
    """The policies as a Markdown table; costs relative to never evicting."""
    rows: list[tuple[str, ...]] = [
        (
            p.policy,
            f"{p.relative_cost:.3f}",
            f"{p.mean_relative_cost:.3f}",
            f"{p.max_relative_cost:.3f}",
            f"{p.peak_tokens:,}",
            f"{p.cache_hit_rate:.1%}",
            f"{p.prefix_breaks:,}",
            f"{p.evictions:,}",
            f"{p.read_backs:,}",
            f"{p.read_backs_per_100_evictions:.1f}",
        )
        for p in report.policies
    ]
    for label, tool_inputs in (("bound over results", False), ("bound over results and tool inputs", True)):
        total, mean = report.oracle(tool_inputs=tool_inputs)
        rows.append((label, f"{total:.3f}", f"{mean:.3f}", *("" for _ in _COLUMNS[3:])))
    lines = [_COLUMNS, ("---", *("---:" for _ in _COLUMNS[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
