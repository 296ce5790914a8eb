"""Question answering: ask a model the questions of recordings, with the context of each strategy.

Each question has a position in its recording. The context that a strategy would send at this
position is extended by a user message with the question. The reply is compared with the reference
answers by exact match, F1, containment and judges. Like any replay this is off-policy. The scores
depend on both the model and the context. Therefore compare only strategies that were evaluated with
the same model, and compare them with the control ``full``. Replies are cached on disk, so a repeated
run costs nothing and has the same results.

Messages are changed only where providers require it. Names of speakers are written into the text,
because many providers ignore the field ``name``. Tool definitions are sent if the messages contain
tool calls, because some providers reject calls without definitions. If the recording has no
definitions, they are derived from the calls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

import numpy as np
from typing_extensions import override

from ctxlab.errors import ModelUnavailable, SpecError
from ctxlab.evaluation.answer_matching import contains_answer, exact_match, token_f1
from ctxlab.evaluation.engine import PreparedRecording
from ctxlab.evaluation.grid import DEFAULT_LIMITS, ExperimentGrid, StrategyLike
from ctxlab.evaluation.metrics.base import Figures, Score
from ctxlab.evaluation.metrics.probes import measure_probe_visibility
from ctxlab.evaluation.probing.infer_tools import infer_tool_definitions
from ctxlab.evaluation.probing.judge import judge_key, judge_request, load_prompt, parse_verdict
from ctxlab.evaluation.probing.plan import Answer, ProbingPlan, ProbingRequests, Row
from ctxlab.evaluation.probing.results import GRADED_SCORES, QAResults
from ctxlab.llm.base import Client, Reply, Request
from ctxlab.llm.batch import RequestEstimate, cache_only_client, estimate_requests
from ctxlab.messages.types import Message, Probe, Recording, check_recordings

UNKNOWN_ANSWER = "not mentioned"
"""Answer that a model is told to give if the conversation does not contain the answer."""

_ABSTENTION_PHRASES = (
    UNKNOWN_ANSWER,
    "no information available",
    "not known",
    "I do not know",
    "I don't know",
)

DEFAULT_QA_STRATEGIES: tuple[str, ...] = ("full", "sliding_window()", "nothing")
"""Strategies compared by default: a sliding window, and the controls ``full`` and ``nothing``."""

DEFAULT_MAX_TOKENS = 1024
"""Default maximum tokens of a reply: about 20 for the answer, and the rest for hidden reasoning."""


_REPLY_COLUMNS = (*GRADED_SCORES, "abstained", "prompt", "completion", "usd")
"""Columns of a reply: the values returned by ``_grade_reply``, and the billed tokens and price."""

QA_COLUMNS = (
    *("questions", "asked", "answered", "unanswered", "empty", "graded", "word_for_word"),
    *("f1_points", "holding", "gave_up", "unanswerable", "declined", "prompt_tokens"),
    *("completion_tokens", "usd", "over", "evidenced", "evidence_seen", "answerable"),
    "answer_seen",
)
"""Columns of a question, mostly sums over its replicates. Each judge adds two columns."""


_GRADE_SCORES = (
    Score.total("questions", "questions that were asked", "questions", better=""),
    Score.share("exact", "replies that equal an answer", "word_for_word / graded"),
    Score.share("f1", "mean F1 of the words of reply and answer", "f1_points / graded"),
    Score.share("contains", "replies that contain an answer", "holding / graded"),
    Score.share("declined_rate", "unanswerable questions declined", "declined / unanswerable"),
)
"""Scores of the leaderboard before those of the judges."""
_OTHER_SCORES = (
    Score.rate("gave_up_rate", "answerable questions declined", "gave_up / graded"),
    Score.rate("unanswered_rate", "questions without a reply", "unanswered / asked"),
    Score.rate("empty_rate", "replies that are empty", "empty / answered"),
    Score.share("evidence_recall", "evidence that is in view", "evidence_seen / evidenced"),
    Score.share("answer_containment", "questions with answer in view", "answer_seen / answerable"),
    Score.mean("prompt_mean", "billed tokens per request", "tokens", "prompt_tokens / answered"),
    Score.rate("over_rate", "questions whose request is too large", "over / questions"),
    Score.total("usd", "cost of the answers when they were made", "USD"),
)
"""Scores of the leaderboard after those of the judges."""


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

    Recordings are processed one at a time and need not fit into memory together. Questions without a
    reply are excluded from the scores of replies and counted in ``unanswered_rate``. Requests that
    the provider would reject are not sent, and their questions count as unanswered.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings with probes, which contain the questions.
    strategies : Strategy, str, callable or iterable of them, optional
        One or several strategies.
    limits : float, str or iterable of them, optional
        One or several limits, in tokens or as fractions of each recording's length.
    model : str, optional
        Model whose tokenizer applies to the limits. None uses the model of each recording.
    answer_model : str
        Model that answers the questions.
    judges : str or iterable of str, optional
        Models that grade every reply by the rubric of ``ctxlab.evaluation.probing.judge``.
    replicates : int, default 1
        Number of times that each question is asked.
    max_tokens : int, default 1024
        Maximum tokens of a reply, including hidden reasoning.
    max_cost : float, optional
        Maximum cost of the run in USD. None sets no limit.
    client : Client, optional
        Client that sends the requests. None calls the provider and caches replies in
        ``.ctxlab/calls``.
    reserve : int, default 0
        Tokens kept for the reply.
    data : sequence of str, optional
        Sources of the recordings, such as paths, for the manifest.
    progress : bool, optional
        Show a progress bar. None shows it only on a terminal.

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
    return plan.run(recordings, client, data, progress, max_cost=max_cost)


@dataclass(frozen=True)
class QAPlan(ProbingPlan[QAResults]):
    """Plan of a question-answering run: it asks the questions and grades the replies."""

    grid: ExperimentGrid
    "strategies, limits, and the models that count tokens"
    answer_model: str
    "model that answers the questions"
    judges: tuple[str, ...] = ()
    "models that grade the replies"
    replicates: int = 1
    "number of times that each question is asked"
    max_tokens: int = DEFAULT_MAX_TOKENS
    "maximum tokens of a reply"
    results = QAResults

    def __post_init__(self) -> None:
        """Raise ``SpecError`` if a setting is not valid or two judges are the same model."""
        super().__post_init__()
        if len(set(self.judges)) < len(self.judges):
            raise SpecError(f"judges: expected different models, got {', '.join(self.judges)}")

    @property
    @override
    def models(self) -> tuple[str, ...]:
        return self.answer_model, *self.judges

    @property
    def columns(self) -> list[str]:
        """Names of the columns of each question: ``QA_COLUMNS`` and two columns per judge."""
        numbers = range(1, len(self.judges) + 1)
        return [*QA_COLUMNS, *(f"{name}_{n}" for n in numbers for name in ("passed", "verdicts"))]

    @property
    def scores(self) -> tuple[Score, ...]:
        """Scores of the leaderboard in display order, including one per judge."""
        judged = (
            Score.share(judge_key(n), f"correct for {model}", f"passed_{n} / verdicts_{n}")
            for n, model in enumerate(self.judges, 1)
        )
        return *_GRADE_SCORES, *judged, *_OTHER_SCORES

    @property
    @override
    def settings(self) -> dict[str, Any]:
        names = ("answer_model", "judges", "replicates", "max_tokens")
        return {name: getattr(self, name) for name in names} | {"judges": list(self.judges)}

    @override
    def explain_nothing(self, recordings: Sequence[Mapping[str, Any]]) -> str:
        return "no recording has a question; use LoCoMo, LongMemEval, or recordings with probes"

    @override
    def make_requests(self, recording: Recording, client: Client | None = None) -> ProbingRequests:
        counter = self.grid.model_choice.counter_for(recording)
        prepared = PreparedRecording(recording, counter, client, format_question)
        traces = self.replay(prepared) if prepared.probes else []
        made: dict[int, tuple[Message, Message]] = {}
        sent = [
            [inline_speaker_names((e.message for e in each), made) for each in t.preview_entries]
            for t in traces
        ]
        tools, numbers = partial(request_tools, recording), range(len(prepared.probes))
        return ProbingRequests(self, prepared, traces, numbers, sent, tools)

    @override
    def judge_requests(
        self, batch: ProbingRequests, replies: Sequence[Answer]
    ) -> list[dict[tuple[int, str], Request]]:
        said = dict.fromkeys(
            (q, reply.text.strip())
            for _, q, _, reply in batch.arrange(replies)
            if isinstance(reply, Reply) and reply.text.strip()
        )
        probes = batch.prepared.probes
        return [
            {(q, text): judge_request(judge, probes[q], text, self.max_tokens) for q, text in said}
            for judge in self.judges
        ]

    @override
    def estimate_batch(
        self, batch: ProbingRequests, client: Client, seen: set[str]
    ) -> list[RequestEstimate]:
        estimates = super().estimate_batch(batch, client, seen)
        if not self.judges:
            return estimates
        replies = cache_only_client(client).complete_all(batch.requests)
        # For a reply that is not cached yet, assume the maximum length.
        missing = dict.fromkeys(
            (batch.request_index[c][q], r, q)
            for c, q, r, reply in batch.arrange(replies)
            if isinstance(reply, ModelUnavailable)
        )
        longest, nobody = " a" * self.max_tokens, cache_only_client(None)
        for judge, there in zip(self.judges, self.judge_requests(batch, replies), strict=True):
            unknown = (
                judge_request(judge, batch.prepared.probes[q], longest, self.max_tokens)
                for _, _, q in missing
            )
            found = estimate_requests(there.values(), client, seen)
            estimates.append(found.plus(estimate_requests(unknown, nobody)))
        return estimates

    @override
    def score(
        self,
        batch: ProbingRequests,
        replies: Sequence[Answer],
        verdicts: Sequence[Mapping[tuple[int, str], Answer]],
    ) -> tuple[list[Row], Figures]:
        rows, grade = [], cache(_grade_reply)
        for c, q, r, reply in batch.arrange(replies):
            probe, (strategy, limit) = batch.prepared.probes[q], self.grid.configurations[c]
            outcome, why = _classify_reply(reply)
            text = reply.text if isinstance(reply, Reply) else ""
            row: Row = {"probe": probe.id, "category": probe.category or ""}
            row |= {"strategy": strategy, "limit": float(limit), "replicate": r}
            row |= {"outcome": outcome, "why": why, "reply": text}
            row |= dict.fromkeys(_REPLY_COLUMNS, np.nan)
            if isinstance(reply, Reply):
                bill = float(reply.usage.total_input), float(reply.usage.output), reply.usd
                row |= zip(_REPLY_COLUMNS, (*grade(text, probe.answers), *bill), strict=True)
            for number, said in enumerate(verdicts, 1):
                # The rubric says that an empty reply is incorrect, so judges are not asked about it.
                verdict = 0.0 if outcome == "empty" else _verdict(said.get((q, text.strip())))
                row[judge_key(number)] = verdict
            rows.append(row)
        return rows, self._sum_replicates(batch, rows)

    def _sum_replicates(self, batch: ProbingRequests, rows: Sequence[Row]) -> Figures:
        """Compute the columns of the results for each configuration and question.

        Most columns are sums over the replicates that have a reply.
        """
        probes, seen = batch.prepared.probes, measure_probe_visibility(batch.prepared, batch.traces)
        scores = {name: batch.stack(rows, name) for name in _REPLY_COLUMNS}
        room = np.array([trace.budget.room for trace in batch.traces])
        answered, abstained = ~np.isnan(scores["abstained"]), scores["abstained"]
        has_answer = np.array([bool(probe.answers) for probe in probes])[:, None]
        one = np.ones(answered.shape[:2])
        each = {
            "asked": np.ones(answered.shape),
            "answered": answered,
            "unanswered": ~answered,
            "empty": np.array([row["outcome"] == "empty" for row in rows]).reshape(answered.shape),
            "graded": answered & has_answer,
            "word_for_word": scores["exact"],
            "f1_points": scores["f1"],
            "holding": scores["contains"],
            "gave_up": np.where(has_answer, abstained, 0),
            "unanswerable": answered & ~has_answer,
            "declined": np.where(has_answer, 0, abstained),
            "prompt_tokens": scores["prompt"],
            "completion_tokens": scores["completion"],
        }
        for number, _ in enumerate(self.judges, 1):
            verdicts = batch.stack(rows, judge_key(number))
            each |= {f"passed_{number}": verdicts, f"verdicts_{number}": ~np.isnan(verdicts)}
        summed = {name: np.nansum(a.astype(np.float64), axis=2) for name, a in each.items()}
        # An unknown price makes the sum nan.
        summed["usd"] = np.where(answered, scores["usd"], 0.0).sum(axis=2)
        return {
            **summed,
            "questions": one,
            "over": (seen.request_tokens > room[:, None]).astype(np.float64),
            "evidenced": one * [bool(probe.evidence) for probe in probes],
            "evidence_seen": seen.evidence_in_view,
            "answerable": one * has_answer[:, 0],
            "answer_seen": (seen.answer_in_view & has_answer[:, 0]).astype(np.float64),
        }


def _verdict(reply: Answer | None) -> float:
    correct = parse_verdict(reply.text).correct if isinstance(reply, Reply) else None
    return np.nan if correct is None else float(correct)


def _grade_reply(text: str, answers: Sequence[str]) -> tuple[float, float, float, float]:
    """Return the scores of a reply: exact match, F1, containment and abstention.

    The first three are nan if the question has no reference answers.
    """
    abstained = float(is_abstention(text))
    if not answers:
        return np.nan, np.nan, np.nan, abstained
    held = any(contains_answer(text, answer) for answer in answers)
    return float(exact_match(text, answers)), token_f1(text, answers), float(held), abstained


def _classify_reply(reply: Answer | None) -> tuple[str, str]:
    """Return the outcome of an answer (see ``QAResults``) and the reason for it."""
    if reply is None:
        return "invalid", "the provider would reject the request"
    if isinstance(reply, ModelUnavailable):
        return "unanswered", str(reply)
    if reply.text.strip():
        return "answered", reply.finish or ""
    return "empty", "it calls a tool" if reply.message.tool_calls else reply.finish or ""


def format_question(probe: Probe) -> Message:
    """Format a question as a user message, with the instructions of ``prompts/answer.md``.

    Parameters
    ----------
    probe : Probe
        Probe with the question.

    Returns
    -------
    Message
        User message that is added to the end of a context.
    """
    text = load_prompt("answer").replace("{unknown}", UNKNOWN_ANSWER)
    return Message("user", text.replace("{question}", probe.question))


def is_abstention(reply: str) -> bool:
    """Check if a reply says that the conversation does not contain the answer.

    The function looks for the phrase that the model was told to use, for the phrase of LoCoMo's
    scoring script, and for a few similar phrases. It misses other wordings, which a judge would
    understand.

    Parameters
    ----------
    reply : str
        Reply of the model to a question.

    Returns
    -------
    bool
        True if the reply contains one of the phrases.

    Examples
    --------
    >>> is_abstention("Not mentioned."), is_abstention("No information available.")
    (True, True)
    >>> is_abstention("In May")
    False
    """
    return any(contains_answer(reply, phrase) for phrase in _ABSTENTION_PHRASES)


def inline_speaker_names(
    messages: Iterable[Message], converted: dict[int, tuple[Message, Message]]
) -> tuple[Message, ...]:
    """Write the name of each speaker into the text of the messages.

    Parameters
    ----------
    messages : iterable of Message
        Messages to convert. Tool messages and messages without a name stay the same.
    converted : dict
        Cache with each original message and its converted form, by ``id`` of the original. New
        messages are added to it.

    Returns
    -------
    tuple of Message
        Messages in the same order, with names written into the text.

    Examples
    --------
    >>> inline_speaker_names([Message("user", "Hi", name="Ann")], {})[0].to_dict()
    {'role': 'user', 'content': 'Ann: Hi'}
    """

    def inline(message: Message) -> Message:
        if message.name is None or message.role == "tool":
            return message
        if id(message) not in converted:  # Keep the original alive, so that its id is not reused.
            converted[id(message)] = message, _prefix_speaker(message, message.name)
        return converted[id(message)][1]

    return tuple(map(inline, messages))


def request_tools(recording: Recording, sent: Sequence[Message]) -> tuple[dict[str, Any], ...]:
    """Return the tool definitions to send with a request.

    Parameters
    ----------
    recording : Recording
        Recording that the request is about.
    sent : sequence of Message
        Messages of the request.

    Returns
    -------
    tuple of dict
        Tool definitions of the recording, if it has any. Otherwise, definitions derived from its
        tool calls if the request contains a tool call, and an empty tuple if it contains none.
    """
    if recording.tools:
        return recording.tools
    called = any(message.tool_calls for message in sent)
    return infer_tool_definitions(recording.messages) if called else ()


def _prefix_speaker(message: Message, name: str) -> Message:
    content = message.content
    if isinstance(content, tuple):
        return message.replace(name=None, content=({"type": "text", "text": f"{name}:"}, *content))
    return message.replace(name=None, content=f"{name}: {content}" if content else content)
