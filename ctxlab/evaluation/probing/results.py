"""Results of runs that ask a model: the scores of an evaluation, and a table of all answers."""

from __future__ import annotations

from abc import abstractmethod
from itertools import pairwise
from pathlib import Path
from typing import ClassVar, Self

import pandas as pd

from ctxlab._utils.tables import Column, legend_of
from ctxlab.errors import ReadError
from ctxlab.evaluation.comparison.paired import compare_strategies
from ctxlab.evaluation.probing.judge import JudgeAgreement, judge_agreement, judge_key
from ctxlab.evaluation.results import Results

GRADED_SCORES = ("exact", "f1", "contains")
"""Scores that compare a reply with the reference answers of its question."""

_KINDS = {
    "exam": ("QA run", "ctxlab.QAResults.load"),
    "agreement": ("next-action run", "ctxlab.NextActionResults.load"),
}
_EVALUATION = ("evaluation", "ctxlab.Results.load")


class AnsweredResults(Results):
    """Base class of results that include the answers of a model.

    There is one subclass for each kind of run, such as question answering.

    Parameters
    ----------
    results : Results
        Measurements and scores.
    answers : pandas.DataFrame
        Table with one row per combination of question, strategy, limit and replicate.
    """

    kind: ClassVar[str]
    "key in the manifest that identifies the kind of run and contains its settings"
    note: ClassVar[str]
    "advice on reading the leaderboard, shown above it in a notebook"

    def __init__(self, results: Results, answers: pd.DataFrame) -> None:
        tables = {"runs": results._run_table, "compactions": results._compaction_table}
        super().__init__(
            results._request_table, results.scores, results.manifest, results.recordings, **tables
        )
        self.answers = answers

    def equals(self, other: Results) -> bool:
        """Check if other results have the same answers, measurements, scores and manifest.

        The key ``calls`` of the manifest is ignored, as in ``Results.equals``.

        Parameters
        ----------
        other : Results
            Results to compare with.

        Returns
        -------
        bool
            True if both have the same type and everything except ``calls`` is equal.
        """
        same = isinstance(other, type(self)) and self.answers.equals(other.answers)
        return same and super().equals(other)

    def write_files(self, folder: Path) -> None:
        """Write the files of ``Results``, and ``answers.parquet``.

        Parameters
        ----------
        folder : Path
            Existing folder to write to.
        """
        super().write_files(folder)
        self.answers.to_parquet(folder / "answers.parquet", index=False)

    @classmethod
    def load(cls, folder: str | Path) -> Self:
        """Load results that ``save`` wrote.

        Parameters
        ----------
        folder : str or Path
            Folder of the saved run.

        Returns
        -------
        AnsweredResults
            Saved results.

        Raises
        ------
        ReadError
            If the folder does not contain a saved run of this kind.
        """
        saved = Results.load(folder)
        expected, _ = _KINDS[cls.kind]
        if cls.kind not in saved.manifest:
            kinds = (names for kind, names in _KINDS.items() if kind in saved.manifest)
            found, loader = next(kinds, _EVALUATION)
            hint = f"expected a saved {expected}, got a saved {found}; use {loader}"
            raise ReadError(folder, None, hint)
        try:
            answers = pd.read_parquet(Path(folder) / "answers.parquet")
        except (OSError, ValueError) as error:
            raise ReadError(folder, None, f"not a saved {expected}: {error}") from None
        return cls(saved, answers)

    def __repr__(self) -> str:
        """Return a short description with the model and the number of answers."""
        model = self.manifest[self.kind]["answer_model"]
        return f"<{type(self).__name__} of {model}: {len(self.answers):,} answers>"

    @abstractmethod
    def _printed(self, board: pd.DataFrame) -> tuple[list[Column], list[str]]:
        """Return the columns of the table that is shown, and the notes below it."""

    def _repr_html_(self) -> str:
        from ctxlab.evaluation.html import grouped_html, paragraph, wrap_with_frame

        board = self.leaderboard()
        columns, notes = self._printed(board)
        said = (paragraph(note, is_note=True) for note in notes)
        parts = [paragraph(self.note), grouped_html(board, columns), *said]
        return wrap_with_frame(parts, board)


class QAResults(AnsweredResults):
    """Results of question answering: the scores of each question, and all replies.

    ``requests`` has one row per combination of question, strategy and limit. ``answers`` has one row
    per replicate of each combination. Its columns are the probe and its category, the ``outcome``
    (answered, empty, unanswered, invalid) with the reason in ``why``, the reply, the scores of the
    reply (nan if it cannot be scored), the verdict of each judge, and the billed tokens and price.

    Parameters
    ----------
    results : Results
        Results with the scores of each question.
    answers : pandas.DataFrame
        Table of all replies.

    Examples
    --------
    >>> from ctxlab import Message, Probe, Recording, run_qa
    >>> from ctxlab.llm import ScriptedClient
    >>> talk = (Message("user", "The port is 8080."), Message("assistant", "Noted."))
    >>> asked = Recording("r", talk, probes=(Probe("q1", "Which port?", ("8080",)),))
    >>> client = ScriptedClient("8080", "I do not know.")
    >>> found = run_qa([asked], ["full", "nothing"], 1000, answer_model="gpt-4o", client=client)
    >>> found.answers[["strategy", "outcome", "reply"]].values.tolist()
    [['full()', 'answered', '8080'], ['nothing()', 'answered', 'I do not know.']]
    """

    kind = "exam"
    note = "Off-policy replay. Scores depend on both model and context; compare them with those of full."

    def _printed(self, board: pd.DataFrame) -> tuple[list[Column], list[str]]:
        from ctxlab.evaluation.probing.qa_table import qa_columns, qa_notes

        columns = list(qa_columns(self, board))
        return columns, list(qa_notes(self, board, legend_of(columns)))

    def _compute_leaderboard(self, resamples: int, seed: int) -> pd.DataFrame:
        """Compute the leaderboard, with a ``…_sd`` column per score if there are replicates."""
        board = super()._compute_leaderboard(resamples, seed)
        spread = self.replicate_std()
        if spread.empty:
            return board
        return board.merge(spread.reset_index(), on=["strategy", "limit"], how="left", sort=False)

    def replicate_std(self) -> pd.DataFrame:
        """Compute the standard deviation of each score over replicates.

        It shows how much the scores vary when the same questions are asked again. It does not
        include the variation between recordings.

        Returns
        -------
        pandas.DataFrame
            One row per limit and strategy; no rows if there is only one replicate.
        """
        if self.answers["replicate"].nunique() < 2:
            return pd.DataFrame()
        judges = (judge_key(number) for number, _ in enumerate(self.judges, 1))
        names = [*GRADED_SCORES, *judges]
        keys = ["limit", "strategy"]
        means = self.answers.groupby([*keys, "replicate"], sort=False)[names].mean()
        return means.groupby(keys, sort=False).std(ddof=1).add_suffix("_sd")

    @property
    def judges(self) -> tuple[str, ...]:
        """Models of the judges, in the order in which they were given."""
        return tuple(self.manifest["exam"]["judges"])

    def judge_agreement(self) -> dict[tuple[str, str], JudgeAgreement]:
        """Compute the agreement of each judge with the next judge in ``judges``.

        Only replies with a verdict from both judges are compared.

        Returns
        -------
        dict of (str, str) to JudgeAgreement
            Agreement by pair of judge models.
        """
        found = {}
        for (i, one), (j, other) in pairwise(enumerate(self.judges, 1)):
            frame = self.answers[self.answers["outcome"] == "answered"]
            frame = frame.dropna(subset=[judge_key(i), judge_key(j)])
            # Equal replies to a question are judged only once, so they are counted once.
            frame = frame.drop_duplicates(["recording", "probe", "reply"])
            first, second = (frame[judge_key(n)].to_numpy() == 1 for n in (i, j))
            found[one, other] = judge_agreement(first, second, list(frame["cluster"]))
        return found


FULL_HISTORY = "full()"
"""Name of the control ``full`` in results. All strategies are compared with this control."""


class NextActionResults(AnsweredResults):
    """Results of next-action runs: how often a model makes the recorded tool calls.

    ``requests`` has one row per combination of sampled request, strategy and limit. ``answers`` has
    one row per replicate of each combination. Its columns are the ``position`` in the recording, the
    ``outcome`` (answered, unanswered, invalid) with the reason in ``why``, the ``recorded`` calls,
    the calls or text that the model ``said``, the shares of agreement (``name``, ``arguments``,
    ``both``, ``leaves``, ``entities``; nan without recorded calls), the counted ``tokens`` of the
    request, and the billed tokens and price.

    Parameters
    ----------
    results : Results
        Results with the scores of each request.
    answers : pandas.DataFrame
        Table of all replies.

    Examples
    --------
    >>> from ctxlab import Message, Recording, ToolCall, evaluate_next_action
    >>> from ctxlab.llm import ScriptedClient
    >>> call = ToolCall("c1", "read", '{"path": "a.py"}')
    >>> talk = (Message("user", "Look into a.py."), Message("assistant", tool_calls=(call,)))
    >>> client = ScriptedClient("I have no tools.")
    >>> found = evaluate_next_action(
    ...     [Recording("r", talk)], "full", 1000, answer_model="gpt-5-mini", client=client
    ... )
    >>> found.answers[["recorded", "said", "both"]].values.tolist()
    [['read({"path": "a.py"})', 'I have no tools.', 0.0]]
    """

    kind = "agreement"
    note = "Off-policy replay. A different call may be as good: compare scores with those of full."

    def _printed(self, board: pd.DataFrame) -> tuple[list[Column], list[str]]:
        from ctxlab.evaluation.probing.next_action_table import (
            next_action_columns,
            next_action_notes,
        )

        columns = next_action_columns(self, board)
        return columns, list(next_action_notes(self, board, legend_of(columns)))

    def difference_to_full(self, score: str = "agrees_both") -> pd.DataFrame:
        """Compare each strategy with the control ``full`` under every limit.

        Parameters
        ----------
        score : str, default "agrees_both"
            Name of the score to compare.

        Returns
        -------
        pandas.DataFrame
            Columns ``strategy``, ``limit``, ``difference`` (paired by request), and ``low`` and
            ``high`` (bounds of its interval over clusters). No rows if ``full`` was not evaluated.
        """
        heads = {"a": "strategy", "limit_a": "limit"}
        wanted = [*heads, "difference", "low", "high"]
        names = list(dict.fromkeys(name for name, _ in self.configurations))
        others = [name for name in names if name != FULL_HISTORY] if FULL_HISTORY in names else []
        compared = (compare_strategies(self, name, FULL_HISTORY, scores=score) for name in others)
        found = [each.table[wanted] for each in compared]
        whole = pd.concat(found, ignore_index=True) if found else pd.DataFrame(columns=wanted)
        return whole.rename(columns=heads)
