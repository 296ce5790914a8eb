"""Question answering: ask a model the questions of recordings with the context of each strategy.

Each question is asked at its position, in the request that a strategy would send. The reply is
compared with the reference answers by exact match, F1, containment and judges. Like any replay this
is off-policy, and it measures model and context together: compare strategies under one model, and
with ``full``. Replies are cached on disk, so a repeated run costs nothing and gives the same
results.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ctxlab._utils.progress import track
from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.experiment import DEFAULT_LIMITS, ExperimentGrid, StrategyLike
from ctxlab.evaluation.metrics.base import FloatArray
from ctxlab.evaluation.metrics.strategy_calls import (
    StrategyCalls,
    StrategyCallTotals,
    collect_strategy_calls,
)
from ctxlab.evaluation.probing.judge import judge_request, parse_verdict
from ctxlab.evaluation.probing.qa_plan import DEFAULT_MAX_TOKENS, QAPlan, QARequests
from ctxlab.evaluation.probing.qa_scores import (
    column_names,
    compute_qa_columns,
    judge_score_name,
    make_scores,
    score_replies,
)
from ctxlab.evaluation.probing.results import QAResults
from ctxlab.evaluation.results import Results, ResultsBuilder
from ctxlab.llm.base import Client, ModelCall, Reply, Request
from ctxlab.llm.batch import (
    RequestEstimate,
    add_cache_hint,
    build_cost_limited_client,
    cache_only_client,
    estimate_requests,
    iter_replies,
)
from ctxlab.messages.types import Recording, check_recordings

DEFAULT_QA_STRATEGIES: tuple[str, ...] = ("full", "sliding_window()", "nothing")
"""Strategies compared by default: the ceiling, a window, and the floor."""

_Replies = list[Reply | ModelUnavailable]


def run_qa(
    recordings: Iterable[Recording],
    strategies: StrategyLike | Iterable[StrategyLike] = DEFAULT_QA_STRATEGIES,
    limits: float | str | Iterable[float | str] = DEFAULT_LIMITS,
    model: str | None = None,
    *,
    answer_model: str,
    judges: str | Iterable[str] = (),
    replicates: int = 1,
    max_tokens: int = DEFAULT_MAX_TOKENS,
    max_cost: float | None = None,
    client: Client | None = None,
    reserve: int = 0,
    data: Sequence[str] = (),
    progress: bool | None = None,
) -> QAResults:
    """Ask a model the questions of recordings, with the context of each strategy under each limit.

    One recording is held at a time. Questions without a reply are left out of the scores and
    counted in ``unanswered_rate``. Requests that the provider would reject are not sent; they count
    as unanswered.

    Parameters
    ----------
    recordings : iterable of Recording
        The recordings, with probes.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length.
    model : str, optional
        Model whose tokenizer applies to the limits. None takes the model of each recording.
    answer_model : str
        Model that answers.
    judges : str or iterable of str, optional
        Models that judge every reply by the rubric of ``ctxlab.evaluation.probing.judge``.
    replicates : int, default 1
        How often each question is asked.
    max_tokens : int, default 1024
        Maximum tokens of a reply, including hidden reasoning.
    max_cost : float, optional
        Maximum cost in USD. None sets no limit.
    client : Client, optional
        Answers the requests. None calls the provider and caches replies in ``.ctxlab/calls``.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.

    Returns
    -------
    QAResults
        Scores of each question, and all replies.

    Raises
    ------
    SpecError
        If no recording has a question, or an argument is not valid.
    ModelRequestRejected
        If a model rejects a request, or ``max_cost`` would be exceeded.

    Examples
    --------
    >>> from ctxlab import Message, Probe
    >>> from ctxlab.llm import ScriptedClient
    >>> talk = (Message("user", "I live in Paris."), Message("assistant", "How nice."))
    >>> asked = Recording("r", talk, probes=(Probe("q", "Where does she live?", ("Paris",)),))
    >>> found = run_qa([asked], "full", 1000, answer_model="gpt-4o", client=ScriptedClient("Paris."))
    >>> found.leaderboard()[["exact", "f1", "answer_containment"]].values.tolist()
    [[1.0, 1.0, 1.0]]
    """
    check_recordings(recordings)
    grid = ExperimentGrid.from_arguments(strategies, limits, model, reserve, ())
    named = (judges,) if isinstance(judges, str) else tuple(judges)
    plan = QAPlan(grid, answer_model, named, replicates, max_tokens)
    asked = (
        client
        if client is not None and max_cost is None
        else build_cost_limited_client(max_cost, client=client)
    )
    return run(plan, recordings, asked, data, progress)


@dataclass(frozen=True)
class CostEstimate:
    """Estimated number and cost of the replies of a QA run."""

    answers: RequestEstimate
    "estimate for the answering model"
    judges: tuple[RequestEstimate, ...] = ()
    "estimate for each judge; replies that are not cached count with their maximum length"

    @property
    def reply_count(self) -> int:
        """Number of replies and verdicts, if all requests succeed."""
        return self.answers.questions + sum(each.questions for each in self.judges)

    @property
    def usd(self) -> float:
        """Maximum cost in USD; nan if a price is unknown."""
        return self.answers.usd + sum(each.usd for each in self.judges)


def estimate_cost(
    plan: QAPlan, recordings: Iterable[Recording], client: Client, progress: bool | None = None
) -> CostEstimate:
    """Estimate the maximum cost of a QA run without asking anything; cached replies are free.

    Model calls of strategies are not included. Contexts that are not cached yet are approximated by
    those that the strategies build without their model.

    Parameters
    ----------
    plan : QAPlan
        The plan of the run.
    recordings : iterable of Recording
        The recordings.
    client : Client
        Client of the run; its cache is read.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.

    Returns
    -------
    CostEstimate
        Number and cost of the replies.
    """
    nobody, seen = cache_only_client(client), set[str]()
    answers, judges = RequestEstimate(), [RequestEstimate() for _ in plan.judges]
    for recording in track(recordings, "recordings examined", None, progress):
        qa_requests = plan.make_requests(recording, nobody)
        answers = answers.plus(estimate_requests(qa_requests.requests, client, seen))
        if not plan.judges:
            continue
        replies = nobody.complete_all(qa_requests.requests)
        for number, judge in enumerate(plan.judges):
            there = plan.judge_requests(qa_requests, judge, replies)
            missing = _unjudged_requests(plan, qa_requests, judge, replies)
            found = estimate_requests(there.values(), client, seen).plus(
                estimate_requests(missing, cache_only_client(None))
            )
            judges[number] = judges[number].plus(found)
    return CostEstimate(answers, tuple(judges))


def run(
    plan: QAPlan,
    recordings: Iterable[Recording],
    client: Client,
    data: Sequence[str] = (),
    progress: bool | None = None,
    total: int | None = None,
) -> QAResults:
    """Run a plan, one recording at a time.

    Parameters
    ----------
    plan : QAPlan
        What to ask.
    recordings : iterable of Recording
        The recordings, with probes.
    client : Client
        Answers the requests.
    data : sequence of str, optional
        Where the recordings come from, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it on a terminal.
    total : int, optional
        Expected number of replies, for the progress bar.

    Returns
    -------
    QAResults
        Scores of each question, and all replies.

    Raises
    ------
    SpecError
        If no recording has a question.
    """
    table, call_totals = (
        ResultsBuilder(column_names(plan.judges), plan.grid.configurations),
        StrategyCallTotals(),
    )
    frames: list[pd.DataFrame] = []
    with closing(_answer_recordings(plan, recordings, client, table, call_totals, frames)) as each:
        for _ in track(each, "questions answered", total, progress):
            pass
    if not frames:
        raise SpecError(
            "no recording contains a question; use LoCoMo, LongMemEval, or native recordings with "
            "probes"
        )
    settings = {
        "answer_model": plan.answer_model,
        "judges": list(plan.judges),
        "replicates": plan.replicates,
        "max_tokens": plan.max_tokens,
    }
    manifest = {
        **plan.grid.manifest(data, table.recordings),
        **call_totals.manifest(),
        "exam": settings,
    }
    del manifest["spec"]["metrics"]  # a spec repeated as an evaluation uses its default metrics
    found = Results.from_builder(table, make_scores(plan.judges), manifest)
    answers = pd.concat(frames, ignore_index=True)
    return QAResults(found.requests, found.scores, found.manifest, answers)


def _answer_recordings(
    plan: QAPlan,
    recordings: Iterable[Recording],
    client: Client,
    table: ResultsBuilder,
    call_totals: StrategyCallTotals,
    frames: list[pd.DataFrame],
) -> Generator[None, None, None]:
    """Ask recording after recording; yield once for each reply and verdict."""
    with add_cache_hint(client):
        for recording in recordings:
            qa_requests = plan.make_requests(recording, client)
            table.add_recording(qa_requests.prepared.manifest_entry)
            if not qa_requests.probes:
                continue
            replies: _Replies = []
            yield from _collect_replies(qa_requests.requests, client, replies)
            call_totals.add(collect_strategy_calls(qa_requests.traces))
            call_totals.add(_reply_calls(plan.answer_model, replies))
            verdicts: list[dict[tuple[int, str], float]] = []
            for judge in plan.judges:
                wanted = plan.judge_requests(qa_requests, judge, replies)
                said: _Replies = []
                yield from _collect_replies(list(wanted.values()), client, said)
                call_totals.add(_reply_calls(judge, said))
                verdicts.append(dict(zip(wanted, map(_verdict_value, said), strict=True)))
            names = {key: table.recordings[-1][key] for key in ("recording", "cluster")}
            frames.append(_score_recording(plan, qa_requests, replies, verdicts, table, names))


def _collect_replies(
    requests: Sequence[Request], client: Client, replies: _Replies
) -> Generator[None, None, None]:
    found: dict[int, Reply | ModelUnavailable] = {}
    with closing(iter_replies(requests, client)) as each:
        for place, reply in each:
            found[place] = reply
            yield
    replies += [found[place] for place in range(len(requests))]


def _score_recording(
    plan: QAPlan,
    qa_requests: QARequests,
    replies: _Replies,
    verdicts: Sequence[Mapping[tuple[int, str], float]],
    table: ResultsBuilder,
    names: Mapping[str, str],
) -> pd.DataFrame:
    """Add the columns of a recording to the table; return its answers."""
    of, probes = qa_requests.arrange_replies(replies), qa_requests.probes
    reply_scores = score_replies(probes, of)
    flat = [reply for row in of for again in row for reply in again]
    texts = [reply.text if isinstance(reply, Reply) else "" for reply in flat]
    shape = reply_scores["f1"].shape
    numbers = np.broadcast_to(np.arange(shape[1])[None, :, None], shape).ravel()
    empty = np.array(
        [isinstance(r, Reply) and not t.strip() for r, t in zip(flat, texts, strict=True)]
    )
    judgements: list[FloatArray] = []
    for said in verdicts:
        found = [said.get((int(q), t.strip()), np.nan) for q, t in zip(numbers, texts, strict=True)]
        # The rubric counts an empty reply as incorrect, so judges are not asked.
        judgements.append(np.where(empty, 0.0, np.array(found)).reshape(shape))
    room = np.array([trace.budget.limit - trace.budget.reserve for trace in qa_requests.traces])
    table.add_columns(
        [trace.budget.limit for trace in qa_requests.traces],
        compute_qa_columns(
            probes, reply_scores, empty.reshape(shape), qa_requests.visibility, room, judgements
        ),
    )
    outcomes = [_classify_reply(reply) for reply in flat]
    labels = np.broadcast_to(np.arange(shape[0])[:, None, None], shape).ravel()
    return pd.DataFrame(
        {
            **{name: [value] * len(flat) for name, value in names.items()},
            "probe": [probes[q].id for q in numbers],
            "category": [probes[q].category or "" for q in numbers],
            "strategy": [plan.grid.configurations[c][0] for c in labels],
            "limit": [float(plan.grid.configurations[c][1]) for c in labels],
            "replicate": np.broadcast_to(np.arange(shape[2])[None, None, :], shape).ravel(),
            "outcome": [outcome for outcome, _ in outcomes],
            "why": [why for _, why in outcomes],
            "reply": texts,
            **{name: array.ravel() for name, array in reply_scores.items()},
            **{judge_score_name(n): array.ravel() for n, array in enumerate(judgements, 1)},
        }
    )


def _classify_reply(reply: Reply | ModelUnavailable | None) -> tuple[str, str]:
    """Return the outcome of a question, and the reason."""
    if reply is None:
        return "invalid", "the provider would reject the request"
    if isinstance(reply, ModelUnavailable):
        return "unanswered", str(reply)
    if reply.text.strip():
        return "answered", reply.finish or ""
    return "empty", "it calls a tool" if reply.message.tool_calls else reply.finish or ""


def _verdict_value(reply: Reply | ModelUnavailable) -> float:
    correct = parse_verdict(reply.text).correct if isinstance(reply, Reply) else None
    return np.nan if correct is None else float(correct)


def _unjudged_requests(
    plan: QAPlan, qa_requests: QARequests, judge: str, replies: _Replies
) -> Iterable[Request]:
    """Return the longest possible judge request for each reply that is not available yet."""
    filler = " a" * plan.max_tokens
    asked = {
        (at, r, number): probe
        for row in qa_requests.request_index
        for number, (at, probe) in enumerate(zip(row, qa_requests.probes, strict=True))
        for r in range(plan.replicates)
        if at >= 0 and not isinstance(replies[at * plan.replicates + r], Reply)
    }
    return (judge_request(judge, probe, filler, plan.max_tokens) for probe in asked.values())


def _reply_calls(model: str, replies: _Replies) -> StrategyCalls:
    return StrategyCalls([ModelCall.from_reply(0, model, reply) for reply in replies], {})
