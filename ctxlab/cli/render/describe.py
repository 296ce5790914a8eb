"""What was found in recordings is a table and, below it, what a reader should take from it."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from operator import itemgetter
from statistics import median
from typing import Any

from ctxlab._utils.humanize import many
from ctxlab.cli.output import one_line
from ctxlab.cli.render.format import (
    compact,
    drawn,
    fitting,
    percent,
    table,
)
from ctxlab.evaluation.describe import Facts
from ctxlab.messages.validation import RULES

__all__ = ["report"]

_ROWS = 30
_QUIET = ("hidden", "comp", "billed\n(here)", "off\n%", "inval")
"columns that are shown where they say something"
_SPARE = (
    *("format", "hidden", "comp", "max\nresult", "off\n%", "inval", "tool\n%", "billed\n(here)"),
    *("needs\n(far)", "reqs"),
)
"columns that a narrow terminal does without, what is missed least first"

_LEGEND = {
    "reqs": "reqs: model calls",
    "tool\n%": "tool %: share of tokens in tool results",
    "max\nresult": "max result: tokens of the largest",
    "hidden": "hidden: tokens of reasoning, in no other figure",
    "needs\n(far)": "needs: uses of what was said before, far if over 4,000 tokens before",
    "comp": "comp: compactions by the product itself",
    "billed\n(here)": "billed: tokens of the largest request by the provider's own count, and as it "
    "counts here",
    "off\n%": "off: median difference of a request's count from its bill",
    "inval": "inval: a provider would refuse it as it stands",
}
_LIMITS = (4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 200_000, 1_000_000)


def report(found: Sequence[Facts], every: bool) -> str:
    """The table of ``ctxlab describe`` with its legend and hints; ``every``: a line a recording."""
    from rich.text import Text

    if not found:
        return "No recordings."
    groups = _groups(found, every)
    shown = list(groups.items())[: None if every else _ROWS]
    lines = [_cells(name, some) for name, some in shown]
    if len(groups) > 1:
        lines.append(_cells(f"all {len(found):,}", found))
    # A column that says the same of all is left out, and what it says stands below.
    kept = [h for h in lines[-1] if not (h in _QUIET and {c[h] for c in lines} <= {"0", "", "–"})]
    formats = {str(facts["format"]) for facts in found}
    kept = [head for head in kept if head != "format" or len(formats) > 1]
    told = {head: [line[head] for line in lines] for head in kept}
    kept = fitting(told, _SPARE)
    narrow = ", ".join(head.replace("\n", " ") for head in told if head not in kept)
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
        _models,
        _lengths,
        _largest,
        _needs,
        _compactions,
        _faults,
        _bills,
        _skipped,
        _warnings,
        _counted,
    ):
        said += part(found)
    return drawn(table(kept, rows, left), Text(), *map(Text, said))


def _groups(found: Sequence[Facts], every: bool) -> dict[str, list[Facts]]:
    """A line each; where that is too many, one a cluster, else a folder, else a file."""
    if every or len(found) <= _ROWS:
        return {facts["recording"]: [facts] for facts in found}
    folders = [os.path.dirname(os.path.abspath(facts["source"])) for facts in found]
    above = os.path.commonpath(folders)
    keys: tuple[Callable[[Facts], str], ...] = (
        lambda facts: str(facts["cluster"]),
        lambda facts: os.path.join(os.path.relpath(os.path.dirname(facts["source"]), above), ""),
        lambda facts: os.path.relpath(facts["source"], above),
    )
    for key in keys:
        groups: dict[str, list[Facts]] = {}
        for facts in found:
            groups.setdefault(key(facts), []).append(facts)
        if 1 < len(groups) <= _ROWS:
            break
    return groups


def _cells(name: str, some: Sequence[Facts]) -> dict[str, str]:
    def total(key: str) -> int:
        return sum(facts[key] for facts in some)

    formats = sorted({str(facts["format"]) for facts in some})
    of = f" ({len(some):,})" if len(some) > 1 and not name.startswith("all ") else ""
    invalid = sum(not facts["valid"] for facts in some)
    bills = [facts["billed"] for facts in some if facts["billed"]]
    return {
        "recording": one_line(name) + of,
        "format": formats[0] if len(formats) == 1 else many(len(formats), "format"),
        "msgs": f"{total('messages'):,}",
        "reqs": f"{total('requests'):,}",
        "tokens": compact(total("tokens")),
        "tool\n%": percent(total("tool_tokens") / max(total("tokens"), 1)),
        "max\nresult": compact(max(facts["largest_result"] for facts in some)),
        "hidden": compact(total("reasoning_tokens")),
        "needs\n(far)": f"{compact(total('needs'))} ({compact(total('far_needs'))})",
        "comp": str(sum(len(facts["compactions"]) for facts in some)),
        "billed\n(here)": _largest_bill(bills) if bills else "–",
        "off\n%": f"{100 * median(bill['error'] for bill in bills):.1f}" if bills else "–",
        "inval": ("yes" if invalid else "") if len(some) == 1 else str(invalid),
    }


def _largest_bill(bills: Sequence[Facts]) -> str:
    bill = max(bills, key=itemgetter("billed"))
    return f"{compact(bill['billed'])} ({compact(bill['counted'])})"


def _models(found: Sequence[Facts]) -> Iterator[str]:
    models = Counter(facts["model"] for facts in found if facts["model"])
    if models:
        listed = [f"{one_line(name)} ({count:,})" for name, count in models.most_common(5)]
        more = ["…"] if len(models) > 5 else []
        yield f"Model: {', '.join(listed + more)}."


def _lengths(found: Sequence[Facts]) -> Iterator[str]:
    """Which limits would bite."""
    import numpy as np

    lengths = np.array([facts["longest_request"] for facts in found if facts["requests"]])
    if not len(lengths):
        yield "No recording holds a model call, so there is nothing to replay."
        return
    low, middle, high, top = np.percentile(lengths, [25, 50, 75, 100])
    yield (
        f"The longest request of a recording: median {middle:,.0f} tokens, half of them between "
        f"{low:,.0f} and {high:,.0f}, at most {top:,.0f}."
    )
    bites = [(limit, int((lengths > limit).sum())) for limit in _LIMITS]
    listed = [f"{limit:,} in {count:,}" for limit, count in bites if count]
    if listed:
        yield f"A limit bites, of {len(lengths):,} recordings: {', '.join(listed)}."
    else:
        yield f"No limit of {_LIMITS[0]:,} tokens or more bites: try --limit 0.25, 0.5."


def _largest(found: Sequence[Facts]) -> Iterator[str]:
    """The tool results that fill a window first, and the tools that they come from."""
    results = [(result, facts) for facts in found for result in facts["largest"]]
    results.sort(key=lambda pair: pair[0]["tokens"], reverse=True)
    listed = [
        f"{compact(result['tokens'])} {one_line(result['tool'])} "
        f"({one_line(facts['recording'])}, message {result['message']})"
        for result, facts in results[:3]
    ]
    if listed:
        yield f"Largest tool results: {'; '.join(listed)}."


def _needs(found: Sequence[Facts]) -> Iterator[str]:
    far = sum(facts["far_needs"] for facts in found)
    if not any(facts["requests"] for facts in found):
        return
    if not far:
        yield "Nothing that is used was last said far before: far recall will say nothing here."
    elif far < 100:
        yield f"Only {far} far needs: intervals of far recall will be wide."
    if probes := sum(facts["probes"] for facts in found):
        yield f"{probes:,} questions with their evidence are recorded as probes."


def _compactions(found: Sequence[Facts]) -> Iterator[str]:
    every = [c for facts in found for c in facts["compactions"]]
    if not every:
        return
    kinds = Counter("cleared results" if c["kind"] == "clear" else "summarised" for c in every)
    said = " and ".join(f"{kind} {many(count, 'time')}" for kind, count in kinds.most_common())
    sizes = [c["tokens"] for c in every if c["tokens"]]
    ends = dict.fromkeys(compact(size) for size in (min(sizes), max(sizes))) if sizes else ()
    at = f", at {'–'.join(ends)} tokens" if ends else ""
    yield f"The product itself {said}{at}: compare what it did with -s recorded."


def _faults(found: Sequence[Facts]) -> Iterator[str]:
    broken = [facts for facts in found if facts["faults"]]
    if broken:
        rules: Counter[str] = Counter()
        for facts in broken:
            rules.update(facts["faults"])
        listed = ", ".join(f"{_rule(rule)} ({count:,})" for rule, count in rules.most_common())
        yield (
            f"{many(len(broken), 'recording')} as recorded would be refused, for breaking the rule: "
            f"{listed}."
        )


def _rule(name: str) -> str:
    """A rule of ``validity``, and who insists on it where not all do."""
    providers = RULES[name].providers
    return name if len(providers) > 1 else f"{name}, {next(iter(providers)).title()}'s alone"


def _bills(found: Sequence[Facts]) -> Iterator[str]:
    """How far counts and bills are apart, and what that says of the log."""
    billed = [(facts, facts["billed"]) for facts in found if facts["billed"]]
    bills = [(facts, bill) for facts, bill in billed if not facts["strategy"]]
    if managed := len(billed) - len(bills):
        yield (
            f"{many(managed, 'recording')} had a context strategy in force: the bills are of what it "
            "sent, the counts of everything."
        )
    if not bills:
        return
    error = median(bill["error"] for _, bill in bills)
    yield (
        f"{many(len(bills), 'recording')} with the provider's usage: counts are off by "
        f"{error:.1%} of the bill (median of the recordings' medians)."
    )
    fixed = median(bill["fixed"] for _, bill in bills)
    if fixed > 1000:
        yield (
            f"About {compact(fixed)} tokens of each billed request are in no log (system prompt, tool "
            f"definitions): --reserve {compact(fixed)} keeps room for them."
        )
    unsaid: list[tuple[Any, ...]] = [
        (tokens, place, facts["recording"])
        for facts, bill in bills
        for place, tokens in bill["unsaid"]
    ]
    falls = sorted(each for each in unsaid if each[0] < 0)
    if falls:
        tokens, place, recording = falls[0]
        others = f", and {many(len(falls) - 1, 'time')} more" if len(falls) > 1 else ""
        yield (
            f"Something was cleared without a record: the bill falls by {compact(-tokens)} before "
            f"message {place} of {one_line(recording)}{others}."
        )


def _skipped(found: Sequence[Facts]) -> Iterator[str]:
    reasons: Counter[str] = Counter()
    for facts in found:
        # The numbers of the lines stand behind a reason; here it counts once.
        reasons.update({why.partition(" (")[0]: n for why, n in facts["skipped"].items()})
    if reasons:
        listed = [f"{count:,} × {one_line(reason)}" for reason, count in reasons.most_common(8)]
        more = ["…"] if len(reasons) > 8 else []
        yield f"Left out inside files: {', '.join(listed + more)}."


def _warnings(found: Sequence[Facts]) -> Iterator[str]:
    """Recordings whose tool calls were probably not read."""
    warned = [facts for facts in found if facts.get("warning")]
    for facts in warned[:3]:
        yield (
            f"Warning: {one_line(facts['recording'])} was probably not read in full: "
            f"{one_line(facts['warning'])}. Name its format with --format, or open an issue."
        )
    if len(warned) > 3:
        yield f"Warning: so were {len(warned) - 3:,} more recordings; --json names them."


def _counted(found: Sequence[Facts]) -> Iterator[str]:
    """How tokens are counted, each way said once with the models that it is for."""
    ways: dict[str, dict[str, None]] = {}
    for facts in found:
        way = facts["counted"].replace(facts["counted_as"], "{}", 1)
        ways.setdefault(way, {})[facts["counted_as"]] = None
    for way, models in list(ways.items())[:3]:
        said = way.replace("{}", one_line(" and ".join(models)), 1)
        yield f"{said[0].upper()}{said[1:]}."
    if len(ways) > 3:
        yield f"Other ways of counting: {len(ways) - 3}; --json says which."
