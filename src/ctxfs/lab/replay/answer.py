"""What a replay comes to: one sentence, two totals, and who gains, in text that fits a terminal."""

import textwrap
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Final

from ctxfs.eviction.placeholder.lines import plural
from ctxfs.lab.replay.policies import why_not
from ctxfs.lab.replay.prediction import Prediction
from ctxfs.lab.replay.report import CAN_LEAVE, PolicyFigures, Report, SessionReport, Share, total_usd
from ctxfs.lab.replay.tariff import unpriced
from ctxfs.text import figures
from ctxfs.version import DOCS

LIMITS: Final = (
    "No replay sees what a model would have done otherwise: where old results were masked for real, agents took up to "
    "2.3 times as many turns. What read-backs cost here is an estimate, and other estimates give other figures: "
    f"{DOCS}/replay/ says which."
)
_LEGEND: Final = (
    "cost: relative to never evicting, with read-backs, without output; worst: of one session. Tokens in millions: "
    "read from the cache, missed (written to it, or neither), output. back: read-backs."
)
_CHECK_LEGEND: Final = (
    "How well a replay counts: how far the size of each prompt, predicted from the calls before it, is from its bill; "
    "in all, each whichever way, and of the sessions the lowest and the highest."
)
_NO_AGENT: Final = "messages"
"""What recordings are called that name no agent."""
_LENGTHS: Final = ((50, "under 50 calls"), (151, "50 to 150 calls"), (None, "over 150 calls"))
"""Groups of sessions by their calls: up to this many, exclusively, and what the group is called."""
_GAIN: Final = 0.015
"""A group that saves a smaller share, 1 % as it is shown, has next to nothing to gain."""
_SAME: Final = 0.005
_UNRELIABLE: Final = 0.05
"""An agent whose prompts are predicted with a larger error is marked: its recordings lack a part of what was sent."""
_NARROW_COLUMNS: Final = 100
"""Up to this width, the name of a policy may take two lines."""
_PROJECTS_SHOWN: Final = 12
_FIGURES_COLUMNS: Final = 44
"""What the columns of figures beside a group's name take, with their gaps."""
_LEAST_NAME_COLUMNS: Final = 16
"""Where less is left for the name, the figures stand below it."""


class Spending:
    """What some sessions cost, and would have cost with one policy, in dollars; None: not known."""

    def __init__(self, name: str, sessions: Sequence[SessionReport], place: int) -> None:
        known = [(s.usd, s.usd_with(s.runs[place])) for s in sessions if s.usd_with(s.runs[place]) is not None]
        self.name = name
        self.sessions = len(sessions)
        self.unknown = len(sessions) - len(known)
        self.usd = total_usd(usd for usd, _ in known)
        self.usd_with = total_usd(usd for _, usd in known)
        self._relative_input = sum(s.runs[place].figures.cost for s in sessions) / sum(s.cost_of_none for s in sessions)

    @property
    def saved_share(self) -> float:
        """How much less, as a share of the dollars, or of the input where no price is known; below 0: it is more."""
        if not self.usd or self.usd_with is None:
            return 1 - self._relative_input
        return 1 - self.usd_with / self.usd

    @property
    def saved(self) -> str:
        """How much less, as a share, in words; with an asterisk where no price is known (see the notes)."""
        share = self.saved_share
        if abs(share) < _SAME:
            return "the same"
        said = f"{share:.0%} less" if share >= 0 else f"{-share:.0%} more"
        return said if self.usd else f"{said}*"

    @property
    def gain(self) -> str:
        """Who gains, in a word: ``saved``, unless that is next to nothing."""
        return "no gain" if -_SAME < self.saved_share < _GAIN else self.saved


def favourite(report: Report) -> int:
    """The index of the policy that an answer is about: ``economic``, or else the first that is not a baseline."""
    names = [run.policy for run in report.sessions[0].runs]
    others = [n for n, name in enumerate(names) if name != "none" and not name.startswith("window")]
    return names.index("economic") if "economic" in names else others[0] if others else 0


def answer(report: Report) -> str:
    """What it comes to, in one sentence with two totals: without ctxfs, and with it."""
    place = favourite(report)
    name = called(report.sessions[0].runs[place].policy)
    whole = Spending("", report.sessions, place)
    if whole.usd is None or whole.usd_with is None:
        share = f"{report.policies[place].relative_cost:.2f} of never evicting"
        return f"With {name} the input of {plural(whole.sessions, 'session')} costs {share}; no price is known."
    priced = [s for s in report.sessions if s.usd is not None]
    billed = sum(s.is_billed for s in priced)
    count = plural(len(priced), "session")
    if len(priced) < len(report.sessions):
        count = f"{len(priced):,} of {plural(len(report.sessions), 'session')}"
    with_it = f"with {name} it would have been {figures.usd(whole.usd_with)} ({whole.saved})"
    if report.is_repriced or not billed:
        return f"At list prices {count} cost {figures.usd(whole.usd)}; {with_it}."
    estimated = f", {len(priced) - billed:,} of them without a bill and at list prices" if billed < len(priced) else ""
    return f"You paid {figures.usd(whole.usd)} for {count}{estimated}; {with_it}."


def could_leave(report: Report) -> str:
    """Which parts of the bill there are, and how much of it could leave a context at all."""
    parts = {share: sum(s.composition.get(share, 0.0) for s in report.sessions) for share in Share}
    total = sum(parts.values())
    if not total:
        return ""
    largest = sorted(parts, key=lambda share: -parts[share])
    listed = ", ".join(f"{share.value} {parts[share] / total:.0%}" for share in largest if parts[share] / total > _SAME)
    leaving = sum(parts[share] for share in CAN_LEAVE) / total
    return (
        f"Without ctxfs the money goes to {listed}. Only tool results and arguments of calls can leave: {leaving:.0%}. "
        "A first prompt is the system prompt, the tools, the instructions and the first question."
    )


def check(report: Report) -> str:
    """How far each prompt, predicted from the calls before it, is from its bill, by agent; empty without a bill."""
    said = [f"{agent} {_off(predictions)}" for agent, predictions in _predictions(report).items()]
    if not said:
        return ""
    all_said = "; ".join(said)
    return f"Check: each prompt, predicted from the calls before it, against its bill: {all_said}.{_unchecked(report)}"


def _unchecked(report: Report) -> str:
    """What the check leaves out, as one more sentence; "" for nothing."""
    unbilled = sum(s.prediction.unbilled_calls for s in report.sessions)
    return f" Without usage, so not checked: {plural(unbilled, 'call')}." if unbilled else ""


def _predictions(report: Report) -> dict[str, list[Prediction]]:
    """What was predicted of each session that has a bill, by agent."""
    by_agent: dict[str, list[Prediction]] = {}
    for session in report.sessions:
        if session.prediction.calls:
            by_agent.setdefault(session.agent or _NO_AGENT, []).append(session.prediction)
    return dict(sorted(by_agent.items()))


def _off(predictions: Sequence[Prediction]) -> str:
    whole = sum(predictions, Prediction())
    said = f"{whole.error:+.1%} ({plural(whole.calls, 'prompt')}, each {whole.mean_error:.1%} off"
    if len(predictions) > 1:
        errors = [p.error for p in predictions]
        said += f"; sessions {min(errors):+.1%} to {max(errors):+.1%}"
    return f"{said})"


def _checked(report: Report, width: int) -> str:
    """The check as a table; it says which agents' figures are not to be relied on."""
    predictions = _predictions(report)
    rows = []
    for agent, of_sessions in predictions.items():
        whole = sum(of_sessions, Prediction())
        errors = [p.error for p in of_sessions]
        reliable = whole.mean_error <= _UNRELIABLE
        rows.append(
            (
                agent,
                f"{whole.calls:,}",
                f"{whole.error:+.1%}",
                f"{whole.mean_error:.1%}",
                f"{min(errors):+.1%} to {max(errors):+.1%}",
                "" if reliable else "not reliable",
            )
        )
    if not rows:
        return ""
    table = _table(("check", "prompts", "in all", "each", "sessions", ""), rows, width)
    return f"{_wrapped(f'{_CHECK_LEGEND}{_unchecked(report)}', width)}\n\n{table}"


def _notes(report: Report) -> list[str]:
    """What the figures rest on."""
    notes = []
    if short := sum(call.is_reply_counted for s in report.sessions for call in s.bill):
        said = f"In {plural(short, 'call')} the reply holds more output tokens than the bill says"
        notes.append(f"{said}; its length was used.")
    without_price = set(unpriced(chain.from_iterable(s.bill for s in report.sessions)))
    without_price |= {s.model or "a model that is not named" for s in report.sessions if s.recorded.usd is None}
    if without_price:
        named = ", ".join(sorted(without_price))
        notes.append(f"* No price is known of {named}: Anthropic's ratios were taken. Give --model or --rates.")
    return notes


def _without_misses(report: Report) -> str:
    """What the policies would have cost, had the cache never expired; empty if it never did."""
    without = sum(s.cost_of_none - s.missed_cost_of_none for s in report.sessions)
    if not report.policies[0].missed_tokens or not without:
        return ""
    costs = ", ".join(f"{called(p.policy)} {p.cost_without_misses / without:.3f}" for p in report.policies)
    return f"Had the cache never expired: {costs}."


def render_text(report: Report, *, width: int = 80) -> str:
    """The answer first, then who gains and who does not; policies where others than ctxfs were asked for."""
    parts = [_wrapped(answer(report), width), _wrapped(could_leave(report), width)]
    parts.append(_spending_table(report, width))
    if {p.policy for p in report.policies} - {"none", "economic"}:
        columns = ("policy", "cost", "worst", "read", "missed", "output", "$", "back")
        usd = [Spending("", report.sessions, place).usd_with for place in range(len(report.policies))]
        parts += [
            _table(columns, (_policy_row(p, paid, width) for p, paid in zip(report.policies, usd, strict=True)), width),
            _wrapped(_LEGEND, width),
        ]
        parts += [_wrapped(why, width) for why in (*cheaper(report), _without_misses(report))]
    parts.append(_checked(report, width))
    parts += [_wrapped(note, width) for note in (*_notes(report), LIMITS)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _spending_table(report: Report, width: int) -> str:
    """Who gains and who does not: by agent and length, and below that by project."""
    paid = "paid" if all(s.is_billed for s in report.sessions) and not report.is_repriced else "cost"
    name = called(report.sessions[0].runs[favourite(report)].policy)
    kinds, projects = spending(report)
    rows = [_spending_row(group, width) for group in kinds]
    if len(projects) > 1:
        rows += [_heading(""), _heading("project")]
        rows += [_spending_row(group, width) for group in projects[:_PROJECTS_SHOWN]]
    if len(projects) > _PROJECTS_SHOWN:
        rows.append(_heading(f"{len(projects) - _PROJECTS_SHOWN:,} more: --json, --html"))
    return _table(("agent", "sessions", paid, f"with {name}"[:12], ""), rows, width)


def _spending_row(group: Spending, width: int) -> tuple[str, ...]:
    usd = (figures.usd(group.usd), figures.usd(group.usd_with))
    beside = width - _FIGURES_COLUMNS
    return (
        _tail(group.name, width if beside < _LEAST_NAME_COLUMNS else beside),
        f"{group.sessions:,}",
        *usd,
        group.gain,
    )


def _heading(text: str) -> tuple[str, ...]:
    return (text, "", "", "", "")


def cheaper(report: Report) -> list[str]:
    """Why a policy that costs less here is not the default, for each."""
    ours = next((p for p in report.policies if p.policy == "economic"), None)
    if ours is None:
        return []
    return [
        f"{p.policy} costs less here ({p.relative_cost:.3f}; its worst session {p.max_relative_cost:.2f}), and is not "
        f"the default: {why_not(p.policy)}."
        for p in report.policies
        if p.relative_cost < ours.relative_cost
    ]


def spending(report: Report) -> tuple[list[Spending], list[Spending]]:
    """What was and would have been paid: by agent and length, and by project."""
    return _groups(report, _kind), sorted(_groups(report, _project), key=lambda g: -(g.usd or 0))


def _kind(session: SessionReport) -> str:
    length = next(name for most, name in _LENGTHS if most is None or session.calls < most)
    return f"{session.agent or _NO_AGENT}, {length}"


def _project(session: SessionReport) -> str:
    return session.project or "(not recorded)"


def _groups(report: Report, key: Callable[[SessionReport], str]) -> list[Spending]:
    """The sessions by ``key``, each group's name in order, the shortest sessions of an agent first."""
    found: dict[str, list[SessionReport]] = {}
    for session in sorted(report.sessions, key=lambda s: (s.agent, s.calls)):
        found.setdefault(key(session), []).append(session)
    place = favourite(report)
    return [Spending(name, sessions, place) for name, sessions in found.items()]


def called(policy: str) -> str:
    """What people call a policy."""
    return "ctxfs" if policy == "economic" else policy


def _policy_row(p: PolicyFigures, usd: float | None, width: int) -> tuple[str, ...]:
    """A policy's row; ``usd``: what the bill would have been with it, so that ctxfs's is the answer's."""
    millions = (f"{tokens / 1e6:,.2f}" for tokens in (p.read_tokens, p.written_tokens, p.output_tokens))
    name = "economic (ctxfs)" if p.policy == "economic" else p.policy
    if width <= _NARROW_COLUMNS:
        name = name.replace("-clear-at-least-", "\n  -clear-at-least-")
    costs = (f"{p.relative_cost:.3f}", f"{p.max_relative_cost:.2f}")
    return (name, *costs, *millions, figures.usd(usd), f"{p.read_backs:,}")


def _tail(text: str, width: int) -> str:
    """The end of a long name, which says more than its beginning."""
    text = text.replace("\n", " ")
    return text if len(text) <= width else f"…{text[1 - width :]}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> str:
    """Columns of equal width; all but the first hold numbers. A line break in a first cell begins another line.

    Where they do not fit, the figures of a row stand below its name, each with the name of its column.
    """
    listed = [tuple(head), *(tuple(row) for row in rows)]
    widths = [max(len(line) for row in listed for line in row[k].split("\n")) for k in range(len(head))]
    total = sum(widths) + 2 * len(widths) - 2
    if total > width:
        return "\n".join(_below_its_name(head, row, width) for row in listed[1:])
    lines = []
    for row in listed:
        *above, last = row[0].split("\n")
        lines += above
        cells = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join([last.ljust(widths[0]), *cells]).rstrip())
    return "\n".join([lines[0], "-" * total, *lines[1:]])


def _below_its_name(head: Sequence[str], row: Sequence[str], width: int) -> str:
    cells = [f"{name} {cell}".strip() for name, cell in zip(head[1:], row[1:], strict=True) if cell]
    name = _wrapped(row[0].replace("\n  ", ""), width)
    if not cells:
        return name
    below = textwrap.fill(", ".join(cells), width, initial_indent="  ", subsequent_indent="  ")
    return f"{name}\n{below}"


def _wrapped(text: str, width: int) -> str:
    return textwrap.fill(text, width, break_long_words=False, break_on_hyphens=False)
