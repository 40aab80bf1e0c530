"""What a replay comes to, in sentences and in plain tables that fit a terminal."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from ctxfs.replay.report import PolicyFigures, PolicyRun, Report, SessionReport, total_usd
from ctxfs.replay.tariff import unpriced

__all__ = ["LIMITS", "Spending", "answer", "check", "favourite", "render_text", "spending"]

LIMITS: Final = (
    "No replay sees what a model would have done otherwise: where old results were masked for real, agents took up to "
    "2.3 times as many turns. What read-backs cost here is a proxy, and other proxies give other figures: "
    "see docs/economics.md."
)
_LEGEND: Final = (
    "cost: relative to never evicting, with read-backs, without output; worst: of one session. Tokens in millions: "
    "read from the cache, missed (written to it, or neither), output. back: read-backs."
)


class Spending:
    """What some sessions cost, and would have cost with one policy, in dollars; None: not known."""

    def __init__(self, name: str, sessions: Sequence[SessionReport], place: int) -> None:
        known = [(s.usd, s.usd_with(s.runs[place])) for s in sessions if s.usd_with(s.runs[place]) is not None]
        self.name = name
        self.sessions = len(sessions)
        self.unknown = len(sessions) - len(known)
        self.usd = total_usd(usd for usd, _ in known)
        self.usd_with = total_usd(usd for _, usd in known)

    @property
    def saved(self) -> str:
        """How much less, as a share, in words."""
        if not self.usd or self.usd_with is None:
            return ""
        share = 1 - self.usd_with / self.usd
        return f"{share:.0%} less" if share >= 0 else f"{-share:.0%} more"


def favourite(report: Report) -> int:
    """The index of the policy that an answer is about: ``economic``, or else the first that is not a baseline."""
    names = [run.policy for run in report.sessions[0].runs]
    others = [n for n, name in enumerate(names) if name != "none" and not name.startswith("window")]
    return names.index("economic") if "economic" in names else others[0] if others else 0


def answer(report: Report) -> str:
    """What it comes to, in one sentence."""
    place = favourite(report)
    policy = report.sessions[0].runs[place].policy
    name = "ctxfs" if policy == "economic" else policy
    billed = Spending("", [s for s in report.sessions if s.is_billed], place)
    others = Spending("", [s for s in report.sessions if not s.is_billed], place)
    if report.is_repriced or billed.usd is None:
        whole = Spending("", report.sessions, place)
        if whole.usd is None or whole.usd_with is None:
            figures = report.policies[place]
            share = f"{figures.relative_cost:.2f} of never evicting"
            return f"With {name} the input of {_sessions(whole.sessions)} costs {share}; no price is known."
        with_them = f"with {name} it would be {_usd(whole.usd_with)} ({whole.saved})"
        return f"At list prices {_sessions(whole.sessions - whole.unknown)} cost {_usd(whole.usd)}; {with_them}."
    assert billed.usd_with is not None
    said = (
        f"You paid {_usd(billed.usd)} for {_sessions(billed.sessions - billed.unknown)}; "
        f"with {name} it would have been {_usd(billed.usd_with)} ({billed.saved})"
    )
    if others.usd is not None and others.usd_with is not None:
        without = _sessions(others.sessions - others.unknown)
        said += f"; {without} without a bill: {_usd(others.usd)} and {_usd(others.usd_with)}"
    return f"{said}."


def check(report: Report) -> str:
    """How far the replay of what was recorded is from the bill; empty without a bill."""
    checked = [s for s in report.sessions if s.replayed_usd and s.recorded.usd is not None]
    if not checked or report.is_repriced:
        return ""
    paid, modelled = (
        total_usd(values) or 0.0 for values in ((s.replayed_usd for s in checked), (s.recorded.usd for s in checked))
    )
    away = _away(modelled / paid - 1, digits=1)
    said = f"Check: the replay of what was recorded costs {_usd(modelled)}, {away} the bill of its calls ({_usd(paid)})"
    if len(checked) > 1:
        each = [s.recorded.usd / s.replayed_usd - 1 for s in checked if s.recorded.usd and s.replayed_usd]
        said += f"; single sessions from {_away(min(each))} to {_away(max(each))}"
    return f"{said}."


def _away(off: float, *, digits: int = 0) -> str:
    """How far off something is, with its direction."""
    return f"{abs(off):.{digits}%} {'above' if off >= 0 else 'below'}"


def _notes(report: Report) -> list[str]:
    """What the figures rest on."""
    none = report.policies[0]
    notes = [check(report)]
    without = sum(s.cost_of_none - s.missed_cost_of_none for s in report.sessions)
    if none.missed_tokens and without:
        perfect = ", ".join(f"{p.policy} {p.cost_without_misses / without:.3f}" for p in report.policies)
        notes.append(f"Where the cache lost what it held, so does the replay; had it lost nothing: {perfect}.")
    if short := sum(call.is_reply_counted for s in report.sessions for call in s.bill):
        notes.append(f"{short:,} calls were recorded with less output than their replies hold: the replies count.")
    if unknown := unpriced(call for s in report.sessions for call in s.bill):
        notes.append(f"No price is known of {', '.join(unknown)}: give --model or --rates.")
    if assumed := sorted({s.model or "a model that is not named" for s in report.sessions if s.recorded.usd is None}):
        notes.append(f"Anthropic's rates were taken for {', '.join(assumed)}.")
    return [note for note in notes if note]


def render_text(report: Report, *, width: int = 80) -> str:
    """The answer first, then tables: policies, projects and days."""
    parts = [_wrapped(answer(report), width)]
    parts.append(
        _table(("policy", "cost", "worst", "read", "missed", "output", "$", "back"), map(_policy_row, report.policies))
    )
    parts.append(_wrapped(_LEGEND, width))
    place = favourite(report)
    name = report.sessions[0].runs[place].policy
    paid = "paid" if all(s.is_billed for s in report.sessions) and not report.is_repriced else "cost"
    for what, groups in (("project", _groups(report, place, _projects)), ("day", _days(report, place))):
        if len(groups) > 1:
            rows = (
                (_tail(g.name, width - 40), f"{g.sessions:,}", _usd(g.usd), _usd(g.usd_with), g.saved) for g in groups
            )
            parts.append(_table((what, "sessions", paid, f"{name}"[:10], ""), rows))
    parts += [_wrapped(note, width) for note in (*_notes(report), LIMITS)]
    return "\n\n".join(parts) + "\n"


def spending(report: Report) -> tuple[list[Spending], list[Spending]]:
    """What was and would have been paid, by project and by day."""
    place = favourite(report)
    return _groups(report, place, _projects), _days(report, place)


def _projects(session: SessionReport) -> str:
    return session.project or "(not recorded)"


def _groups(report: Report, place: int, key: Callable[[SessionReport], str]) -> list[Spending]:
    """By what ``key`` says; the dearest first. Nothing where no price is known."""
    found: dict[str, list[SessionReport]] = {}
    for session in report.sessions:
        found.setdefault(key(session), []).append(session)
    groups = [Spending(name, sessions, place) for name, sessions in found.items()]
    return sorted((g for g in groups if g.usd is not None), key=lambda g: -(g.usd or 0))


class _Day(Spending):
    """What one day cost: a session's share of it is the share of its bill."""

    def __init__(self, name: str) -> None:
        self.name, self.sessions, self.unknown = name, 0, 0
        self.usd: float | None = 0.0
        self.usd_with: float | None = 0.0

    def add(self, run: PolicyRun, session: SessionReport, usd: float) -> None:
        assert self.usd is not None
        assert self.usd_with is not None
        self.sessions += 1
        self.usd += usd
        self.usd_with += usd * (run.usd or 0.0) / (session.recorded.usd or 1.0)


def _days(report: Report, place: int) -> list[Spending]:
    """By the local day of each call that was billed, the newest first."""
    days: dict[str, _Day] = {}
    for session in report.sessions:
        if report.is_repriced or session.paid_usd is None or session.usd_with(session.runs[place]) is None:
            continue
        own: dict[str, float] = {}
        for call in session.bill:
            own[call.day] = own.get(call.day, 0.0) + (call.usd or 0.0)
        for day, usd in own.items():
            days.setdefault(day, _Day(day or "(not recorded)")).add(session.runs[place], session, usd)
    return [days[day] for day in sorted(days, reverse=True)]


def _policy_row(p: PolicyFigures) -> tuple[str, ...]:
    millions = (f"{tokens / 1e6:,.2f}" for tokens in (p.read_tokens, p.written_tokens, p.output_tokens))
    name = p.policy.replace("-clear-at-least-", "\n  -clear-at-least-")
    return (name, f"{p.relative_cost:.3f}", f"{p.max_relative_cost:.2f}", *millions, _usd(p.usd), f"{p.read_backs:,}")


def _usd(usd: float | None) -> str:
    if usd is None:
        return "?"
    return f"${usd:,.2f}" if usd >= 0.1 or usd == 0 else f"${usd:.4f}"


def _sessions(count: int) -> str:
    return f"{count:,} session" if count == 1 else f"{count:,} sessions"


def _tail(text: str, width: int) -> str:
    """The end of a long name, which says more than its beginning."""
    text = text.replace("\n", " ")
    return text if len(text) <= width else f"…{text[1 - width :]}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Columns of equal width; all but the first hold numbers. A line break in a first cell begins another line."""
    listed = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line) for row in listed for line in row[k].split("\n")) for k in range(len(head))]
    lines = []
    for row in listed:
        *above, last = row[0].split("\n")
        lines += above
        lines.append(
            "  ".join(
                [last.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(row[1:], widths[1:], strict=True))]
            ).rstrip()
        )
    return "\n".join([lines[0], "-" * (sum(widths) + 2 * len(widths) - 2), *lines[1:]])


def _wrapped(text: str, width: int) -> str:
    lines, line = [], ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            lines.append(line)
            line = word
        else:
            line = f"{line} {word}" if line else word
    return "\n".join([*lines, line])
