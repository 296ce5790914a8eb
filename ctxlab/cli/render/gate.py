"""What the gate found as a table for people, Markdown for a CI summary and JUnit XML for its reports."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from ctxlab._utils.humanize import many
from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.evaluation.gate.check import (
    Change,
    Gate,
    Update,
)
from ctxlab.evaluation.gate.findings import (
    Finding,
    places,
    score_in_words,
    written,
)

__all__ = ["findings_json", "findings_text", "junit", "markdown", "update_text"]

_DIFFERENCE = "difference (95 %)"
_HEADS = ("", "budget", "score", "baseline", "now", _DIFFERENCE, "bound")
_SPARE = ("baseline", _DIFFERENCE, "score")
"columns that a narrow terminal does without, what is missed least first; sentences below hold them"
_STYLES = {"BREACH": "bold red", "UNCLEAR": "bold red", "unclear": "yellow", "ok": ""}


def findings_text(gate: Gate) -> str:
    """A line a bound, breaches first, then a sentence for each that does not hold, then the count."""
    cells = [[_mark(gate, f), _name(f), f.score.name, *f.cells, f.rule] for f in gate.ordered]
    columns = dict(zip(_HEADS, map(list, zip(*cells, strict=True)), strict=True))
    shown = _fitted(columns)
    if _DIFFERENCE not in shown:  # on two lines it may fit
        columns[_DIFFERENCE] = [cell.replace(" (", "\n(") for cell in columns[_DIFFERENCE]]
        shown = _fitted(columns)
    rows: list[tuple[list[str], str]] = []
    for experiment in _experiments(gate):
        rows.append((["", experiment], "bold"))
        rows += [
            ([columns[head][place] for head in shown], _STYLES[_mark(gate, f)])
            for place, f in enumerate(gate.ordered)
            if f.budget.experiment == experiment
        ]
    left = {place for place, head in enumerate(shown) if head not in ("baseline", "now")}
    drawn = show.drawn(show.table(shown, rows, left, wraps=1))
    if narrow := [head.removesuffix(" (95 %)") for head in _HEADS if head not in shown]:
        drawn += f"\n\nToo narrow here for {', '.join(narrow)}; --json holds them."
    told = [f"{_mark(gate, f)}: {f.sentence}." for f in gate.ordered if f.outcome != "ok"]
    return "\n\n".join([drawn, *(["\n".join(told)] if told else []), _count(gate)])


def _fitted(columns: dict[str, list[str]]) -> list[str]:
    """The heads that fit beside each other, with 16 columns at least for names, which wrap."""
    mark, name, *others = columns
    taken = show.width() - 1 - max(map(len, columns[mark]))
    first = {name: columns[name], **{head: columns[head] for head in others}}
    return [mark, *show.fitting(first, _SPARE, taken)]


def markdown(gate: Gate) -> str:
    """The same as Markdown, for the summary of a step in CI."""
    lines = ["### ctxlab gate", "", f"**{_count(gate)}**", ""]
    lines += [
        f"- {_mark(gate, f)}: {_escaped(f.sentence)}." for f in gate.ordered if f.outcome != "ok"
    ]
    lines += [""] * (lines[-1] != "")
    lines += [_line(_HEADS), _line(["---"] * len(_HEADS))]
    lines += [
        _line(map(_escaped, (_mark(gate, f), f.budget.where, f.score.name, *f.cells, f.rule)))
        for f in gate.ordered
    ]
    return "\n".join(lines) + "\n"


def junit(gate: Gate) -> str:
    """The same as JUnit XML: a suite an experiment, a case a bound; unclear counts as skipped."""
    counts = _counts(gate, gate.findings)
    root = ElementTree.Element("testsuites", {"name": "ctxlab gate", **counts})
    for name in _experiments(gate):
        findings = [f for f in gate.findings if f.budget.experiment == name]
        about = {"name": one_line(name), **_counts(gate, findings)}
        suite = ElementTree.SubElement(root, "testsuite", about)
        for f in findings:
            of = {
                "classname": one_line(f"{name}.{f.budget.key}"),
                "name": f"{f.score.name} {f.rule}",
            }
            case = ElementTree.SubElement(suite, "testcase", of)
            unclear = "unclear: " if f.outcome == "unclear" else ""
            said = {"message": one_line(f"{unclear}{f.sentence}")}
            if gate.fails(f):
                failure = ElementTree.SubElement(case, "failure", {**said, "type": _mark(gate, f)})
                failure.text = said["message"]
            elif f.outcome != "ok":
                ElementTree.SubElement(case, "skipped", said)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text.decode() + "\n"


def findings_json(gate: Gate) -> str:
    """An array with an object a bound, in the order of the table."""
    return show.as_json(
        {
            "experiment": f.budget.experiment,
            "name": f.budget.name,
            "limit": f.budget.limit,
            "strategy": f.budget.strategy,
            "score": f.score.name,
            "kind": f.bound.kind,
            "bound": f.margin if f.bound.kind == "margin" else f.bound.value,
            "now": f.now,
            "baseline": f.before,
            "difference": f.difference,
            "low": f.low,
            "high": f.high,
            "outcome": f.outcome,
            "fails": gate.fails(f),
            "sentence": f.sentence,
        }
        for f in gate.ordered
    )


def update_text(update: Update) -> str:
    """The figures that changed, old and new, and what they are taken on."""
    if not update.written:
        return f"{update.path} holds what was found: nothing changed"
    lines = [f"{said}" for said in update.data]
    lines += [_change(change) for change in update.changes]
    if not lines:
        lines = ["every figure is what it was; what recordings add to it is not"]
    return "\n".join([*lines, f"{update.path} is rewritten: commit it"])


def _change(change: Change) -> str:
    if change.score is None:
        return f"{change.where}: gone"
    before = change.now if change.before is None else change.before
    assert change.now is not None
    assert before is not None
    digits = places(change.score, before, change.now)
    now = written(change.now, change.score, digits)
    was = "new" if change.before is None else written(before, change.score, digits)
    return f"{change.where}: {score_in_words(change.score)} {was} → {now}"


def _counts(gate: Gate, findings: Sequence[Finding]) -> dict[str, str]:
    """How many cases there are, and of which kind, as attributes of a suite."""
    failed = [gate.fails(f) for f in findings]
    unclear = [f.outcome == "unclear" for f in findings]
    skipped = sum(unclear) if not gate.strict else 0
    counts = {"tests": len(failed), "failures": sum(failed), "errors": 0, "skipped": skipped}
    return {key: str(count) for key, count in counts.items()}


def _experiments(gate: Gate) -> list[str]:
    return list(dict.fromkeys(finding.budget.experiment for finding in gate.findings))


def _name(finding: Finding) -> str:
    """A budget in the table of its experiment."""
    return finding.budget.where.removeprefix(f"{finding.budget.experiment} / ")


def _mark(gate: Gate, finding: Finding) -> str:
    """A breach, also where only strictness makes it one."""
    if gate.fails(finding):
        return "BREACH" if finding.outcome == "worse" else "UNCLEAR"
    return finding.outcome


def _count(gate: Gate) -> str:
    broken, unclear = len(gate.breaches), sum(f.outcome == "unclear" for f in gate.findings)
    said = f"{many(len(gate.findings), 'bound')}: "
    said += (
        "all hold"
        if gate.holds and not unclear
        else f"{broken} broken"
        if broken
        else "none broken"
    )
    if unclear:
        said += f", {unclear} unclear{' (which fails: strict)' if gate.strict else ''}"
    return f"{said}."


def _line(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    """A text in a cell of Markdown, where a pipeline's bars would part cells."""
    return (
        one_line(text)
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
