"""A report as text: JSON, or a table in Markdown. For a page with charts see ``html``."""

import json
from dataclasses import asdict

from ctxfs.lab.replay.answer import answer, check, spending
from ctxfs.lab.replay.report import Report
from ctxfs.lab.replay.tune import Tuned

_COLUMNS = ("policy", "cost", "mean", "worst", "peak", "hits", "breaks", "evictions", "read-backs", "per 100", "hidden")


def render_json(report: Report) -> str:
    """The report as JSON: the answer, and the figures of ``Report.to_dict``."""
    kinds, projects = spending(report)
    told = {"answer": answer(report), "check": check(report), **report.to_dict()}
    for name, groups in (("kinds", kinds), ("projects", projects)):
        told[name] = [{"name": g.name, "sessions": g.sessions, "usd": g.usd, "usd_with": g.usd_with} for g in groups]
    return json.dumps(told, indent=1)


def render_tuned(tuned: Tuned) -> str:
    """What was counted as JSON: the numbers, their standard errors, and their costs on each fold."""
    found = {
        "read_backs": {kind.value: rate for kind, rate in tuned.counted.read_backs.items()},
        "by_size": tuned.counted.by_size,
        "by_age": tuned.counted.by_age,
        "errors": dict(tuned.counted.errors),
        "events": tuned.counted.events,
        "held_out": tuned.held_out,
        "held_out_default": tuned.held_out_default,
        "folds": [asdict(fold) for fold in tuned.folds],
        "skipped": [{"path": str(s.path), "why": s.why} for s in tuned.skipped],
    }
    return json.dumps(found, indent=1) + "\n"


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
            f"{p.hidden_use_share:.1%}",
        )
        for p in report.policies
    ]
    for label, tool_inputs in (("bound over results", False), ("bound over results and tool inputs", True)):
        total, mean = report.oracle(tool_inputs=tool_inputs)
        rows.append((label, f"{total:.3f}", f"{mean:.3f}", *("" for _ in _COLUMNS[3:])))
    lines = [_COLUMNS, ("---", *("---:" for _ in _COLUMNS[1:])), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"
