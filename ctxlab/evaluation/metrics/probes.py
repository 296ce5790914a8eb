"""Evidence recall and answer containment of a recording's probes.

No model is called, so this is availability: an upper bound on what a model can answer. Each
question is asked at its position, usually after the last message, and the request that would be
sent is measured.

- **Evidence recall** is the share of a question's evidence messages that are in view, averaged over
  the questions that name evidence. LoCoMo's script measures retrieval in the same way. A message is
  *in view* if it is sent verbatim, or if a summary, a table of contents or an inserted quote
  contains all of its text. A message that was shortened or rewritten is in view if it contained an
  acceptable answer and still does. A stub or a line of contents that replaces it makes it
  *fetchable*.
- **Answer containment** is the share of questions whose answer is in the request as whole words
  (``ctxlab.evaluation.answer_matching``). The question itself does not count. An answer that must
  be derived is in no message, so full history is below 1. A short answer ("two", "yes") may occur
  by chance: ``answer_chance`` is the same share over the questions without any evidence in view.
  Compare it with the control ``nothing``.
- A question without an answer (adversarial, abstention) is asked and its evidence counts, but it
  has no answer containment.

References
----------
- LoCoMo: Maharana et al., 2024; ``task_eval/evaluation.py``.
- LongMemEval: Wu et al., 2024; its retrieval is measured by the same share of evidence sessions or
  turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.context import Ledger
from ctxlab.context.history import Entry, Form
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.messages.types import Message, message_text

_START = attrgetter("start")


class ProbeVisibility(NamedTuple):
    """Visibility of each probe in each trace: arrays of shape ``(traces, probes)``."""

    evidence_in_view: FloatArray
    "share of its evidence that is in view; 0 if it names none"
    evidence_fetchable: FloatArray
    "share of its evidence that is not in view but can be fetched"
    answer_in_view: npt.NDArray[np.bool_]
    "True if an acceptable answer is in the request"
    request_tokens: FloatArray
    "tokens of the request, including the question"


class ProbeMetric(Metric):
    """Whether the evidence and answers of a recording's probes are in view."""

    columns = (
        Column("questions", "questions asked at this request", "questions"),
        Column("evidenced", "questions that name evidence", "questions"),
        Column("evidence_seen", "evidence in view (a question counts in parts)", "questions"),
        Column("evidence_pointed", "evidence not in view but fetchable", "questions"),
        Column("answerable", "questions that have an answer", "questions"),
        Column("answer_seen", "answerable questions with an answer in the request", "questions"),
        Column("unseen", "answerable questions with none of their evidence in view", "questions"),
        Column("unseen_answer", "unseen questions with an answer in the request", "questions"),
        Column("question_tokens", "tokens of the requests that ask questions", "tokens"),
        Column("question_over", "questions whose request is too large", "questions"),
        Column("question_own", "tokens of the strategy's own model calls for them", "tokens"),
    )
    scores = (
        Score.total("questions", "questions that were asked", "questions", better=""),
        Score.share(
            "evidence_recall", "evidence of questions that is in view", "evidence_seen / evidenced"
        ).printed(
            "evidence\nrecall (95 %)",
            "evidence recall: share of a question's evidence messages that is in view",
        ),
        Score.rate(
            "evidence_pointer_rate",
            "evidence of questions that is not in view but can be fetched",
            "evidence_pointed / evidenced",
            better="",
        ).printed(
            "evidence\npointer %",
            "evidence pointer: evidence that is not in view but can be fetched again",
        ),
        Score.share(
            "answer_containment", "questions with an answer in view", "answer_seen / answerable"
        ).printed(
            "answer in\nview (95 %)", "answer in view: questions with an answer in the request"
        ),
        Score.rate(
            "answer_chance", "answers in view without evidence", "unseen_answer / unseen", better=""
        ).printed(
            "chance\nanswer %", "chance answer: the same for questions without evidence in view"
        ),
        Score.mean(
            "question_tokens_mean",
            "mean tokens of a question request",
            "tokens",
            "question_tokens / questions",
        ).printed(
            "question\ntokens", "question tokens: mean tokens of requests that ask a question"
        ),
        Score.rate(
            "question_overflow_rate", "question requests too large", "question_over / questions"
        ).printed(
            "question\nover %", "question over: requests that ask a question and are too large"
        ),
        Score.total("question_own", "tokens of own model calls for questions", "tokens"),
    )
    uses_probes = True

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        # A question counts at the request after it, or at the last request.
        probes, seen = prepared.probes, measure_probe_visibility(prepared, traces)
        every = np.ones((len(traces), len(probes)))
        named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)
        answered = np.array([bool(probe.answers) for probe in probes], dtype=bool)
        room = np.array([trace.budget.limit - trace.budget.reserve for trace in traces])
        unseen = (seen.evidence_in_view == 0) & named & answered
        own = [[_count_call_tokens(each) for each in trace.preview_ledgers] for trace in traces]
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


def _count_call_tokens(ledger: Ledger) -> int:
    return sum(call.prompt_tokens + call.completion_tokens for call in ledger.model_calls)


def measure_probe_visibility(
    prepared: PreparedRecording, traces: Sequence[Trace]
) -> ProbeVisibility:
    """Find which evidence and answers of a recording's probes are in view in each trace.

    Parameters
    ----------
    prepared : PreparedRecording
        The recording that was replayed.
    traces : sequence of Trace
        One trace per configuration.

    Returns
    -------
    ProbeVisibility
        Arrays of shape ``(traces, probes)``.
    """
    replays, order = distinct_replays(traces)
    evidence, pointer, tokens = np.zeros((3, len(replays), len(prepared.probes)))
    answer = np.zeros(tokens.shape, dtype=bool)
    index = _AnswerIndex(prepared)
    for row, trace in enumerate(replays):
        for number, entries in enumerate(trace.preview_entries):
            at = row, number
            tokens[at] = sum([entry.tokens for entry in entries]) + prepared.fixed_tokens
            edited = [entry for entry in entries if entry.form is not Form.VERBATIM]
            evidence[at], pointer[at] = index.evidence_shares(number, entries, edited)
            answer[at] = index.shows_answer(number, entries, edited)
    return ProbeVisibility(evidence[order], pointer[order], answer[order], tokens[order])


class _AnswerIndex:
    """Answers in messages, shared by the traces of one recording."""

    def __init__(self, prepared: PreparedRecording) -> None:
        self.prepared = prepared
        self.answers = [
            [words for text in probe.answers if (words := padded_words(text))]
            for probe in prepared.probes
        ]
        history = prepared.history if prepared.probes else ()
        said = [padded_words(message_text(message)) for message in history]
        self.answer_positions = [
            [place for place, text in enumerate(said) if any(words in text for words in wanted)]
            for wanted in self.answers
        ]
        """``answer_positions[i]``: positions of the messages that contain an answer to question
        ``i``"""
        self._padded_words: dict[int, tuple[Message, str]] = {}

    def holds_answer(self, number: int, message: Message) -> bool:
        """Check if a message that a strategy made contains an answer to a question."""
        if id(message) not in self._padded_words:
            # Keep the message alive, so that its id is not reused.
            self._padded_words[id(message)] = message, padded_words(message_text(message))
        said = self._padded_words[id(message)][1]
        return any(words in said for words in self.answers[number])

    def shows_answer(self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]) -> bool:
        """Check if an answer is in the request, outside of the question."""
        end = self.prepared.probe_position(number)
        # Newest first: recent messages are the most likely to be sent.
        places = (p for p in reversed(self.answer_positions[number]) if p < end)
        # Skip the question itself, but not messages inserted before it.
        others = (e.message for e in edited if e.start < end or e.start == e.stop)
        return any(_is_sent_verbatim(entries, p) for p in places) or any(
            self.holds_answer(number, message) for message in others
        )

    def evidence_shares(
        self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]
    ) -> tuple[float, float]:
        """Return the shares of a question's evidence that are in view, and that are only fetchable."""
        places = self.prepared.probes[number].evidence
        seen = pointed = 0
        for place in places:
            if place >= self.prepared.probe_position(number):
                continue  # not part of the conversation yet
            if _is_sent_verbatim(entries, place) or self._is_restated(number, place, edited):
                seen += 1
            else:
                pointed += any(e.form.fetchable and e.start <= place < e.stop for e in edited)
        return (seen / len(places), pointed / len(places)) if places else (0.0, 0.0)

    def _is_restated(self, number: int, place: int, edited: Sequence[Entry]) -> bool:
        """Check if an edited message contains the text, or the answer, of the message at ``place``."""
        said = message_text(self.prepared.history[place]).strip()
        had_answer = place in self.answer_positions[number]
        return any(
            (said and said in message_text(entry.message))
            or (had_answer and not entry.is_aggregate and self.holds_answer(number, entry.message))
            for entry in edited
            if entry.start == entry.stop or entry.start <= place < entry.stop
        )


def _is_sent_verbatim(entries: Sequence[Entry], place: int) -> bool:
    """Check if the message at a position of the history is sent verbatim."""
    index = bisect_right(entries, place, key=_START) - 1
    # An inserted entry starts at the same position as the message after it.
    return index >= 0 and entries[index].form is Form.VERBATIM and entries[index].start == place
