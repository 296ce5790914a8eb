"""Explain which needs recorded compactions lost: ``python evals/lost_after_compaction.py PATH…``.

The recordings are replayed as recorded. A need counts if every earlier message that mentions it comes
before the last compaction, and the agent uses it after that compaction. If the request does not show
the need and no stub points to it, it is lost, and one cause is named: the first in ``CAUSES`` that
applies. The table is printed as Markdown, with one column per product.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.references import Need, NeedIndex
from ctxlab.evaluation.source_lines import message_segments, searchable_text
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.formats import load
from ctxlab.messages.types import Compaction, Recording
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.model_choice import ModelChoice

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MIN_WORD_CHARS = 3


class Case(NamedTuple):
    """A need that was mentioned only before a compaction and used after it."""

    product: str
    tier: str
    cause: str
    "cause of a loss; empty if the need is not lost"


class Lost(NamedTuple):
    """A lost need, with what is known of the request that uses it."""

    need: Need
    compaction: Compaction
    similar: bool
    words: frozenset[str]
    "words of the request in lower case"
    names: frozenset[str]
    "last parts of the paths and dotted names in the request, without file extension"


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text))


def _last_part(text: str) -> str:
    return re.split(r"[/.:]", re.sub(r"\.[a-z]\w{0,4}$", "", text.strip(".:")))[-1]


def _read_text(texts: Iterable[str]) -> tuple[frozenset[str], frozenset[str]]:
    """Return ``Lost.words`` and ``Lost.names`` of a request."""
    text = "\n".join(texts)
    names = (_last_part(word).lower() for word in set(re.findall(r"[\w./@~+:-]+", text)))
    return _words(text), frozenset(names)


def _has_encrypted_summary(lost: Lost) -> bool:
    return lost.compaction.hidden_tokens > 0


def _is_agents_own(lost: Lost) -> bool:
    return lost.need.origin_role == "assistant"


def _is_path_with_known_end(lost: Lost) -> bool:
    end = _last_part(lost.need.entity.text).lower()
    return lost.similar or (lost.need.entity.kind == "path" and end in lost.names)


def _is_made_of_known_words(lost: Lost) -> bool:
    words = [word for word in _words(lost.need.entity.text) if len(word) >= _MIN_WORD_CHARS]
    return bool(words) and lost.words.issuperset(words)


def _is_short_number(lost: Lost) -> bool:
    return lost.need.entity.kind == "number" and bool(re.fullmatch(r"\d{4}", lost.need.entity.text))


CAUSES: dict[str, Callable[[Lost], bool]] = {
    "the summary is encrypted, so that the log does not show what it kept": _has_encrypted_summary,
    "the agent itself wrote it first, and could write it again": _is_agents_own,
    "the end of the path is in view": _is_path_with_known_end,
    "all its words are in view, but not together": _is_made_of_known_words,
    "an integer of four digits, mostly an offset, a limit or a time": _is_short_number,
}
"""Causes of a loss, in the order in which they are tried."""

UNEXPLAINED = "unexplained"


def examine(recording: Recording) -> Iterator[Case]:
    """Yield a case for each need that was mentioned only before the last compaction.

    Parameters
    ----------
    recording : Recording
        Recording with compactions.

    Yields
    ------
    Case
        The need's product, tier and cause.
    """
    prepared = PreparedRecording(recording, ModelChoice(None).counter_for(recording))
    needs, starts = prepared.needs, sorted(each.position for each in recording.compactions)
    compactions = {each.position: each for each in recording.compactions}
    found = {i: place for i in range(len(needs)) if (place := _compaction(needs, i, starts))}
    if not found:
        return
    requests = {int(needs.request[i]) for i in found}

    def entries(sent: Context) -> Sequence[Entry]:
        return tuple(sent.entries) if sent.request_index in requests else ()

    budget = prepared.make_budget(2 * prepared.longest_request_tokens + 1_000_000)
    trace = replay_trace(prepared, parse_strategy("recorded"), budget, {"sent": entries})
    shown = measure_need_visibility(needs, [trace])
    texts: dict[int, tuple[frozenset[str], frozenset[str]]] = {}
    for i, place in found.items():
        tiers = {"held": shown.held, "named": shown.in_view, "pointer": shown.fetchable}
        tier = next((name for name, state in tiers.items() if state[0, i]), "lost")
        cause = ""
        if tier == "lost":
            if (request := int(needs.request[i])) not in texts:
                sent = trace.observations["sent"][request]
                texts[request] = _read_text(
                    searchable_text(message_segments(e.message)) for e in sent
                )
            similar = bool(shown.similar[0, i])
            lost = Lost(needs.get_need(i), compactions[place], similar, *texts[request])
            cause = next((name for name, test in CAUSES.items() if test(lost)), UNEXPLAINED)
        yield Case(recording.format or "", tier, cause)


def _compaction(needs: NeedIndex, i: int, starts: Sequence[int]) -> int | None:
    """Return the position of the last compaction before a need, if all mentions precede it."""
    before = bisect_right(starts, needs.request_positions[needs.request[i]])
    last = needs.mentions[needs.last_mention_row[i]]
    return starts[before - 1] if before and last < starts[before - 1] else None


def render_table(cases: Iterable[Case]) -> str:
    """Return a Markdown table of the tiers and causes, with one column per product.

    Parameters
    ----------
    cases : iterable of Case
        All cases.

    Returns
    -------
    str
        Table with numbers and percentages.
    """
    cases = list(cases)
    products = sorted({case.product for case in cases})
    counts = Counter((case.product, case.tier) for case in cases)
    causes = Counter((case.product, case.cause) for case in cases if case.cause)
    totals = Counter(case.product for case in cases)

    def line(label: str, found: Counter[tuple[str, str]], key: str, of: Counter[str]) -> str:
        cells = [(found[product, key], of[product]) for product in products]
        cells.append((sum(n for n, _ in cells), sum(n for _, n in cells)))
        shares = (f"{n:,} ({n / total:.0%})" if total else "–" for n, total in cells)
        return f"| {label} | {' | '.join(shares)} |"

    lost = Counter({product: counts[product, "lost"] for product in products})
    head = ["", *products, "all"]
    rows = [f"| {' | '.join(head)} |", f"|{' --- |' * len(head)}"]
    rows += [line(tier, counts, tier, totals) for tier in ("held", "named", "pointer", "lost")]
    rows += [line(f"lost: {cause}", causes, cause, lost) for cause in (*CAUSES, UNEXPLAINED)]
    return "\n".join(rows)


def main(paths: Sequence[str]) -> None:
    """Print the table of all recordings in the paths."""
    if not paths:
        sys.exit(__doc__)
    recordings = (each for path in paths for each in load(path, on_error="skip"))
    found = [case for each in recordings if each.compactions for case in examine(each)]
    print(render_table(found))


if __name__ == "__main__":
    main(sys.argv[1:])
