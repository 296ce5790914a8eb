"""Evidence recall and answer containment of a recording's probes.

No model is called. The metric measures which messages and answers a request contains, and not what a
model would answer. Each question is asked at its position in the recording, usually
after the last message. The measured request is the one that would ask the question.

- **Evidence recall** is the share of a question's evidence messages that are in view, averaged over
  the questions with evidence. LoCoMo's script measures retrieval in the same way. A message is *in
  view* if it is sent verbatim, or if a summary, a table of contents or an inserted message contains
  all of its text. A shortened or rewritten message is also in view if both the original and the new
  version contain an accepted answer. A message is *fetchable* if a stub or a line of a table of
  contents replaces it.
- **Answer containment** is the share of questions whose request contains an accepted answer as
  whole words (see ``ctxlab.evaluation.answer_matching``). The text of the question itself is not
  searched. An answer that must be derived from several facts is in no message, so the score of full
  history is below 1. A short answer ("two", "yes") can occur in a request by chance.
  ``answer_chance`` estimates how often: it is the answer containment of the questions without any
  evidence in view. The answer containment of the control ``nothing`` is another estimate.
- A question without an accepted answer (adversarial, abstention) counts for evidence recall, and
  does not count for answer containment.

References
----------
- LoCoMo: Maharana et al., 2024; ``task_eval/evaluation.py``.
- LongMemEval: Wu et al., 2024. Its retrieval score is also the share of evidence that was found,
  counted in sessions or turns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from ctxlab.context.context import Ledger
from ctxlab.context.history import Entry
from ctxlab.evaluation.answer_matching import padded_words
from ctxlab.evaluation.engine import PreparedRecording, Trace, distinct_replays
from ctxlab.evaluation.metrics.base import Column, Figures, FloatArray, Metric, Score
from ctxlab.messages.types import Message, message_text

_START = attrgetter("start")


class ProbeVisibility(NamedTuple):
    """Visibility of each probe in each trace: arrays of shape ``(traces, probes)``."""

    evidence_in_view: FloatArray
    "share of the probe's evidence messages that are in view; 0 if the probe has no evidence"
    evidence_fetchable: FloatArray
    "share of the probe's evidence messages that are not in view but can be fetched again"
    answer_in_view: npt.NDArray[np.bool_]
    "True if the request contains an accepted answer"
    request_tokens: FloatArray
    "number of tokens of the request, including the question"


class ProbeMetric(Metric):
    """Two shares over the probes of a recording: evidence in view, and probes with an answer in view."""

    columns = (
        Column(
            "questions",
            "questions asked since the previous request; the last request also counts later questions",
            "questions",
            integer=True,
        ),
        Column("evidenced", "questions with evidence messages", "questions", integer=True),
        Column(
            "evidence_seen",
            "share of a question's evidence messages in view, summed over the questions",
            "questions",
        ),
        Column(
            "evidence_pointed",
            "share of a question's evidence messages not in view but fetchable, summed over questions",
            "questions",
        ),
        Column("answerable", "questions with an accepted answer", "questions", integer=True),
        Column(
            "answer_seen",
            "questions whose request contains an accepted answer",
            "questions",
            integer=True,
        ),
        Column(
            "unseen",
            "questions with an accepted answer whose evidence messages are all out of view",
            "questions",
            integer=True,
        ),
        Column(
            "unseen_answer",
            "questions counted in `unseen` whose request contains an accepted answer",
            "questions",
            integer=True,
        ),
        Column(
            "question_tokens",
            "tokens of the requests that ask the questions",
            "tokens",
            integer=True,
        ),
        Column(
            "question_over", "questions whose request exceeds the budget", "questions", integer=True
        ),
        Column(
            "question_own",
            "tokens of the strategy's own model calls for the questions",
            "tokens",
            integer=True,
        ),
    )
    scores = (
        Score.total("questions", "number of questions asked", "questions", better=""),
        Score.share(
            "evidence_recall",
            "share of a question's evidence messages in view, averaged over questions",
            "evidence_seen / evidenced",
        ).printed(
            "evidence\nrecall (95 %)",
            "evidence recall: share of a question's evidence messages that are in the request",
        ),
        Score.rate(
            "evidence_pointer_rate",
            "share of evidence messages that are not in view but can be fetched again",
            "evidence_pointed / evidenced",
            better="",
        ).printed(
            "evidence\npointer %",
            "evidence pointer: share of evidence messages that are not in the request but can be "
            "fetched again",
        ),
        Score.share(
            "answer_containment",
            "share of questions whose request contains an accepted answer",
            "answer_seen / answerable",
        ).printed(
            "answer in\nview (95 %)",
            "answer in view: share of questions whose request contains an accepted answer",
        ),
        Score.rate(
            "answer_chance",
            "answer_containment of the questions without any evidence in view",
            "unseen_answer / unseen",
            better="",
        ).printed(
            "chance\nanswer %",
            "chance answer: answer in view for questions without any evidence in the request",
        ),
        Score.mean(
            "question_tokens_mean",
            "mean number of tokens of a request that asks a question",
            "tokens",
            "question_tokens / questions",
        ).printed(
            "question\ntokens", "question tokens: mean tokens of a request that asks a question"
        ),
        Score.rate(
            "question_overflow_rate",
            "share of questions whose request exceeds the budget",
            "question_over / questions",
        ).printed(
            "question\nover %",
            "question over: share of questions whose request exceeds the budget",
        ),
        Score.total(
            "question_own", "tokens of the strategy's own model calls for questions", "tokens"
        ),
    )
    uses_probes = True

    @override
    def measure(self, prepared: PreparedRecording, traces: Sequence[Trace]) -> Figures:
        # A question is counted in the row of the next request, or of the last one if there is none.
        probes, seen = prepared.probes, measure_probe_visibility(prepared, traces)
        every = np.ones((len(traces), len(probes)))
        named = np.array([bool(probe.evidence) for probe in probes], dtype=bool)
        answered = np.array([bool(probe.answers) for probe in probes], dtype=bool)
        room = np.array([trace.budget.room for trace in traces])
        unseen = (seen.evidence_in_view == 0) & named & answered
        own = [[_count_call_tokens(each) for each in trace.preview_ledgers] for trace in traces]
        requests = len(prepared.request_positions)
        at = np.zeros(len(probes), dtype=np.intp)
        for request, numbers in prepared.probes_by_request.items():
            at[numbers] = min(request, requests - 1)

        def add(values: npt.NDArray[Any]) -> FloatArray:
            # Not a product of matrices: its last digit depends on the number of threads.
            sums = np.zeros((requests, len(traces)))
            np.add.at(sums, at, values.T)
            return sums.T

        return {
            "questions": add(every),
            "evidenced": add(every * named),
            "evidence_seen": add(seen.evidence_in_view),
            "evidence_pointed": add(seen.evidence_fetchable),
            "answerable": add(every * answered),
            "answer_seen": add(seen.answer_in_view & answered),
            "unseen": add(unseen),
            "unseen_answer": add(unseen & seen.answer_in_view),
            "question_tokens": add(seen.request_tokens),
            "question_over": add(seen.request_tokens > room[:, None]),
            "question_own": add(np.array(own, dtype=np.float64).reshape(every.shape)),
        }


probes = ProbeMetric()


def _count_call_tokens(ledger: Ledger) -> int:
    return sum(call.prompt_tokens + call.completion_tokens for call in ledger.model_calls)


def measure_probe_visibility(
    prepared: PreparedRecording, traces: Sequence[Trace]
) -> ProbeVisibility:
    """Measure for each trace and probe how much evidence is in view, and if an answer is in view.

    Parameters
    ----------
    prepared : PreparedRecording
        Recording that was replayed.
    traces : sequence of Trace
        Traces of the recording, one per configuration.

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
            edited = [entry for entry in entries if not entry.is_verbatim]
            evidence[at], pointer[at] = index.evidence_shares(number, entries, edited)
            answer[at] = index.shows_answer(number, entries, edited)
    return ProbeVisibility(evidence[order], pointer[order], answer[order], tokens[order])


class _AnswerIndex:
    """Index of the probes' answers in messages, shared by the traces of one recording."""

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
        """for each probe: positions of the recorded messages that contain an accepted answer"""
        self._padded_words: dict[int, tuple[Message, str]] = {}

    def holds_answer(self, number: int, message: Message) -> bool:
        """Check if an edited message contains an accepted answer to probe ``number``."""
        if id(message) not in self._padded_words:
            # Keep the message alive, so that its id is not reused.
            self._padded_words[id(message)] = message, padded_words(message_text(message))
        said = self._padded_words[id(message)][1]
        return any(words in said for words in self.answers[number])

    def shows_answer(self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]) -> bool:
        """Check if the request, without its question, contains an answer to probe ``number``.

        ``entries`` are all messages of the request. ``edited`` are the messages among them that are
        not sent verbatim.
        """
        end = self.prepared.probe_position(number)
        # Start with the newest message, because recent messages are the most likely to be sent.
        places = (p for p in reversed(self.answer_positions[number]) if p < end)
        # Skip the question itself, and search messages that were inserted before it.
        others = (e.message for e in edited if e.start < end or e.start == e.stop)
        return any(_is_sent_verbatim(entries, p) for p in places) or any(
            self.holds_answer(number, message) for message in others
        )

    def evidence_shares(
        self, number: int, entries: Sequence[Entry], edited: Sequence[Entry]
    ) -> tuple[float, float]:
        """Return two shares of a probe's evidence: in view, and not in view but fetchable."""
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
        """Check if an edited message or a summary still contains the evidence in message ``place``.

        The evidence is the whole text of the message. An edited version of the message itself is
        also enough if both versions contain an accepted answer.
        """
        said = message_text(self.prepared.history[place]).strip()
        had_answer = place in self.answer_positions[number]
        return any(
            (said and said in message_text(entry.message))
            or (had_answer and not entry.is_aggregate and self.holds_answer(number, entry.message))
            for entry in edited
            if entry.start == entry.stop or entry.start <= place < entry.stop
        )


def _is_sent_verbatim(entries: Sequence[Entry], place: int) -> bool:
    """Check if the message at position ``place`` of the history is sent verbatim."""
    index = bisect_right(entries, place, key=_START) - 1
    # An inserted entry starts at the same position as the message after it.
    return index >= 0 and entries[index].is_verbatim and entries[index].start == place
