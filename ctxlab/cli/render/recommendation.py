"""Render a recommendation: four or five lines, and what they assume."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from rich.text import Text

from ctxlab.cli.render import format as show

if TYPE_CHECKING:
    from ctxlab.evaluation.recommendation import Recommendation


def recommendation_json(found: Recommendation) -> str:
    """Convert a recommendation to a JSON object.

    Parameters
    ----------
    found : Recommendation
        Recommendation to convert.

    Returns
    -------
    str
        JSON object as text: the lines, all measurements, and the scores of each setting that was tried.
    """
    return json.dumps(found.to_dict(), ensure_ascii=False, indent=1)


def recommendation_text(found: Recommendation) -> str:
    """Return a recommendation as text.

    Parameters
    ----------
    found : Recommendation
        Recommendation to print.

    Returns
    -------
    str
        The lines, each with its name, and a paragraph with the assumptions.
    """
    parts: list[Text] = []
    for name, text in found.lines.items():
        first, *block = text.split("\n")
        parts.append(Text(f"{name}: ", "bold").append(first, ""))
        parts += [Text(line, no_wrap=True) for line in block]
    return show.render_to_text(*parts, Text(), Text(found.assumptions, "dim"))
