"""Questions about a recording: whether their evidence, and an answer, stand in what would be sent.

No model is asked, so this is availability: an upper bound on what a model can answer. Each question is
put where it belongs, mostly after the last message, and measured as the request that would then be sent.

- **Evidence recall** is the share of a question's evidence messages that are in view, averaged over the
  questions that name any, as LoCoMo's script measures what its retrieval found. A message is *in view*
  where it is sent word for word, or where a summary of it, a line of contents, or a quote that was put
  in says all of its text. One that is shortened or rewritten by itself is in view too where it held an
  acceptable answer and still does. A stub or a line of contents that stands for it makes it *fetchable*.
- **Answer containment** is the share of questions with an answer of which any acceptable one stands in
  what is sent, as whole words (``ctxlab.evaluation.answer_matching``); the question itself does not
  count. An answer that must be worked out stands nowhere, so full history is below 1. A short one
  ("two", "yes") stands somewhere by chance: how often, ``answer_chance`` says, which is the same
  share where none of the evidence is in view, and so does the control ``nothing`` beside it.
- A question without an answer (adversarial, abstention) is asked and its evidence counts, but for
  containment it does not.

Sources: LoCoMo (Maharana et al. 2024), ``task_eval/evaluation.py``; LongMemEval (Wu et al. 2024), whose
retrieval is measured by the same share of evidence sessions or turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.engine import PreparedRecording, RequestObserver, Trace
from ctxlab.evaluation.metrics.base import Column, FloatArray, Score
from ctxlab.messages.types import Message, message_text

__all__ = ["ProbeMetric", "ProbeVisibility", "measure_probe_visibility"]

_START = attrgetter("start")


@dataclass(frozen=True)
class ProbeVisibility:
    """What is found of every question, by configuration: shape ``(traces, probes)``."""

    evidence_in_view: FloatArray
    "share of its evidence that is in view; 0 where it names none"
    evidence_fetchable: FloatArray
    "share that is not in view but can be fetched"
    answer_in_view: npt.NDArray[np.bool_]
    "whether an acceptable answer stands in what is sent"
    request_tokens: FloatArray
    "of the request, the question included"


class ProbeMetric:
    """Whether what a recording's questions ask for is still there."""

    columns = (
        Column("questions", "questions that were put here", "questions"),
        Column("evidenced", "of these, those that name evidence", "questions"),
        Column("evidence_seen", "of these, in view (a question counts in parts)", "questions"),
        Column("evidence_pointed", "of these, not in view but fetchable", "questions"),
        Column("answerable", "questions that have an answer", "questions"),
        Column("answer_seen", "of these, an answer stands in what is sent", "questions"),
        Column(
            "unseen", "answerable questions that name evidence, none of it in view", "questions"
        ),
        Column("unseen_answer", "of these, an answer stands in what is sent", "questions"),
        Column("question_tokens", "tokens of the requests that put them", "tokens"),
        Column("question_over", "questions whose request is too large", "questions"),
        Column("question_own", "tokens of the strategy's own model calls for them", "tokens"),
    )
    scores = (
        Score("questions", "questions that were put", "questions", "sum", "questions"),
        Score(
            "evidence_recall",
            "share of the evidence of questions that is in view",
            "share",
            "ratio",
            "evidence_seen",
            "evidenced",
            interval=True,
            better="higher",
            heading="evidence\nrecall (95 %)",
            legend="evidence recall: share of a question's evidence messages that is in view",
        ),
        Score(
            "evidence_pointer_rate",
            "share that is not in view but can be fetched",
            "share",
            "ratio",
            "evidence_pointed",
            "evidenced",
            heading="evidence\npointer %",
            legend="evidence pointer: evidence that is not in view but can be fetched again",
        ),
        Score(
            "answer_containment",
            "share of questions of which an answer stands in what is sent",
            "share",
            "ratio",
            "answer_seen",
            "answerable",
            interval=True,
            better="higher",
            heading="answer in\nview (95 %)",
            legend="answer in view: questions of which an answer stands in what is sent",
        ),
        Score(
            "answer_chance",
            "the same where none of the evidence is in view",
            "share",
            "ratio",
            "unseen_answer",
            "unseen",
            heading="chance\nanswer %",
            legend="chance answer: the same where none of the evidence is in view",
        ),
        Score(
            "question_tokens_mean",
            "tokens of a request that puts a question, mean",
            "tokens",
            "ratio",
            "question_tokens",
            "questions",
            better="lower",
            heading="question\ntokens",
            legend="question tokens: of requests that put a question",
        ),
        Score(
            "question_overflow_rate",
            "share of such requests that are too large",
            "share",
            "ratio",
            "question_over",
            "questions",
            better="lower",
            heading="question\nover %",
            legend="question over: such requests that are too large",
        ),
        Score(
            "question_own",
            "tokens of the strategy's own calls for questions",
            "tokens",
            "sum",
            "question_own",
            better="lower",
        ),
    )
    observers: ClassVar[Mapping[str, RequestObserver]] = {}
    uses_probes: ClassVar[bool] = True
    "it wants the questions of a recording put"

    def measure(
        self, prepared: PreparedRecording, traces: Sequence[Trace]
    ) -> Mapping[str, FloatArray]:
        """See ``columns``; a question counts at the request before which it is put, or at the last."""
        probes, seen = prepared.probes, measure_probe_visibility(prepared, traces)
        every = np.ones((len(traces), len(probes)))
        named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)
        answered = np.array([bool(probe.answers) for probe in probes], dtype=bool)
        room = np.array([trace.budget.limit - trace.budget.reserve for trace in traces])
        unseen = (seen.evidence_in_view == 0) & named & answered
        own = [
            [
                sum(call.prompt_tokens + call.completion_tokens for call in account.model_calls)
                for account in t.preview_ledgers
            ]
            for t in traces
        ]
        last = len(prepared.request_positions) - 1
        at = np.zeros((len(probes), len(prepared.request_positions)))
        for request, numbers in prepared.probes_by_request.items():
            at[numbers, min(request, last)] = 1
        return {
            "questions": every @ at,
            "evidenced": every * named @ at,
            "evidence_seen": seen.evidence_in_view @ at,
            "evidence_pointed": seen.evidence_fetchable @ at,
            "answerable": every * answered @ at,
            "answer_seen": (seen.answer_in_view & answered) @ at,
            "unseen": unseen @ at,
            "unseen_answer": (unseen & seen.answer_in_view) @ at,
            "question_tokens": seen.request_tokens @ at,
            "question_over": (seen.request_tokens > room[:, None]) @ at,
            "question_own": np.array(own, dtype=np.float64).reshape(every.shape) @ at,
        }


probes = ProbeMetric()


def measure_probe_visibility(
    prepared: PreparedRecording, traces: Sequence[Trace]
) -> ProbeVisibility:
    """What is in view of every question of a recording, in every trace."""
    shape = len(traces), len(prepared.probes)
    evidence, pointer, tokens = (np.zeros(shape) for _ in range(3))
    answer = np.zeros(shape, dtype=bool)
    book = _AnswerIndex(prepared)
    rows: dict[int, int] = {}
    for row, trace in enumerate(traces):
        # Traces that share a context are one replay under several budgets.
        known = rows.setdefault(id(trace.context), row)
        if known != row:
            for array in (evidence, pointer, tokens, answer):
                array[row] = array[known]
            continue
        for number, entries in enumerate(trace.preview_entries):
            tokens[row, number] = sum([entry.tokens for entry in entries]) + prepared.fixed_tokens
            edited = [entry for entry in entries if entry.form is not Form.VERBATIM]
            evidence[row, number], pointer[row, number] = book.evidence_shares(
                number, entries, edited
            )
            answer[row, number] = book.is_answer_in_view(number, entries, edited)
    return ProbeVisibility(evidence, pointer, answer, tokens)


class _AnswerIndex:
    """What the traces of one recording share: which message holds which answer."""

    def __init__(self, prepared: PreparedRecording) -> None:
        self.prepared = prepared
        self.answers = [
            [words for text in probe.answers if (words := padded_words(text))]
            for probe in prepared.probes
        ]
        said = (
            [padded_words(message_text(message)) for message in prepared.history]
            if prepared.probes
            else []
        )
        self.answer_positions = [
            [place for place, text in enumerate(said) if any(words in text for words in wanted)]
            for wanted in self.answers
        ]
        "``answer_positions[i]``: the messages of the recording that hold an answer to question ``i``"
        self._padded_words_cache: dict[int, tuple[Message, str]] = {}

    def holds_answer(self, number: int, message: Message) -> bool:
        """Whether a message that a strategy made holds an answer to a question."""
        known = self._padded_words_cache.get(id(message))
        if known is None:  # it is kept beside the text, so that its id is not given to another
            known = self._padded_words_cache[id(message)] = (
                message,
                padded_words(message_text(message)),
            )
        return any(words in known[1] for words in self.answers[number])

    def is_answer_in_view(
        self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]
    ) -> bool:
        """Whether an answer stands in what is sent, outside of the question."""
        end = self.prepared.probe_position(number)
        # From the newest on, for that is what is mostly there.
        if any(
            _is_sent_verbatim(entries, p)
            for p in reversed(self.answer_positions[number])
            if p < end
        ):
            return True
        # What stands for the question does not count; what was put in before it does.
        others = (e.message for e in edited if e.start < end or e.start == e.stop)
        return any(self.holds_answer(number, message) for message in others)

    def evidence_shares(
        self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]
    ) -> tuple[float, float]:
        """The shares of a question's evidence that are in view, and else fetchable."""
        places = self.prepared.probes[number].evidence
        seen = pointed = 0
        for place in places:
            if place >= self.prepared.probe_position(number):
                continue  # it is not said yet
            if _is_sent_verbatim(entries, place) or self._is_restated(number, place, edited):
                seen += 1
            else:
                pointed += any(e.form.fetchable and e.start <= place < e.stop for e in edited)
        return (seen / len(places), pointed / len(places)) if places else (0.0, 0.0)

    def _is_restated(self, number: int, place: int, edited: Sequence[Entry]) -> bool:
        """Whether an edited message says what that at ``place`` said."""
        said = message_text(self.prepared.history[place]).strip()
        for entry in edited:
            quoted = entry.start == entry.stop
            if not (quoted or entry.start <= place < entry.stop):
                continue
            if said and said in message_text(entry.message):
                return True
            if (
                not entry.is_aggregate
                and place in self.answer_positions[number]
                and self.holds_answer(number, entry.message)
            ):
                return True
        return False


def _is_sent_verbatim(entries: Sequence[Entry], place: int) -> bool:
    """Whether the message at a position of the history is sent word for word."""
    index = bisect_right(entries, place, key=_START) - 1
    # What was inserted before a message begins where that does.
    return index >= 0 and entries[index].form is Form.VERBATIM and entries[index].start == place
