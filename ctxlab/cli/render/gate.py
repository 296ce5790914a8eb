"""Render the findings of ``ctxlab gate`` as a table, Markdown, JUnit XML or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.tables import markdown_table
from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.cli.render.table import Table
from ctxlab.evaluation.columns import Column
from ctxlab.evaluation.gate.check import BaselineChange, BaselineUpdate, GateResults
from ctxlab.evaluation.gate.findings import Finding, decimal_places, format_score_value, score_label

_HEADS = ("", "budget", "score", "baseline", "current", "difference (95 %)", "bound")
_DROP = {"baseline": 3, "difference (95 %)": 2, "score": 1}
"""columns that may be left out on a narrow terminal, highest number first; the sentences below the
table contain their values"""
_STYLES = {"BREACH": "bold red", "unclear": "yellow", "ok": ""}


def findings_text(gate: GateResults) -> str:
    """Return a table with one row per bound, a sentence per violated or unclear one, and a summary.

    A bound is unclear if the logs do not settle whether it is met.

    Parameters
    ----------
    gate : GateResults
        Results of the gate.

    Returns
    -------
    str
        Text to print. Findings that fail the gate come first.
    """
    found = gate.sorted_findings
    columns = []
    for head, *cells in zip(_HEADS, *_rows(gate, full_label=False), strict=True):
        narrow = [cell.replace(" (", "\n(") for cell in cells] if "95 %" in head else ()
        left = head not in ("baseline", "current")
        columns.append(Column(head, cells, "", _DROP.get(head, 0), left, narrow=narrow))
    drawn: list[tuple[int | str, str]] = []
    for name in _experiments(gate):
        drawn.append((name, "bold"))
        places = (i for i, f in enumerate(found) if f.budget.experiment == name)
        drawn += [(i, _STYLES[found[i].label]) for i in places]
    text = Table(columns, drawn, wrap=1).render()
    said = "\n".join(f"{label}: {sentence}." for label, sentence in _unmet(gate))
    return "\n\n".join(filter(None, [text, said, _summary_line(gate)]))


def findings_markdown(gate: GateResults) -> str:
    """Convert the findings to Markdown, for example for the step summary of GitHub Actions.

    Parameters
    ----------
    gate : GateResults
        Results of the gate.

    Returns
    -------
    str
        Summary line, one sentence per bound that is violated or unclear, and a table of all bounds.
    """
    sentences = [f"- {label}: {_escape_markdown(sentence)}." for label, sentence in _unmet(gate)]
    table = markdown_table(_HEADS, [list(map(_escape_markdown, row)) for row in _rows(gate)])
    head = f"### ctxlab gate\n\n**{_summary_line(gate)}**"
    return "\n\n".join(filter(None, [head, "\n".join(sentences), table])) + "\n"


def findings_junit_xml(gate: GateResults) -> str:
    """Convert the findings to JUnit XML, with one suite per experiment and one test case per bound.

    Findings with the outcome ``unclear`` (the logs do not settle whether the bound is met) are
    reported as skipped tests.

    Parameters
    ----------
    gate : GateResults
        Results of the gate.

    Returns
    -------
    str
        XML document.
    """
    counts = _junit_counts(gate.findings)
    root = ElementTree.Element("testsuites", {"name": "ctxlab gate", **counts})
    for name in _experiments(gate):
        findings = [f for f in gate.findings if f.budget.experiment == name]
        about = {"name": one_line(name), **_junit_counts(findings)}
        suite = ElementTree.SubElement(root, "testsuite", about)
        for f in findings:
            key = one_line(".".join(filter(None, (name, f.budget.baseline_key))))
            of = {"classname": key, "name": f"{f.score.name} {f.bound_text}"}
            case = ElementTree.SubElement(suite, "testcase", of)
            unclear = "unclear: " if f.outcome == "unclear" else ""
            said = {"message": one_line(f"{unclear}{f.sentence}")}
            if f.outcome == "worse":
                failure = ElementTree.SubElement(case, "failure", {**said, "type": f.label})
                failure.text = said["message"]
            elif f.outcome != "ok":
                ElementTree.SubElement(case, "skipped", said)
    ElementTree.indent(root)
    text: bytes = ElementTree.tostring(root, encoding="utf-8", xml_declaration=True)
    return text.decode() + "\n"


def findings_json(gate: GateResults) -> str:
    """Convert the findings to a JSON array with one object per bound.

    Parameters
    ----------
    gate : GateResults
        Results of the gate.

    Returns
    -------
    str
        JSON array as text. Violated bounds come first, then bounds with the outcome ``unclear``,
        for which the logs do not settle whether they are met.
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
            "fails": f.outcome == "worse",
            "sentence": f.sentence,
        }
        for f in gate.sorted_findings
    )


def update_text(update: BaselineUpdate) -> str:
    """Describe the changes that an update made to the baseline file.

    Parameters
    ----------
    update : BaselineUpdate
        Update to describe.

    Returns
    -------
    str
        One line per change, such as a score with its old and new value, and a line about the file.
    """
    if not update.file_changed:
        return f"{update.path} is up to date: nothing changed"
    lines = [*update.data_changes, *map(_change_line, update.changes)]
    if not lines:
        lines = ["no score changed, but figures of individual recordings changed"]
    return "\n".join([*lines, f"{update.path} was rewritten; commit it"])


def _rows(gate: GateResults, full_label: bool = True) -> Iterator[list[str]]:
    """Yield the table cells of each finding; ``full_label`` adds the name of the experiment."""
    for f in gate.sorted_findings:
        label = f.budget.label
        if not full_label:
            label = label.removeprefix(f"{f.budget.experiment} / ")
        yield [f.label, label, f.score.name, *f.cells, f.bound_text]


def _unmet(gate: GateResults) -> Iterator[tuple[str, str]]:
    """Yield the outcome label and the sentence of each finding that is violated or unclear."""
    for f in gate.sorted_findings:
        if f.outcome != "ok":
            yield f.label, f.sentence


def _change_line(change: BaselineChange) -> str:
    if change.score is None:
        return f"{change.label}: removed"
    before = change.now if change.before is None else change.before
    assert change.now is not None
    assert before is not None
    digits = decimal_places(change.score, before, change.now)
    now = format_score_value(change.now, change.score, digits)
    was = "none" if change.before is None else format_score_value(before, change.score, digits)
    return f"{change.label}: {score_label(change.score)} {was} → {now}"


def _junit_counts(findings: Sequence[Finding]) -> dict[str, str]:
    """Return the numbers of tests, failures, errors and skipped tests as XML attributes."""
    found = [f.outcome for f in findings]
    failures, skipped = found.count("worse"), found.count("unclear")
    counts = {"tests": len(found), "failures": failures, "errors": 0, "skipped": skipped}
    return {key: str(count) for key, count in counts.items()}


def _experiments(gate: GateResults) -> list[str]:
    return list(dict.fromkeys(finding.budget.experiment for finding in gate.findings))


def _summary_line(gate: GateResults) -> str:
    broken, unclear = len(gate.breaches), len(gate.unclear)
    said = f"{broken} violated" if broken else "none violated" if unclear else "all met"
    if unclear:
        said += f", {unclear} unclear"
    return f"{pluralize(len(gate.findings), 'bound')}: {said}."


def _escape_markdown(text: str) -> str:
    """Escape emphasis and HTML characters; ``markdown_table`` escapes vertical bars."""
    return one_line(text).replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")
