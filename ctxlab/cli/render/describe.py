"""What was found in recordings is a table and, below it, what a reader should take from it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.output import one_line
from ctxlab.cli.render.format import (
    fit_columns,
    format_count,
    format_percent,
    make_table,
    render_to_text,
)
from ctxlab.evaluation.describe import RecordingDescription
from ctxlab.messages.validation import RULES

__all__ = ["description_text"]

_MAX_ROWS = 30
_HIDE_WHEN_EMPTY = ("reasoning", "compactions", "billed\n(counted)", "count\nerror %", "invalid")
"columns that are shown where they say something"
_DROP_ORDER = (
    *(
        "format",
        "reasoning",
        "compactions",
        "max\nresult",
        "count\nerror %",
        "invalid",
        "tool\n%",
        "billed\n(counted)",
    ),
    *("needs\n(far)", "reqs"),
)
"columns that a narrow terminal does without, what is missed least first"

_LEGEND = {
    "reqs": "reqs: model calls",
    "tool\n%": "tool %: share of tokens in tool results",
    "max\nresult": "max result: tokens of the largest",
    "reasoning": "reasoning: tokens of hidden reasoning, in no other figure",
    "needs\n(far)": "needs: uses of what was said before, far if over 4,000 tokens before",
    "compactions": "compactions: by the product itself",
    "billed\n(counted)": "billed (counted): tokens of the largest request by the provider's own count, "
    "and as they are counted here",
    "count\nerror %": "count error: median difference of a request's count from its bill",
    "invalid": "invalid: a provider would refuse it as it stands",
}
_COMMON_LIMITS = (4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 1_000_000)


def description_text(all_facts: Sequence[RecordingDescription], show_all: bool) -> str:
    """The table of ``ctxlab describe`` with its legend and hints; ``show_all``: a line a recording."""
    from rich.text import Text

    if not all_facts:
        return "No recordings."
    groups = _group_facts(all_facts, show_all)
    shown = list(groups.items())[: None if show_all else _MAX_ROWS]
    lines = [_row_cells(name, some) for name, some in shown]
    if len(groups) > 1:
        lines.append(_row_cells(f"all {len(all_facts):,}", all_facts))
    # A column that says the same of all is left out, and what it says stands below.
    kept = [
        h
        for h in lines[-1]
        if not (h in _HIDE_WHEN_EMPTY and {c[h] for c in lines} <= {"0", "", "–"})
    ]
    formats = {str(facts["format"]) for facts in all_facts}
    kept = [head for head in kept if head != "format" or len(formats) > 1]
    cells_by_head = {head: [line[head] for line in lines] for head in kept}
    kept = fit_columns(cells_by_head, _DROP_ORDER)
    narrow = ", ".join(head.replace("\n", " ") for head in cells_by_head if head not in kept)
    rows = [([line[head] for head in kept], "") for line in lines]
    if len(groups) > 1:
        rows[-1] = (rows[-1][0], "bold")
    if len(shown) < len(groups):
        rows.insert(-1, ([f"… {len(groups) - len(shown):,} more (--all)"], "dim"))
    left = {n for n, head in enumerate(kept) if head in ("recording", "format")}
    said = [f"{'; '.join(_LEGEND[head] for head in kept if head in _LEGEND)}.".capitalize()]
    said += [f"Too narrow here for {narrow}; --json holds them."] if narrow else []
    said += [] if "format" in kept else [f"Format: {', '.join(sorted(formats))}."]
    for part in (
        _model_sentences,
        _length_sentences,
        _largest_result_sentences,
        _need_sentences,
        _compaction_sentences,
        _fault_sentences,
        _bill_sentences,
        _skipped_row_sentences,
        _warning_sentences,
        _counting_sentences,
    ):
        said += part(all_facts)
    return render_to_text(make_table(kept, rows, left), Text(), *map(Text, said))


def _group_facts(
    all_facts: Sequence[RecordingDescription], show_all: bool
) -> dict[str, list[RecordingDescription]]:
    """A line each; where that is too many, one a cluster, else a folder, else a file."""
    if show_all or len(all_facts) <= _MAX_ROWS:
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
        if 1 < len(groups) <= _MAX_ROWS:
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
        listed = [f"{one_line(name)} ({count:,})" for name, count in models.most_common(5)]
        more = ["…"] if len(models) > 5 else []
        yield f"Model: {', '.join(listed + more)}."


def _length_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Which limits would bite."""
    import numpy as np

    lengths = np.array([facts["longest_request"] for facts in all_facts if facts["requests"]])
    if not len(lengths):
        yield "No recording holds a model call, so there is nothing to replay."
        return
    low, middle, high, top = np.percentile(lengths, [25, 50, 75, 100])
    yield (
        f"The longest request of a recording: median {middle:,.0f} tokens, half of them between "
        f"{low:,.0f} and {high:,.0f}, at most {top:,.0f}."
    )
    bites = [(limit, int((lengths > limit).sum())) for limit in _COMMON_LIMITS]
    listed = [f"{limit:,} in {count:,}" for limit, count in bites if count]
    if listed:
        yield f"A limit bites, of {len(lengths):,} recordings: {', '.join(listed)}."
    else:
        yield f"No limit of {_COMMON_LIMITS[0]:,} tokens or more bites: try --limit 0.25, 0.5."


def _largest_result_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """The tool results that fill a window first, and the tools that they come from."""
    results = [(result, facts) for facts in all_facts for result in facts["largest"]]
    results.sort(key=lambda pair: pair[0]["tokens"], reverse=True)
    listed = [
        f"{format_count(result['tokens'])} {one_line(result['tool'])} "
        f"({one_line(facts['recording'])}, message {result['message']})"
        for result, facts in results[:3]
    ]
    if listed:
        yield f"Largest tool results: {'; '.join(listed)}."


def _need_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    far = sum(facts["far_needs"] for facts in all_facts)
    if not any(facts["requests"] for facts in all_facts):
        return
    if not far:
        yield "Nothing that is used was last said far before: far recall will say nothing here."
    elif far < 100:
        yield f"Only {far} far needs: intervals of far recall will be wide."
    if probes := sum(facts["probes"] for facts in all_facts):
        yield f"{probes:,} questions with their evidence are recorded as probes."


def _compaction_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    every = [c for facts in all_facts for c in facts["compactions"]]
    if not every:
        return
    kinds = Counter("cleared results" if c["kind"] == "clear" else "summarised" for c in every)
    said = " and ".join(f"{kind} {pluralize(count, 'time')}" for kind, count in kinds.most_common())
    sizes = [c["tokens"] for c in every if c["tokens"]]
    ends = dict.fromkeys(format_count(size) for size in (min(sizes), max(sizes))) if sizes else ()
    at = f", at {'–'.join(ends)} tokens" if ends else ""
    yield f"The product itself {said}{at}: compare what it did with -s recorded."


def _fault_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    broken = [facts for facts in all_facts if facts["faults"]]
    if broken:
        rules: Counter[str] = Counter()
        for facts in broken:
            rules.update(facts["faults"])
        listed = ", ".join(
            f"{_rule_label(rule)} ({count:,})" for rule, count in rules.most_common()
        )
        yield (
            f"{pluralize(len(broken), 'recording')} as recorded would be refused, for breaking the "
            f"rule: {listed}."
        )


def _rule_label(name: str) -> str:
    """A rule of ``validity``, and who insists on it where not all do."""
    providers = RULES[name].providers
    return name if len(providers) > 1 else f"{name}, {next(iter(providers)).title()}'s alone"


def _bill_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """How far counts and bills are apart, and what that says of the log."""
    billed = [(facts, facts["billed"]) for facts in all_facts if facts["billed"]]
    bills = [(facts, bill) for facts, bill in billed if not facts["strategy"]]
    if managed := len(billed) - len(bills):
        yield (
            f"{pluralize(managed, 'recording')} had a context strategy in force: the bills are of what "
            "it sent, the counts of everything."
        )
    if not bills:
        return
    error = median(bill["error"] for _, bill in bills)
    yield (
        f"{pluralize(len(bills), 'recording')} with the provider's usage: counts are off by "
        f"{error:.1%} of the bill (median of the recordings' medians)."
    )
    fixed = median(bill["fixed"] for _, bill in bills)
    if fixed > 1000:
        tokens = format_count(fixed)
        yield (
            f"About {tokens} tokens of each billed request are in no log (system prompt, tool "
            f"definitions): --reserve {tokens} keeps room for them."
        )
    unsaid: list[tuple[Any, ...]] = [
        (tokens, place, facts["recording"])
        for facts, bill in bills
        for place, tokens in bill["unsaid"]
    ]
    falls = sorted(each for each in unsaid if each[0] < 0)
    if falls:
        tokens, place, recording = falls[0]
        others = f", and {pluralize(len(falls) - 1, 'time')} more" if len(falls) > 1 else ""
        yield (
            f"Something was cleared without a record: the bill falls by {format_count(-tokens)} before "
            f"message {place} of {one_line(recording)}{others}."
        )


def _skipped_row_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for facts in all_facts:
        # The numbers of the lines stand behind a reason; here it counts once.
        reasons.update({why.partition(" (")[0]: n for why, n in facts["skipped"].items()})
    if reasons:
        listed = [f"{count:,} × {one_line(reason)}" for reason, count in reasons.most_common(8)]
        more = ["…"] if len(reasons) > 8 else []
        yield f"Left out inside files: {', '.join(listed + more)}."


def _warning_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """Recordings whose tool calls were probably not read."""
    warned = [facts for facts in all_facts if facts.get("warning")]
    for facts in warned[:3]:
        yield (
            f"Warning: {one_line(facts['recording'])} was probably not read in full: "
            f"{one_line(facts['warning'])}. Name its format with --format, or open an issue."
        )
    if len(warned) > 3:
        yield f"Warning: so were {len(warned) - 3:,} more recordings; --json names them."


def _counting_sentences(all_facts: Sequence[RecordingDescription]) -> Iterator[str]:
    """How tokens are counted, each way said once with the models that it is for."""
    ways: dict[str, dict[str, None]] = {}
    for facts in all_facts:
        way = facts["counted"].replace(facts["counted_as"], "{}", 1)
        ways.setdefault(way, {})[facts["counted_as"]] = None
    for way, models in list(ways.items())[:3]:
        said = way.replace("{}", one_line(" and ".join(models)), 1)
        yield f"{said[0].upper()}{said[1:]}."
    if len(ways) > 3:
        yield f"Other ways of counting: {len(ways) - 3}; --json says which."
