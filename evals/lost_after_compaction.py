"""Explain which needs recorded compactions lost: ``python evals/lost_after_compaction.py PATH…``.

The recordings are replayed as recorded. A need counts if every earlier message that mentions it comes
before the last compaction, and the agent uses it after that compaction. If the need is neither held
nor named nor a pointer, it is lost, and one cause is named: the first in ``CAUSES`` that applies.
Causes are assigned after the fact. They say what the request contains, not what the agent did.

Three tables are printed as Markdown: all these needs, those of them that the headline counts (far
needs that the user or a tool mentioned first), and how often random names meet the two causes that
compare texts. The tables have one column per product. Needs after an encrypted summary have a column
of their own, because a log does not show what such a summary kept. Sessions that occur twice are
counted once.
"""

from __future__ import annotations

import random
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ctxlab.context.context import Context
from ctxlab.context.history import Entry
from ctxlab.evaluation.engine import PreparedRecording, replay_trace
from ctxlab.evaluation.fingerprint import recording_digest
from ctxlab.evaluation.metrics.recall import FAR_TOKENS
from ctxlab.evaluation.references import ORIGINS, NeedIndex
from ctxlab.evaluation.visibility import measure_need_visibility
from ctxlab.formats import load
from ctxlab.messages.entities import Entity, find_entity_offset, folder_and_name
from ctxlab.messages.source_lines import message_segments, searchable_text
from ctxlab.messages.types import Recording
from ctxlab.strategies import parse_strategy
from ctxlab.tokens.model_choice import ModelChoice

_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_MIN_WORD_CHARS = 3
_DRAWS = 20
"random names that are tried per lost need"
_TRIES = 200
"draws after which no more names are tried, because almost all are in view"


class View(NamedTuple):
    """Text of a request, and what was read from it."""

    text: str
    words: frozenset[str]
    "words in lower case"
    names: frozenset[str]
    "last parts of the paths and dotted names, without file extension"


class Case(NamedTuple):
    """A need that was mentioned only before a compaction and used after it."""

    column: str
    "product, and whether the last summary is encrypted"
    tier: str
    cause: str
    "cause of a loss; empty if the need is not lost"
    headline: bool
    "True if the need is far and the user or a tool mentioned it first"
    chance: Mapping[str, Sequence[tuple[int, int]]]
    """For a loss whose name the user or a tool mentioned first, if the summary can be read: for each
    cause that compares texts, hits and trials of the lost name, of names of the same recording that
    are first mentioned later, and of names of other recordings"""


class Loss(NamedTuple):
    """A lost need, with what is known of the request that uses it."""

    entity: Entity
    origin: str
    encrypted: bool
    view: View


def _words(text: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORDS.findall(text))


def _last_part(text: str) -> str:
    return re.split(r"[/.:]", re.sub(r"\.[a-z]\w{0,4}$", "", text.strip(".:")))[-1]


def _view(texts: Iterable[str]) -> View:
    text = "\n".join(texts)
    names = (_last_part(word).lower() for word in set(re.findall(r"[\w./@~+:-]+", text)))
    return View(text, _words(text), frozenset(names))


def _has_encrypted_summary(loss: Loss) -> bool:
    return loss.encrypted


def _is_agents_own(loss: Loss) -> bool:
    return loss.origin == "assistant"


def _is_path_with_known_end(loss: Loss) -> bool:
    if loss.entity.kind != "path":
        return False
    short = folder_and_name(loss.entity.text)
    if _last_part(loss.entity.text).lower() in loss.view.names:
        return True
    return short is not None and find_entity_offset(loss.view.text, short) >= 0


def _is_made_of_known_words(loss: Loss) -> bool:
    words = [word for word in _words(loss.entity.text) if len(word) >= _MIN_WORD_CHARS]
    return bool(words) and loss.view.words.issuperset(words)


def _is_short_number(loss: Loss) -> bool:
    return loss.entity.kind == "number" and bool(re.fullmatch(r"\d{4}", loss.entity.text))


END, WORDS = "the end of the path is in view", "all its words are in view, but not together"
CAUSES: dict[str, Callable[[Loss], bool]] = {
    "the summary is encrypted, so that the log does not show what it kept": _has_encrypted_summary,
    "the agent itself wrote it first, and could write it again": _is_agents_own,
    END: _is_path_with_known_end,
    WORDS: _is_made_of_known_words,
    "an integer of four digits, mostly an offset, a limit or a time": _is_short_number,
}
"""Causes of a loss, in the order in which they are tried."""

UNEXPLAINED = "unexplained"

Names = Sequence[tuple[int, Entity]]
"""Needed names that the user or a tool mentioned first, each with the position of this mention."""


class Study:
    """A recording with the needs that are examined.

    Parameters
    ----------
    recording : Recording
        Recording with compactions.
    """

    def __init__(self, recording: Recording) -> None:
        self.prepared = PreparedRecording(recording, ModelChoice(None).counter_for(recording))
        needs, starts = self.prepared.needs, sorted(each.position for each in recording.compactions)
        found = {i: _compaction(needs, i, starts) for i in range(len(needs))}
        self.found = {i: place for i, place in found.items() if place is not None}
        "positions of the last compaction of the needs to examine, by index of the need"

    def names(self) -> Names:
        """Return the needed names of the recording, those of the agent left out."""
        needs, history = self.prepared.needs, self.prepared.history
        first = needs.mentions[needs.mention_offsets[: needs.needed_entities]].tolist()
        each = zip(first, needs.entities, strict=False)
        return [(at, name) for at, name in each if history[at].role in ("user", "tool")]

    def cases(self, others: Names = ()) -> Iterator[Case]:
        """Yield a case for each need to examine.

        Parameters
        ----------
        others : sequence of (int, Entity)
            Names of other recordings, to measure chance.

        Yields
        ------
        Case
            Product, tier and cause of the need.
        """
        prepared, needs, own = self.prepared, self.prepared.needs, self.names()
        hidden = {c.position: c.hidden_tokens > 0 for c in prepared.recording.compactions}
        requests = {int(needs.request[i]) for i in self.found}
        draw = random.Random(0)

        def entries(sent: Context) -> Sequence[Entry]:
            return tuple(sent.entries) if sent.request_index in requests else ()

        budget = prepared.make_budget(2 * prepared.longest_request_tokens + 1_000_000)
        trace = replay_trace(prepared, parse_strategy("recorded"), budget, {"sent": entries})
        shown = measure_need_visibility(needs, [trace])
        views: dict[int, View] = {}
        for i, place in self.found.items():
            tiers = {"held": shown.held, "named": shown.in_view, "pointer": shown.fetchable}
            tier = next((name for name, state in tiers.items() if state[0, i]), "lost")
            cause, chance = "", dict[str, list[tuple[int, int]]]()
            origin = ORIGINS[needs.origin[i]]
            if tier == "lost":
                if (request := int(needs.request[i])) not in views:
                    sent = trace.observations["sent"][request]
                    views[request] = _view(
                        searchable_text(message_segments(e.message)) for e in sent
                    )
                loss = Loss(needs.get_need(i).entity, origin, hidden[place], views[request])
                cause = next((name for name, test in CAUSES.items() if test(loss)), UNEXPLAINED)
                if not loss.encrypted and origin != "assistant":
                    here = needs.request_positions[request]
                    later = [(at, name) for at, name in own if at > here]
                    drawn = [_draw(needs, loss, pool, draw) for pool in (later, others)]
                    chance = {name: _count(CAUSES[name], loss, drawn) for name in (END, WORDS)}
            column = f"{prepared.recording.format}{', encrypted' if hidden[place] else ''}"
            far = origin != "assistant" and int(needs.gap_tokens[i]) > FAR_TOKENS
            yield Case(column, tier, cause, far, chance)


def _compaction(needs: NeedIndex, i: int, starts: Sequence[int]) -> int | None:
    """Return the position of the last compaction before a need, if all mentions precede it."""
    before = bisect_right(starts, needs.request_positions[needs.request[i]])
    last = needs.mentions[needs.last_mention_row[i]]
    return starts[before - 1] if before and last < starts[before - 1] else None


def _draw(needs: NeedIndex, loss: Loss, pool: Names, draw: random.Random) -> list[Loss]:
    """Draw names of the same kind that the request does not contain."""
    same = [name for _, name in pool if name.kind == loss.entity.kind]
    found: list[Loss] = []
    for _ in range(_TRIES if same else 0):
        name = draw.choice(same)
        if needs.find_offset(name, loss.view.text) < 0:
            found.append(loss._replace(entity=name))
            if len(found) == _DRAWS:
                break
    return found


def _count(
    test: Callable[[Loss], bool], loss: Loss, drawn: Sequence[Sequence[Loss]]
) -> list[tuple[int, int]]:
    """Count hits and trials of a test. A cause that is only about paths is tried only with paths."""
    if test is _is_path_with_known_end and loss.entity.kind != "path":
        return []
    return [(sum(map(test, each)), len(each)) for each in ([loss], *drawn)]


def examine(recordings: Iterable[Recording]) -> Iterator[Case]:
    """Yield the cases of all recordings with compactions.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings. Those without compactions have no case, and a copy of one counts once.

    Yields
    ------
    Case
        Product, tier and cause of a need.
    """
    known: dict[str, Study] = {}
    copies = 0
    for each in recordings:
        if each.compactions:
            digest = recording_digest(each)
            copies += digest in known
            known.setdefault(digest, Study(each))
    if copies:
        print(f"copies of other recordings, not counted: {copies}", file=sys.stderr)
    for study in known.values():
        others = [name for other in known.values() if other is not study for name in other.names()]
        yield from study.cases(others)


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
    columns = sorted({case.column for case in cases})
    tiers = Counter((case.column, case.tier) for case in cases)
    causes = Counter((case.column, case.cause) for case in cases if case.cause)
    totals = Counter(case.column for case in cases)
    lost = Counter({column: tiers[column, "lost"] for column in columns})

    def line(
        label: str, found: Mapping[tuple[str, str], int], key: str, of: Mapping[str, int]
    ) -> str:
        cells = ((found[column, key], of[column]) for column in columns)
        return _row(label, (f"{n:,} ({n / total:.0%})" if total else "–" for n, total in cells))

    rows = [_row("", columns), f"|{' --- |' * (len(columns) + 1)}"]
    rows += [line(tier, tiers, tier, totals) for tier in ("held", "named", "pointer", "lost")]
    rows += [line(f"lost: {cause}", causes, cause, lost) for cause in (*CAUSES, UNEXPLAINED)]
    return "\n".join(rows)


def render_chance(cases: Iterable[Case]) -> str:
    """Return a Markdown table of how often lost names and random names meet a cause.

    Parameters
    ----------
    cases : iterable of Case
        All cases.

    Returns
    -------
    str
        Table with percentages, and numbers of hits and trials.
    """
    found = [case.chance for case in cases if case.chance]
    heads = ("lost name", "same recording, mentioned only later", "another recording")
    rows = [_row("cause", heads), f"|{' --- |' * 4}"]
    for cause in (END, WORDS):
        groups = zip(*(each[cause] for each in found if each[cause]), strict=True)
        sums = [[sum(part) for part in zip(*group, strict=True)] for group in groups]
        shares = (f"{n / of:.0%} ({n:,} of {of:,})" if of else "–" for n, of in sums)
        rows.append(_row(cause, shares))
    return "\n".join(rows)


def _row(label: str, cells: Iterable[str]) -> str:
    return f"| {label} | {' | '.join(cells)} |"


def main(paths: Sequence[str]) -> None:
    """Print the tables of all recordings in the paths."""
    if not paths:
        sys.exit(__doc__)
    found = list(examine(each for path in paths for each in load(path, on_error="skip")))
    print(render_table(found), "Only needs that the headline counts:", sep="\n\n", end="\n\n")
    print(render_table(case for case in found if case.headline), end="\n\n")
    print(render_chance(found))


if __name__ == "__main__":
    main(sys.argv[1:])
