"""Columns and notes of the table that describes recordings.

The table has one row per recording. If there are many, a row has the recordings of one format, cluster,
folder or file.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from statistics import median
from typing import Any, TypeAlias

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_count, format_percent, to_sentence
from ctxlab._utils.tables import Column, legend_of
from ctxlab._utils.text import one_line
from ctxlab.evaluation.describe import Descriptions, RecordingDescription
from ctxlab.evaluation.metrics.recall import HEADLINE_LABEL
from ctxlab.messages.validation import RULES

MAX_ROWS = 30
"""If there are more recordings, they are shown in groups."""
_HIDE_WHEN_EMPTY = ("reasoning", "compactions", "billed\n(counted)", "count\nerror %", "invalid")
"columns that are shown only if at least one cell is neither empty nor zero"
_DROP_ORDER = (
    *("reqs", "needs\n(far)", "billed\n(counted)", "tool\n%", "invalid", "count\nerror %"),
    *("max\nresult", "compactions", "reasoning", "format"),
)
"columns that are left out on a narrow terminal, starting with the last one"
_LEGEND = {
    "reqs": "reqs: number of model calls",
    "tool\n%": "tool %: percentage of tokens that are in tool results",
    "max\nresult": "max result: tokens of the largest tool result",
    "reasoning": "reasoning: tokens of hidden reasoning, which are not included in other columns",
    "needs\n(far)": "needs: paths, ids, names, numbers and dates that a tool call uses and an earlier "
    "message contains (far: over 4,000 tokens earlier)",
    "compactions": "compactions: number of compactions made by the recorded product",
    "billed\n(counted)": "billed (counted): tokens of the largest request as billed by the provider "
    "(as counted by ctxlab)",
    "count\nerror %": "count error: median difference between counted and billed tokens of a request",
    "invalid": "invalid: recordings that a provider would reject",
}
_CHANGE_SENTENCES = {
    "cleared": "Context was probably cleared without an entry in the log: the bill falls by {tokens} "
    "tokens {where}.",
    "shortened": "Tool results were probably shortened before they were sent: the bill rises by "
    "{tokens} tokens less than the messages in the log {where}.",
    "hidden": "The provider probably dropped hidden reasoning or search results, which are not in the "
    "log: the bill falls by {tokens} tokens {where}.",
}
"sentences on unrecorded context changes, by their probable cause"
_Rows: TypeAlias = tuple[list[dict[str, str]], list[tuple[int | str, str]]]
"cells of each row by heading, and lines to draw, as in ``Table.rows``"
_MAX_NAMED_MODELS = 5
_COMMON_LIMITS = (4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 1_000_000)


def description_columns(lines: Sequence[dict[str, str]], formats: int) -> list[Column]:
    """Create the columns of the table; columns with nothing to show are left out.

    Parameters
    ----------
    lines : sequence of dict
        Cells of each row by heading.
    formats : int
        Number of formats. The column of the format is shown only if there are several.

    Returns
    -------
    list of Column
        Columns with one cell per row.
    """
    columns = []
    name, *_ = lines[0]
    for head in lines[0]:
        cells = [line[head] for line in lines]
        empty = head in _HIDE_WHEN_EMPTY and {*cells} <= {"0", "", "–"}
        if not empty and (head != "format" or formats > 1):
            drop = _DROP_ORDER.index(head) + 1 if head in _DROP_ORDER and head != name else 0
            left_aligned = head in ("recording", "format")
            columns.append(Column(head, cells, _LEGEND.get(head, ""), drop, left_aligned))
    return columns


def description_notes(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Yield what the descriptions of recordings mean for an evaluation, one or more sentences each.

    Parameters
    ----------
    all_facts : sequence of dict
        One description per recording.

    Yields
    ------
    str
        Next note.
    """
    yield from _model_sentences(all_facts)
    yield from _length_sentences(all_facts)
    yield from _largest_result_sentences(all_facts)
    yield from _image_sentences(all_facts)
    yield from _need_sentences(all_facts)
    yield from _compaction_sentences(all_facts)
    yield from _fault_sentences(all_facts)
    yield from _bill_sentences(all_facts)
    yield from _skipped_row_sentences(all_facts)
    yield from map(to_sentence, suspect_warnings(all_facts))
    yield from _counting_sentences(all_facts)


def _image_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    images = sum(facts["images"] for facts in all_facts)
    if images:
        tokens = sum(facts["image_tokens"] for facts in all_facts)
        whole = sum(facts["tokens"] for facts in all_facts)
        share = f"{tokens / whole:.0%}".replace("%", " %") if whole else "0 %"
        said = f"{pluralize(images, 'image')} with {tokens:,} tokens, {share} of all tokens"
        yield f"Messages contain {said}; the strategy recent_images leaves out older ones."


def rows_by_format(all_facts: Sequence[RecordingDescription], files: Counter[str]) -> _Rows:
    """Return the cells of one row per format, most files first, and of a row with the totals.

    Parameters
    ----------
    all_facts : sequence of dict
        One description per recording.
    files : Counter of str
        Number of files by format.

    Returns
    -------
    tuple of (list of dict, list of tuple)
        Cells of each row by heading, and the lines to draw, as in ``Table.rows``.
    """
    groups = group_by_format(all_facts)
    names = sorted(groups, key=lambda name: -files[name])
    lines = [_format_cells(name, groups[name], files[name]) for name in names]
    lines.append(_format_cells("all", all_facts, sum(files[name] for name in groups)))
    return lines, [(i, "bold" if i == len(groups) else "") for i in range(len(lines))]


def _format_cells(name: str, some: Sequence[RecordingDescription], files: int) -> dict[str, str]:
    cells = _row_cells(name, some)
    del cells["recording"], cells["format"]
    return {"format": name, "files": f"{files:,}", "recordings": f"{len(some):,}"} | cells


def rows_by_recording(
    all_facts: Sequence[RecordingDescription], show_all: bool, hint: str = ""
) -> _Rows:
    """Return the cells of one row per recording or group of recordings, and of the totals.

    Parameters
    ----------
    all_facts : sequence of dict
        One description per recording.
    show_all : bool
        Show one row per recording, even if there are many.
    hint : str, default ""
        Words after the number of rows that are left out.

    Returns
    -------
    tuple of (list of dict, list of tuple)
        Cells of each row by heading, and the lines to draw, as in ``Table.rows``.
    """
    groups = _group_facts(all_facts, show_all)
    shown = list(groups.items())[: None if show_all else MAX_ROWS]
    lines = [_row_cells(name, some) for name, some in shown]
    rows: list[tuple[int | str, str]] = [(i, "") for i, _ in enumerate(lines)]
    if left := len(groups) - len(shown):
        rows.append((f"… {left:,} more{hint}", "dim"))
    if len(groups) > 1:
        rows.append((len(lines), "bold"))
        lines.append(_row_cells(f"all {len(all_facts):,}", all_facts))
    return lines, rows


def group_by_format(
    all_facts: Sequence[RecordingDescription],
) -> dict[str, list[RecordingDescription]]:
    """Group descriptions by the format of their recordings.

    Parameters
    ----------
    all_facts : sequence of dict
        One description per recording.

    Returns
    -------
    dict of str to list of dict
        Descriptions by name of the format.
    """
    groups: dict[str, list[RecordingDescription]] = {}
    for facts in all_facts:
        groups.setdefault(str(facts["format"]), []).append(facts)
    return groups


def _group_facts(
    all_facts: Sequence[RecordingDescription], show_all: bool
) -> dict[str, list[RecordingDescription]]:
    """Group the descriptions by recording. If there are more than 30, use larger groups.

    The larger groups are clusters, folders or files: the first of these that gives 2 to 30 groups,
    otherwise files. ``show_all`` always groups by recording.
    """
    if show_all or len(all_facts) <= MAX_ROWS:
        return {facts["recording"]: [facts] for facts in all_facts}
    folders = [os.path.dirname(os.path.abspath(facts["source"])) for facts in all_facts]
    above = os.path.commonpath(folders)
    keys: tuple[Callable[[RecordingDescription], str], ...] = (
        lambda facts: str(facts["cluster"]),
        lambda facts: os.path.join(os.path.relpath(os.path.dirname(facts["source"]), above), ""),
        lambda facts: os.path.relpath(facts["source"], above),
    )
    for key in keys:
        groups: dict[str, list[RecordingDescription]] = {}
        for facts in all_facts:
            groups.setdefault(key(facts), []).append(facts)
        if 1 < len(groups) <= MAX_ROWS:
            break
    return groups


def _row_cells(name: str, some: Sequence[RecordingDescription]) -> dict[str, str]:
    def total(key: str) -> int:
        return sum(facts[key] for facts in some)

    formats = sorted({str(facts["format"]) for facts in some})
    of = f" ({len(some):,})" if len(some) > 1 and not name.startswith("all ") else ""
    invalid = sum(not facts["valid"] for facts in some)
    bills = [facts["billed"] for facts in some if facts["billed"]]
    return {
        "recording": one_line(name) + of,
        "format": formats[0] if len(formats) == 1 else pluralize(len(formats), "format"),
        "msgs": f"{total('messages'):,}",
        "reqs": f"{total('requests'):,}",
        "tokens": format_count(total("tokens")),
        "tool\n%": format_percent(total("tool_tokens") / max(total("tokens"), 1)),
        "max\nresult": format_count(max(facts["largest_result"] for facts in some)),
        "reasoning": format_count(total("reasoning_tokens")),
        "needs\n(far)": f"{format_count(total('needs'))} ({format_count(total('far_needs'))})",
        "compactions": str(sum(len(facts["compactions"]) for facts in some)),
        "billed\n(counted)": _largest_bill(bills) if bills else "–",
        "count\nerror %": f"{100 * median(bill['error'] for bill in bills):.1f}" if bills else "–",
        "invalid": ("yes" if invalid else "") if len(some) == 1 else str(invalid),
    }


def _largest_bill(bills: Sequence[RecordingDescription]) -> str:
    bill = max(bills, key=itemgetter("billed"))
    return f"{format_count(bill['billed'])} ({format_count(bill['counted'])})"


def _model_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    models = Counter(facts["model"] for facts in all_facts if facts["model"])
    if models:
        yield f"Model: {_list_most(models, 5, '{0} ({1:,})')}."


def _list_most(counts: Counter[str], most: int, form: str) -> str:
    """Join the most frequent strings with commas; ``form`` formats each string and its count."""
    listed = [form.format(one_line(text), count) for text, count in counts.most_common(most)]
    return ", ".join([*listed, "…"] if len(counts) > most else listed)


def _length_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Yield sentences on the longest requests and on how many recordings exceed common limits."""
    import numpy as np

    lengths = np.array([facts["longest_request"] for facts in all_facts if facts["requests"]])
    if not len(lengths):
        yield "No recording contains a model call, so there is nothing to replay."
        return
    low, middle, high, top = np.percentile(lengths, [25, 50, 75, 100])
    yield (
        f"Longest request of each recording: median {middle:,.0f} tokens, quartiles {low:,.0f} and "
        f"{high:,.0f}, maximum {top:,.0f}."
    )
    bites = [(limit, int((lengths > limit).sum())) for limit in _COMMON_LIMITS]
    listed = [f"above {limit:,} tokens: {count:,}" for limit, count in bites if count]
    if listed:
        yield f"Recordings (of {len(lengths):,}) with a request {'; '.join(listed)}."
    else:
        yield (
            f"No request exceeds {_COMMON_LIMITS[0]:,} tokens; use limits that are shares of each "
            "recording, such as --limit 0.25 --limit 0.5."
        )


def _largest_result_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Yield a sentence that lists the largest tool results with their tools and positions."""
    results = [(result, facts) for facts in all_facts for result in facts["largest"]]
    results.sort(key=lambda pair: pair[0]["tokens"], reverse=True)
    listed = [
        f"{format_count(result['tokens'])} from {one_line(result['tool'])} "
        f"({one_line(facts['recording'])}, message {result['message']})"
        for result, facts in results[:3]
    ]
    if listed:
        yield f"Largest tool results, in tokens: {'; '.join(listed)}."


def _need_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    far = sum(facts["far_needs"] for facts in all_facts)
    if not any(facts["requests"] for facts in all_facts):
        return
    if not far:
        yield f"There are no far needs, so {HEADLINE_LABEL} cannot be measured."
    elif far < 100:
        there = f"There {'is' if far == 1 else 'are'} only {pluralize(far, 'far need')}"
        yield f"{there}, so the intervals of {HEADLINE_LABEL} will be wide."
    if probes := sum(facts["probes"] for facts in all_facts):
        yield f"The recordings contain {pluralize(probes, 'probe')} (questions about a recording)."


def _compaction_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    every = [c for facts in all_facts for c in facts["compactions"]]
    if not every:
        return
    kinds = Counter("cleared results" if c["kind"] == "clear" else "summarised" for c in every)
    said = " and ".join(f"{kind} {pluralize(count, 'time')}" for kind, count in kinds.most_common())
    sizes = [c["tokens"] for c in every if c["tokens"]]
    ends = dict.fromkeys(format_count(size) for size in (min(sizes), max(sizes))) if sizes else ()
    at = f", at {'–'.join(ends)} tokens" if ends else ""
    yield f"The recorded product {said}{at}; use -s recorded to evaluate these compactions."


def _fault_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    if broken := [facts["faults"] for facts in all_facts if facts["faults"]]:
        rules = sum(map(Counter, broken), Counter[str]())
        listed = [f"{_rule_label(rule)} ({count:,})" for rule, count in rules.most_common()]
        of = pluralize(len(broken), "recording")
        yield f"A provider would reject {of} as recorded; violated rules: {', '.join(listed)}."


def _rule_label(name: str) -> str:
    """Return the name of a rule for requests, with the provider if only one provider enforces it."""
    providers = RULES[name].providers
    return name if len(providers) > 1 else f"{name}, {next(iter(providers)).title()} only"


def _bill_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Yield sentences on differences between billed and counted tokens, with probable causes."""
    billed = [(facts, facts["billed"]) for facts in all_facts if facts["billed"]]
    bills = [(facts, bill) for facts, bill in billed if not facts["strategy"]]
    if managed := len(billed) - len(bills):
        yield (
            f"{pluralize(managed, 'recording')} ran with a context strategy: the bills are for the "
            "tokens that were sent, but the counts are for the whole conversation."
        )
    if not bills:
        return
    error = median(bill["error"] for _, bill in bills)
    yield (
        f"{pluralize(len(bills), 'recording')} with billed token counts: ctxlab's counts differ from "
        f"the bills by {error:.1%} (median of the recordings' medians)."
    )
    after = [bill["error_after"] for _, bill in bills if bill["error_after"] is not None]
    if after:
        of = pluralize(len(after), "recording")
        yield (
            f"Directly after recorded compactions, the counts of the recorded requests differ from the "
            f"bills by {median(after):.1%} (median of {of})."
        )
    fixed = median(bill["fixed"] for _, bill in bills)
    if fixed > 1000:
        missing = format_count(fixed)
        yield (
            f"About {missing} tokens of each billed request are not in the logs (probably the system "
            f"prompt and tool definitions); --reserve {missing} keeps room for them."
        )
    changes = sorted(
        (tokens, place, facts["recording"], cause)
        for facts, bill in bills
        for (place, tokens), cause in zip(bill["unsaid"], bill["causes"], strict=True)
    )
    for cause, form in _CHANGE_SENTENCES.items():
        found = [each[:3] for each in changes if each[3] == cause]
        if found:
            tokens, place, recording = found[0]
            others = f", and {pluralize(len(found) - 1, 'more time')}" if len(found) > 1 else ""
            where = f"before message {place} of {one_line(recording)}{others}"
            yield form.format(tokens=format_count(-tokens), where=where)


def _skipped_row_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for facts in all_facts:
        # Drop the line numbers that follow a reason, so that equal reasons are counted together.
        reasons.update({why.partition(" (")[0]: n for why, n in facts["skipped"].items()})
    if reasons:
        listed = _list_most(reasons, 8, "{1:,} × {0}")
        yield f"Rows skipped inside files: {listed}."


def _counting_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Yield one sentence per way of counting tokens, naming the models for which it was used."""
    ways: dict[str, dict[str, None]] = {}
    for facts in all_facts:
        way = facts["counted"].replace(facts["counted_as"], "{}", 1)
        ways.setdefault(way, {})[facts["counted_as"]] = None
    for way, models in list(ways.items())[:3]:
        listed = [*models][:_MAX_NAMED_MODELS]
        if more := len(models) - len(listed):
            listed.append(pluralize(more, "more model"))
        said = way.replace("{}", one_line(" and ".join(listed)), 1)
        yield f"{said[0].upper()}{said[1:]}."
    if len(ways) > 3:
        yield f"{pluralize(len(ways) - 3, 'more way')} of counting tokens; --json lists them."


def suspect_warnings(recordings: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """Yield warnings about recordings that were probably not read completely.

    Parameters
    ----------
    recordings : sequence of mapping
        One mapping per recording, from ``Results.recordings`` or from
        ``iter_descriptions``.

    Yields
    ------
    str
        One warning for each of the first three such recordings, then the number of the remaining ones.
    """
    warned = [each for each in recordings if each.get("warning")]
    for each in warned[:3]:
        yield (
            f"warning: {one_line(each['recording'])} was probably not read in full: "
            f"{one_line(each['warning'])}; name its format with --format, or open an issue"
        )
    if len(warned) > 3:
        yield f"warning: {len(warned) - 3:,} more recordings were probably not read in full"


def descriptions_html(found: Descriptions) -> str:
    """Return descriptions of recordings as HTML: the table and notes of the command line.

    Parameters
    ----------
    found : Descriptions
        Descriptions to show.

    Returns
    -------
    str
        HTML of at most 50 kB, whatever the number of recordings. All text is escaped.
    """
    from ctxlab.evaluation.html import paragraph, table_html, wrap_html, wrap_with_frame

    if not found:
        return wrap_html(paragraph("There are no recordings."))
    lines, rows = rows_by_recording(found, show_all=False)
    formats = {str(facts["format"]) for facts in found}
    columns = description_columns(lines, len(formats))
    drawn = [(what, style == "dim") for what, style in rows]
    parts = [
        table_html(columns, drawn),
        *map(paragraph, description_notes(found)),
        paragraph(legend_of(columns), is_note=True),
    ]
    # Paths of files are left out, because notebooks are shared.
    return wrap_with_frame(parts, found.recordings.drop(columns="source"))
