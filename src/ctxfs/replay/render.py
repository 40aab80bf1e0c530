"""A report as text: JSON, or a table in Markdown. For a page with charts see ``html``."""

import json

from ctxfs.replay.report import Report

__all__ = ["render_json", "render_table"]

_COLUMNS = ("policy", "cost", "mean", "worst", "peak", "hits", "breaks", "evictions", "read-backs", "per 100")


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
