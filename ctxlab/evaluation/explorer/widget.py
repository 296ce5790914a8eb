"""Widget that shows an explorer in Jupyter, VS Code, Colab and marimo."""

from __future__ import annotations

from typing import Any

import anywidget
import traitlets

from ctxlab.evaluation.explorer.answers import ExplorerAnswers, Selection
from ctxlab.evaluation.frontend import bundle_module, read_asset
from ctxlab.evaluation.replay import Replay


class Explorer(anywidget.AnyWidget):
    """Linked views of a run: leaderboard, frontier, recordings, context map, request and message.

    Nothing is fetched: the scripts and the style are part of ctxlab. The view asks Python for a map, a
    request or a message when it is shown, so the kernel must run.

    Parameters
    ----------
    answers : ExplorerAnswers
        Data.
    selection : Selection
        What to show first.
    """

    _esm = bundle_module("explorer.js")
    _css = read_asset("style.css")
    document = traitlets.Dict().tag(sync=True)
    selection = traitlets.Dict().tag(sync=True)

    def __init__(self, answers: ExplorerAnswers, selection: Selection) -> None:
        self._answers = answers
        super().__init__(
            document=answers.document(), selection={**selection._asdict(), "request": -1}
        )
        self.on_msg(self._reply)

    @property
    def replay(self) -> Replay:
        """Replay that the explorer shows, with tables such as ``needs`` and ``losses``."""
        shown = {name: self.selection[name] for name in Selection._fields}
        return self._answers.replay(Selection(**shown))

    def _reply(self, _widget: Any, question: dict[str, Any], _buffers: Any) -> None:
        self.send({"id": question["id"], **self._answers.answer(question)})

    def __repr__(self) -> str:
        """Return a short description."""
        return f"<Explorer of {self._answers.results!r}>"

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Return the widget, and a static picture for programs that show no widgets."""
        from ctxlab.errors import CannotReplay

        shown = super()._repr_mimebundle_(**kwargs)
        if shown is None:
            return None
        data, metadata = shown
        try:
            picture = self.replay._repr_html_()
        except CannotReplay:
            picture = self._answers.results._repr_html_()
        return {**data, "text/html": picture}, metadata
