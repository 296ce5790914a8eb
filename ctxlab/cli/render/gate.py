"""Render the findings of ``ctxlab gate`` as a table, Markdown, JUnit XML or JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree import ElementTree

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.evaluation.gate.check import BaselineChange, BaselineUpdate, GateResults
from ctxlab.evaluation.gate.findings import Finding, decimal_places, format_score_value, score_label

_DIFFERENCE = "difference (95 %)"
_HEADS = ("", "budget", "score", "baseline", "current", _DIFFERENCE, "bound")
_DROP_ORDER = ("baseline", _DIFFERENCE, "score")
"columns that a narrow terminal leaves out, least important first; the sentences repeat them"
_STYLES = {"BREACH": "bold red", "UNCLEAR": "bold red", "unclear": "yellow", "ok": ""}


def findings_text(gate: GateResults) -> str:
    """Return a table with one row per bound, a sentence for each that is not met, and a summary.

    Parameters
    ----------
    gate : GateResults
        The results.

    Returns
    -------
    str
        The text; breaches come first.
    """
    cells = [
        [_outcome_label(gate, f), _budget_label(f), f.score.name, *f.cells, f.bound_text]
        for f in gate.sorted_findings
    ]
    columns = dict(zip(_HEADS, map(list, zip(*cells, strict=True)), strict=True))
    shown = _fit_columns(columns)
    if _DIFFERENCE not in shown:  # try again with its cells on two lines
        columns[_DIFFERENCE] = [cell.replace(" (", "\n(") for cell in columns[_DIFFERENCE]]
        shown = _fit_columns(columns)
    rows: list[tuple[list[str], str]] = []
    for experiment in _experiments(gate):
        rows.append((["", experiment], "bold"))
        rows += [
            ([columns[head][place] for head in shown], _STYLES[_outcome_label(gate, f)])
            for place, f in enumerate(gate.sorted_findings)
            if f.budget.experiment == experiment
        ]
    left = {place for place, head in enumerate(shown) if head not in ("baseline", "current")}
    drawn = show.render_to_text(show.make_table(shown, rows, left, wrap_column=1))
    if narrow := [head.removesuffix(" (95 %)") for head in _HEADS if head not in shown]:
        drawn += f"\n\nHidden at this width: {', '.join(narrow)}; --json shows them."
    sentences = [
        f"{_outcome_label(gate, f)}: {f.sentence}."
        for f in gate.sorted_findings
        if f.outcome != "ok"
    ]
    return "\n\n".join([drawn, *(["\n".join(sentences)] if sentences else []), _summary_line(gate)])


def _fit_columns(columns: dict[str, list[str]]) -> list[str]:
    """Return the headings that fit next to each other, with at least 16 columns for names."""
    mark, name, *others = columns
    available_width = show.output_width() - 1 - max(map(len, columns[mark]))
    first = {name: columns[name], **{head: columns[head] for head in others}}
    return [mark, *show.fit_columns(first, _DROP_ORDER, available_width)]


def findings_markdown(gate: GateResults) -> str:
    """Return the findings as Markdown, for the summary of a CI step.

    Parameters
    ----------
    gate : GateResults
        The results.

    Returns
    -------
    str
        The text.
    """
    lines = ["### ctxlab gate", "", f"**{_summary_line(gate)}**", ""]
    lines += [
        f"- {_outcome_label(gate, f)}: {_escape_markdown(f.sentence)}."
        for f in gate.sorted_findings
        if f.outcome != "ok"
    ]
    lines += [""] * (lines[-1] != "")
    lines += [_markdown_row(_HEADS), _markdown_row(["---"] * len(_HEADS))]
    lines += [
        _markdown_row(
            map(
                _escape_markdown,
                (_outcome_label(gate, f), f.budget.label, f.score.name, *f.cells, f.bound_text),
            )
        )
        for f in gate.sorted_findings
    ]
    return "\n".join(lines) + "\n"


def findings_junit_xml(gate: GateResults) -> str:
    """Return the findings as JUnit XML: one suite per experiment, one test case per bound.

    Unclear findings are reported as skipped, unless the gate is strict.

    Parameters
    ----------
    gate : GateResults
        The results.

    Returns
    -------
    str
        The XML document.
    """
    counts = _junit_counts(gate, gate.findings)
    root = ElementTree.Element("testsuites", {"name": "ctxlab gate", **counts})
    for name in _experiments(gate):
        findings = [f for f in gate.findings if f.budget.experiment == name]
        about = {"name": one_line(name), **_junit_counts(gate, findings)}
        suite = ElementTree.SubElement(root, "testsuite", about)
        for f in findings:
            of = {
                "classname": one_line(f"{name}.{f.budget.baseline_key}"),
                "name": f"{f.score.name} {f.bound_text}",
            }
            case = ElementTree.SubElement(suite, "testcase", of)
            unclear = "unclear: " if f.outcome == "unclear" else ""
            said = {"message": one_line(f"{unclear}{f.sentence}")}
            if gate.is_breach(f):
                failure = ElementTree.SubElement(
                    case, "failure", {**said, "type": _outcome_label(gate, f)}
                )
                failure.text = said["message"]
            elif f.outcome != "ok":
                ElementTree.SubElement(case, "skipped", said)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text.decode() + "\n"


def findings_json(gate: GateResults) -> str:
    """Return the findings as a JSON array with one object per bound, in the table's order.

    Parameters
    ----------
    gate : GateResults
        The results.

    Returns
    -------
    str
        The array.
    """
    return show.to_json_array(
        {
            "experiment": f.budget.experiment,
            "name": f.budget.name,
            "limit": f.budget.limit,
            "strategy": f.budget.strategy,
            "score": f.score.name,
            "kind": f.bound.kind,
            "bound": f.margin if f.bound.kind == "margin" else f.bound.value,
            "now": f.value,
            "baseline": f.baseline_value,
            "difference": f.difference,
            "low": f.low,
            "high": f.high,
            "outcome": f.outcome,
            "fails": gate.is_breach(f),
            "sentence": f.sentence,
        }
        for f in gate.sorted_findings
    )


def update_text(update: BaselineUpdate) -> str:
    """Return the changes that an update made to the baseline file.

    Parameters
    ----------
    update : BaselineUpdate
        The update.

    Returns
    -------
    str
        One line per figure that changed, old and new.
    """
    if not update.file_changed:
        return f"{update.path} is up to date: nothing changed"
    lines = [f"{said}" for said in update.data_changes]
    lines += [_change_line(change) for change in update.changes]
    if not lines:
        lines = ["no total changed, but figures of single recordings did"]
    return "\n".join([*lines, f"{update.path} was rewritten; commit it"])


def _change_line(change: BaselineChange) -> str:
    if change.score is None:
        return f"{change.label}: gone"
    before = change.now if change.before is None else change.before
    assert change.now is not None
    assert before is not None
    digits = decimal_places(change.score, before, change.now)
    now = format_score_value(change.now, change.score, digits)
    was = "new" if change.before is None else format_score_value(before, change.score, digits)
    return f"{change.label}: {score_label(change.score)} {was} → {now}"


def _junit_counts(gate: GateResults, findings: Sequence[Finding]) -> dict[str, str]:
    """Return the numbers of test cases by outcome, as attributes of a suite."""
    failed = [gate.is_breach(f) for f in findings]
    unclear = [f.outcome == "unclear" for f in findings]
    skipped = sum(unclear) if not gate.strict else 0
    counts = {"tests": len(failed), "failures": sum(failed), "errors": 0, "skipped": skipped}
    return {key: str(count) for key, count in counts.items()}


def _experiments(gate: GateResults) -> list[str]:
    return list(dict.fromkeys(finding.budget.experiment for finding in gate.findings))


def _budget_label(finding: Finding) -> str:
    """Return the label of a budget without its experiment, which the table names above."""
    return finding.budget.label.removeprefix(f"{finding.budget.experiment} / ")


def _outcome_label(gate: GateResults, finding: Finding) -> str:
    """Return the outcome, in capitals if it makes the gate fail."""
    if gate.is_breach(finding):
        return "BREACH" if finding.outcome == "worse" else "UNCLEAR"
    return finding.outcome


def _summary_line(gate: GateResults) -> str:
    broken, unclear = len(gate.breaches), sum(f.outcome == "unclear" for f in gate.findings)
    said = f"{pluralize(len(gate.findings), 'bound')}: "
    said += (
        "all hold"
        if gate.passed and not unclear
        else f"{broken} broken"
        if broken
        else "none broken"
    )
    if unclear:
        said += f", {unclear} unclear{' (a failure, since strict = true)' if gate.strict else ''}"
    return f"{said}."


def _markdown_row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escape_markdown(text: str) -> str:
    """Escape a text for a Markdown cell, where the bars of a pipeline would split cells."""
    return (
        one_line(text)
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .replace("*", "\\*")
        .replace("_", "\\_")
    )
