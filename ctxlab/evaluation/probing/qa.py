"""Is what a strategy keeps enough to answer from? A model is asked the questions of recordings.

Each question is put at its place, with what every strategy would send there, and the reply is held
against the reference answers: exact match, F1, containment, and the verdict of judges. It is off-policy
as every replay is, and it measures model and context together: compare strategies under one model, and
with ``full``. Answers are kept on disk, so that the same exam once more costs nothing and gives the same
frame.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import (
    ModelUnavailable,
    SpecError,
)
from ctxlab.evaluation.experiment import (
    DEFAULT_LIMITS,
    Choice,
    Grid,
)
from ctxlab.evaluation.metrics.base import Array
from ctxlab.evaluation.metrics.strategy_calls import (
    Asked,
    Tally,
    asked_in,
)
from ctxlab.evaluation.probing.judge import (
    judging,
    read_verdict,
)
from ctxlab.evaluation.probing.qa_plan import (
    REPLY,
    Paper,
    Sheet,
)
from ctxlab.evaluation.probing.qa_results import Exam
from ctxlab.evaluation.probing.qa_scores import (
    columns,
    figures,
    judged,
    marks,
    scores,
)
from ctxlab.evaluation.results import (
    Results,
    Table,
)
from ctxlab.llm.base import (
    Client,
    Reply,
    Request,
    Spending,
)
from ctxlab.llm.batch import (
    Estimate,
    answers_kept,
    ask_each,
    estimate,
    offline,
    paid_client,
)
from ctxlab.messages.types import (
    Recording,
    several,
)

__all__ = ["CONTRASTED", "Foreseen", "carry_out", "examine", "foresee"]

CONTRASTED: tuple[str, ...] = ("full", "sliding_window()", "nothing")
"""What is compared where nothing is said: the ceiling, a window, and the floor."""

_Replies = list[Reply | ModelUnavailable]


def examine(
    recordings: Iterable[Recording],
    strategies: Choice | Iterable[Choice] = CONTRASTED,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    answer_model: str,
    judges: str | Iterable[str] = (),
    replicates: int = 1,
    max_tokens: int = REPLY,
    max_cost: float | None = None,
    client: Client | None = None,
    reserve: int = 0,
    data: Sequence[str] = (),
    progress: bool | None = None,
) -> Exam:
    """Asks a model the questions of recordings, with what every strategy would send under every limit.

    Strategies, limits, ``model`` (whose tokens count) and ``reserve`` are those of ``evaluate``; one
    recording is held at a time. ``replicates`` asks each question so often. ``judges``: models that
    judge every reply by the rubric of ``ctxlab.evaluation.probing.judge``. ``max_tokens``: of a
    reply, hidden
    reasoning included. ``client``: who is asked; None asks the provider and keeps the answers in
    ``.ctxlab/calls``. ``max_cost``: dollars that are not passed.

    Questions of which no reply came are left out of the scores, and counted (``unanswered_rate``); those
    whose request a provider would refuse are not asked and count among them. Raises ``SpecError`` where
    no recording holds a question, ``ModelRefused`` where a model refuses or the money is spent, and what
    ``evaluate`` raises.

    >>> from ctxlab import Message, Probe
    >>> from ctxlab.llm import ScriptedClient
    >>> talk = (Message("user", "I live in Paris."), Message("assistant", "How nice."))
    >>> asked = Recording("r", talk, probes=(Probe("q", "Where does she live?", ("Paris",)),))
    >>> found = examine([asked], "full", 1000, answer_model="gpt-4o", client=ScriptedClient("Paris."))
    >>> found.leaderboard()[["exact", "f1", "answer_containment"]].values.tolist()
    [[1.0, 1.0, 1.0]]
    """
    several(recordings)
    grid = Grid.make(strategies, limits, model, reserve, ())
    named = (judges,) if isinstance(judges, str) else tuple(judges)
    paper = Paper(grid, answer_model, named, replicates, max_tokens)
    asked = (
        client if client is not None and max_cost is None else paid_client(max_cost, client=client)
    )
    return carry_out(paper, recordings, asked, data, progress)


@dataclass(frozen=True)
class Foreseen:
    """What an exam would take."""

    answers: Estimate
    "of the model that answers"
    judges: tuple[Estimate, ...] = ()
    "of each judge; replies that are not there yet are taken to be as long as they may be"

    @property
    def replies(self) -> int:
        """Replies and verdicts that will come, if all are answered."""
        return self.answers.questions + sum(each.questions for each in self.judges)

    @property
    def usd(self) -> float:
        """All of it at most; nan where a price is not known."""
        return self.answers.usd + sum(each.usd for each in self.judges)


def foresee(
    paper: Paper, recordings: Iterable[Recording], client: Client, progress: bool | None = None
) -> Foreseen:
    """What an exam would take at most; nothing is asked, and what is on disk is known.

    What strategies ask for themselves is not in it: contexts that they have not made yet are taken to be
    those that they make without their model.
    """
    nobody, seen = offline(client), set[str]()
    answers, judges = Estimate(), [Estimate() for _ in paper.judges]
    for recording in track(recordings, "recordings looked at", None, progress):
        sheet = paper.sheet(recording, nobody)
        answers = answers.plus(estimate(sheet.requests, client, seen))
        if not paper.judges:
            continue
        replies = nobody.complete_all(sheet.requests)
        for number, judge in enumerate(paper.judges):
            there = paper.judgements(sheet, judge, replies)
            missing = _unjudged(paper, sheet, judge, replies)
            found = estimate(there.values(), client, seen).plus(estimate(missing, offline(None)))
            judges[number] = judges[number].plus(found)
    return Foreseen(answers, tuple(judges))


def carry_out(
    paper: Paper,
    recordings: Iterable[Recording],
    client: Client,
    data: Sequence[str] = (),
    progress: bool | None = None,
    total: int | None = None,
) -> Exam:
    """Asks what is on the paper, a recording at a time; ``total``: replies that are expected."""
    table, account = Table(columns(paper.judges), paper.grid.labels), Tally()
    frames: list[pd.DataFrame] = []
    with closing(_examined(paper, recordings, client, table, account, frames)) as each:
        for _ in track(each, "questions answered", total, progress):
            pass
    if not frames:
        raise SpecError(
            "no recording holds a question: LoCoMo and LongMemEval do, and so do native recordings "
            "with probes"
        )
    settings = {
        "answer_model": paper.answer_model,
        "judges": list(paper.judges),
        "replicates": paper.replicates,
        "max_tokens": paper.max_tokens,
    }
    manifest = {
        **paper.grid.manifest(data, table.recordings),
        **account.manifest(),
        "exam": settings,
    }
    del manifest["spec"]["metrics"]  # what repeats it as an evaluation measures what those measure
    found = Results.of(table, scores(paper.judges), manifest)
    answers = pd.concat(frames, ignore_index=True)
    return Exam(found.requests, found.scores, found.manifest, answers)


def _examined(
    paper: Paper,
    recordings: Iterable[Recording],
    client: Client,
    table: Table,
    account: Tally,
    frames: list[pd.DataFrame],
) -> Generator[None, None, None]:
    """Asks recording after recording; yields once for every reply and every verdict that came."""
    with answers_kept(client):
        for recording in recordings:
            sheet = paper.sheet(recording, client)
            table.describe(paper.grid.measure(sheet.tape, []).described)
            if not sheet.probes:
                continue
            replies: _Replies = []
            yield from _answers(sheet.requests, client, replies)
            account.add(asked_in(sheet.traces))
            account.add(_spent(paper.answer_model, replies))
            verdicts: list[dict[tuple[int, str], float]] = []
            for judge in paper.judges:
                wanted = paper.judgements(sheet, judge, replies)
                said: _Replies = []
                yield from _answers(list(wanted.values()), client, said)
                account.add(_spent(judge, said))
                verdicts.append(dict(zip(wanted, map(_verdict, said), strict=True)))
            names = {key: table.recordings[-1][key] for key in ("recording", "cluster")}
            frames.append(_mark(paper, sheet, replies, verdicts, table, names))


def _answers(
    requests: Sequence[Request], client: Client, into: _Replies
) -> Generator[None, None, None]:
    found: dict[int, Reply | ModelUnavailable] = {}
    with closing(ask_each(requests, client)) as each:
        for place, reply in each:
            found[place] = reply
            yield
    into += [found[place] for place in range(len(requests))]


def _mark(
    paper: Paper,
    sheet: Sheet,
    replies: _Replies,
    verdicts: Sequence[Mapping[tuple[int, str], float]],
    table: Table,
    names: Mapping[str, str],
) -> pd.DataFrame:
    """Adds the figures of a recording to the table; returns its answers."""
    of, probes = sheet.sorted(replies), sheet.probes
    given = marks(probes, of)
    flat = [reply for row in of for again in row for reply in again]
    texts = [reply.text if isinstance(reply, Reply) else "" for reply in flat]
    shape = given["f1"].shape
    numbers = np.broadcast_to(np.arange(shape[1])[None, :, None], shape).ravel()
    empty = np.array(
        [isinstance(r, Reply) and not t.strip() for r, t in zip(flat, texts, strict=True)]
    )
    judgements: list[Array] = []
    for said in verdicts:
        found = [said.get((int(q), t.strip()), np.nan) for q, t in zip(numbers, texts, strict=True)]
        # The rubric says what an empty reply is; nobody need be asked.
        judgements.append(np.where(empty, 0.0, np.array(found)).reshape(shape))
    room = np.array([trace.budget.limit - trace.budget.reserve for trace in sheet.traces])
    table.add(
        [trace.budget.limit for trace in sheet.traces],
        figures(probes, given, empty.reshape(shape), sheet.seen, room, judgements),
    )
    outcomes = [_outcome(reply) for reply in flat]
    labels = np.broadcast_to(np.arange(shape[0])[:, None, None], shape).ravel()
    return pd.DataFrame(
        {
            **{name: [value] * len(flat) for name, value in names.items()},
            "probe": [probes[q].id for q in numbers],
            "category": [probes[q].category or "" for q in numbers],
            "strategy": [paper.grid.labels[c][0] for c in labels],
            "limit": [float(paper.grid.labels[c][1]) for c in labels],
            "replicate": np.broadcast_to(np.arange(shape[2])[None, None, :], shape).ravel(),
            "outcome": [outcome for outcome, _ in outcomes],
            "why": [why for _, why in outcomes],
            "reply": texts,
            **{name: array.ravel() for name, array in given.items()},
            **{judged(n): array.ravel() for n, array in enumerate(judgements, 1)},
        }
    )


def _outcome(reply: Reply | ModelUnavailable | None) -> tuple[str, str]:
    """What became of a question, and why."""
    if reply is None:
        return "invalid", "a provider would refuse what is sent"
    if isinstance(reply, ModelUnavailable):
        return "unanswered", str(reply)
    if reply.text.strip():
        return "answered", reply.finish or ""
    return "empty", "it calls a tool" if reply.message.tool_calls else reply.finish or ""


def _verdict(reply: Reply | ModelUnavailable) -> float:
    correct = read_verdict(reply.text).correct if isinstance(reply, Reply) else None
    return np.nan if correct is None else float(correct)


def _unjudged(paper: Paper, sheet: Sheet, judge: str, replies: _Replies) -> Iterable[Request]:
    """Of every reply that is not there yet, what its judge would be asked at most."""
    filler = " a" * paper.max_tokens
    asked = {
        (at, r, number): probe
        for row in sheet.place
        for number, (at, probe) in enumerate(zip(row, sheet.probes, strict=True))
        for r in range(paper.replicates)
        if at >= 0 and not isinstance(replies[at * paper.replicates + r], Reply)
    }
    return (judging(judge, probe, filler, paper.max_tokens) for probe in asked.values())


def _spent(model: str, replies: _Replies) -> Asked:
    return Asked([Spending.of(0, model, reply) for reply in replies], {})
