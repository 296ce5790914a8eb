"""Render the parts of a context window as a bar, with one line of figures per part."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence

from rich.text import Text

from ctxlab._utils.numbers import format_percent
from ctxlab.agent.manager import CONTEXT_PARTS

_COLORS = ("blue", "magenta", "yellow", "green", "cyan", "dim")
_STYLES = dict(zip(CONTEXT_PARTS, _COLORS, strict=True))
# Each part is drawn with a different character, so that the bar is readable without colours.
_SIGNS = dict(zip(CONTEXT_PARTS, "█▓▒■░·", strict=True))
_LETTERS = dict(zip(CONTEXT_PARTS, "STUMR.", strict=True))
_PART_NOTES = {"reserve": "kept for the reply"}
_MAX_BAR_WIDTH, _MIN_WIDTH_FOR_NOTES, _MIN_WIDTH_FOR_SHARES = 80, 52, 36


def allocate_cells(sizes: Sequence[int], count: int) -> list[int]:
    """Distribute the cells of a bar over parts, in proportion to the sizes of the parts.

    Shares are rounded down, but each part with a size above zero gets at least one cell if there are
    enough cells. Remaining cells go to the parts that are furthest below their exact shares.

    Parameters
    ----------
    sizes : sequence of int
        Sizes of the parts.
    count : int
        Number of cells to distribute.

    Returns
    -------
    list of int
        Number of cells of each part.

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
    while sum(shared) > count:  # take from the part most above its share
        place = max(range(len(sizes)), key=lambda n: (shared[n] > 1, shared[n] - ideal[n], n))
        shared[place] -= 1
    return shared


def render_context_bar(parts: Mapping[str, int], width: int, title: str = "") -> Text:
    """Draw a context window as a bar, followed by one line per part with its tokens and its share.

    If the sum of the request and the reserve exceeds the limit, the full bar represents this sum, and
    the last line says by how many tokens it exceeds the limit.

    Parameters
    ----------
    parts : mapping of str to int
        Tokens of each part and the ``limit``, as returned by ``Agent.context_breakdown``.
    width : int
        Available width in columns. If it is less than 36, shares are left out.
    title : str
        Title above the bar; empty for no title.

    Returns
    -------
    Text
        The bar and the lines below it.
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
        text.append(f"{over:,} tokens over the limit (including the reserve)\n", "red")
    text.rstrip()
    return text


def _can_encode(signs: str) -> bool:
    """Return True if the encoding of standard output contains all given characters."""
    try:
        signs.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
