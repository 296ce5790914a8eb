"""Widget that shows an explorer in Jupyter, VS Code, Colab and marimo."""

from __future__ import annotations

import json
from typing import Any

import anywidget
import traitlets

from ctxlab._utils.text import show_symbols
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
            document=_make_sendable(answers.document()),
            selection={**selection._asdict(), "request": -1},
        )
        self.on_msg(self._reply)

    @property
    def replay(self) -> Replay:
        """Replay that the explorer shows, with tables such as ``needs`` and ``losses``."""
        shown = {name: self.selection[name] for name in Selection._fields}
        return self._answers.replay(Selection(**shown))

    def _reply(self, _widget: Any, question: dict[str, Any], _buffers: Any) -> None:
        try:
            answer = self._answers.answer(question)
        except Exception as error:  # the view waits for an answer, whatever happened
            answer = {"error": f"{type(error).__name__}: {error}"}
        self.send(_make_sendable({"id": question["id"], **answer}))

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


def _make_sendable(value: Any) -> Any:
    """Replace lone surrogates of logs by symbols, because a message to the browser is UTF-8."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return _replace_surrogates(value)
    return value


def _replace_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return show_symbols(value)
    if isinstance(value, dict):
        return {_replace_surrogates(key): _replace_surrogates(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_surrogates(each) for each in value]
    return value
