"""Render the parts of a context window as a bar, with a line of figures for each part."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.text import Text

from ctxlab.agent.manager import CONTEXT_PARTS
from ctxlab.cli.render.format import format_percent

_COLORS = ("blue", "magenta", "yellow", "green", "cyan", "dim")
_STYLES = dict(zip(CONTEXT_PARTS, _COLORS, strict=True))
# Each part has a sign of its own, so that the bar is readable without colours.
_SIGNS = dict(zip(CONTEXT_PARTS, "█▓▒■░·", strict=True))
_LETTERS = dict(zip(CONTEXT_PARTS, "STUMR.", strict=True))
_PART_NOTES = {"reserve": "kept for the reply"}
_MAX_BAR_WIDTH, _MIN_WIDTH_FOR_NOTES, _MIN_WIDTH_FOR_SHARES = 80, 52, 36


def allocate_cells(sizes: Sequence[int], count: int) -> list[int]:
    """Distribute cells over parts by size; each part above zero gets at least one if possible.

    Parameters
    ----------
    sizes : sequence of int
        The sizes of the parts.
    count : int
        The number of cells.

    Returns
    -------
    list of int
        The cells of each part.

    Examples
    --------
    >>> allocate_cells([120, 900, 1, 0, 8979], 20)
    [1, 1, 1, 0, 17]
    """
    total = sum(sizes)
    if total <= 0 or count <= 0:
        return [0] * len(sizes)
    ideal = [size / total * count for size in sizes]
    shared = [max(int(part), int(size > 0)) for part, size in zip(ideal, sizes, strict=True)]
    while sum(shared) < count:
        place = max(range(len(sizes)), key=lambda n: ideal[n] - shared[n])
        shared[place] += 1
    while sum(shared) > count:  # from the part that is furthest above its share, the last one first
        place = max(range(len(sizes)), key=lambda n: (shared[n] > 1, shared[n] - ideal[n], n))
        shared[place] -= 1
    return shared


def render_context_bar(parts: Mapping[str, int], width: int, title: str = "") -> Text:
    """Draw a context window as a bar, with a line for the tokens and share of each part.

    If the request is larger than the window, the bar shows the request, and a last line gives the
    number of tokens over the limit.

    Parameters
    ----------
    parts : mapping of str to int
        Tokens by part and the ``limit``, as ``Agent.context_breakdown`` returns them.
    width : int
        Columns to fill; below 36 shares are left out.
    title : str
        A title above the bar.

    Returns
    -------
    Text
        The bar and its lines.
    """
    signs = _SIGNS if _can_encode("".join(_SIGNS.values())) else _LETTERS
    limit = parts["limit"]
    sizes = [max(0, parts.get(name, 0)) for name in CONTEXT_PARTS]
    used = sum(sizes[:-2])
    head = f"{used:,} of {limit:,} tokens ({format_percent(used / limit) if limit else '–'} %)"
    text = Text()
    if title:
        text.append(f"{title}\n", "dim")
    text.append(f"{head}\n", "bold")
    cells = allocate_cells(sizes, min(width, _MAX_BAR_WIDTH))
    for name, count in zip(CONTEXT_PARTS, cells, strict=True):
        text.append(signs[name] * count, _STYLES[name])
    text.append("\n")
    for name, size in zip(CONTEXT_PARTS, sizes, strict=True):
        text.append(signs[name], _STYLES[name])
        text.append(f" {name:<9}{size:>11,}")
        if width >= _MIN_WIDTH_FOR_SHARES:
            text.append(f"{format_percent(size / limit) if limit else '–':>6} %")
            if width >= _MIN_WIDTH_FOR_NOTES and (meaning := _PART_NOTES.get(name)):
                text.append(f"  {meaning}", "dim")
        text.append("\n")
    if (over := used + sizes[-2] - limit) > 0:
        text.append(f"{over:,} tokens over the limit, with the reserve included\n", "red")
    text.rstrip()
    return text


def _can_encode(signs: str) -> bool:
    """Test if the encoding of standard output has these signs."""
    try:
        signs.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
