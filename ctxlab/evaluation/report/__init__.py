"""Report of a run as one HTML file that works offline.

The report answers, in this order: which strategy, what it saves and what it forgets; compared with what;
whether there is a trade-off; where it hurts; what exactly was lost; and why one can believe it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ctxlab.evaluation.report.document import make_document
from ctxlab.evaluation.report.page import render_report

if TYPE_CHECKING:
    from ctxlab.evaluation.results import Results
    from ctxlab.messages.types import Recording

__all__ = ["make_report"]

DEFAULT_SAMPLE = 6
"""Number of recordings with context maps."""


def make_report(
    results: Results,
    recordings: Iterable[Recording] = (),
    *,
    title: str = "",
    with_text: bool = False,
    sample: int = DEFAULT_SAMPLE,
    min_recall: float = 0.95,
    progress: bool | None = None,
) -> str:
    """Return the report of a run as the text of one HTML file.

    Parameters
    ----------
    results : Results
        Results of ``evaluate``.
    recordings : iterable of Recording, optional
        Recordings of the run, for the context maps. Those that are not given are read from the files
        that the manifest names.
    title : str, optional
        Title of the report.
    with_text : bool, default False
        True to include texts of messages of the sampled recordings, and the names of needs.
    sample : int, default 6
        Number of recordings with context maps; 0 for none.
    min_recall : float, default 0.95
        Minimum of the headline recall of a recommended strategy; see ``Results.verdict``.
    progress : bool, optional
        Whether to show a progress bar. None shows it in a notebook and on a terminal.

    Returns
    -------
    str
        HTML.
    """
    document = make_document(
        results,
        recordings,
        with_text=with_text,
        sample=sample,
        min_recall=min_recall,
        progress=progress,
    )
    return render_report(results, document, title or _default_title(results), min_recall)


def _default_title(results: Results) -> str:
    data = results.manifest["spec"].get("data") or []
    names = ", ".join(dict.fromkeys(Path(path).name for path in data[:3]))
    return f"Context strategies on {names}" if names else "Context strategies"
