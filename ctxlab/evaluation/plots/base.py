"""Helpers of all plots: axes, colours for light and dark styles, descriptions, and empty plots.

A plot takes its fonts, sizes and grounds from matplotlib's ``rcParams``. Each plot stores a description
in words as the label of its axes (``Axes.get_label``), for the alternative text of the picture.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import parse_limit
from ctxlab._utils.numbers import format_share
from ctxlab._utils.text import clip_line, show_symbols
from ctxlab.errors import SpecError
from ctxlab.evaluation.plots.colors import COLOR_CYCLE, LIGHT_CYCLE

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from matplotlib.axes import Axes
    from matplotlib.image import AxesImage

LINE_STYLES = ("-", "--", ":", "-.")
"""Styles of neighbouring lines."""
MAX_LINES = 10
"""Maximum number of strategies in a plot of lines."""


def make_axes(ax: Axes | None, width: float = 7.5, height: float = 4.5) -> Axes:
    """Return axes to draw on: those that were passed, or new ones.

    Parameters
    ----------
    ax : matplotlib.axes.Axes or None
        Axes that were passed.
    width, height : float, optional
        Size of a new figure in inches.

    Returns
    -------
    matplotlib.axes.Axes
        Axes.
    """
    if ax is not None:
        return ax
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(width, height), layout="constrained")[1]


def is_dark(ax: Axes) -> bool:
    """Return True if the ground of the axes is dark.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.

    Returns
    -------
    bool
        True for a dark ground.
    """
    from matplotlib.colors import to_rgb

    red, green, blue = to_rgb(ax.get_facecolor())
    return 0.299 * red + 0.587 * green + 0.114 * blue < 0.5


def text_color() -> Any:
    """Return the colour of text in the current style.

    Returns
    -------
    object
        Colour.
    """
    import matplotlib as mpl

    return mpl.rcParams["text.color"]


def quiet_color(ax: Axes) -> str:
    """Return the colour of controls and notes, which can be read on the ground of the axes.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.

    Returns
    -------
    str
        Colour.
    """
    return "#A3A9B2" if is_dark(ax) else "#6B7078"


def rule_color(ax: Axes) -> str:
    """Return the colour of grids and guide lines.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.

    Returns
    -------
    str
        Colour.
    """
    return "#3A3F46" if is_dark(ax) else "#DDDFE2"


def color_of(ax: Axes, number: int) -> str:
    """Return the colour of a category: dark colours on a light ground, and light ones on a dark ground.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    number : int
        Number of the category, from 0.

    Returns
    -------
    str
        Colour.
    """
    cycle = LIGHT_CYCLE if is_dark(ax) else COLOR_CYCLE
    return cycle[number % len(cycle)]


def line_look(ax: Axes, number: int) -> dict[str, Any]:
    """Return the colour and the style of a line, which differ in greyscale and to colour-blind readers.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    number : int
        Number of the category, from 0.

    Returns
    -------
    dict
        Keyword arguments of ``Axes.plot``.
    """
    style = LINE_STYLES[number % len(LINE_STYLES)]
    return {"color": color_of(ax, number), "ls": style, "lw": 1.6}


def finish(ax: Axes, description: str, *, grid: str = "both") -> Axes:
    """Set the grid, hide the frame, and store the description.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes with the plot.
    description : str
        What the plot shows, in words.
    grid : {"both", "x", "y", ""}, default "both"
        Axes with a grid.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.
    """
    if grid:
        ax.grid(axis=grid, color=rule_color(ax), lw=0.6)  # type: ignore[arg-type]
        ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.set_label(description)
    return ax


def plain(text: str, length: int = 60) -> str:
    r"""Return a name from a log as text that matplotlib draws as it is.

    Parameters
    ----------
    text : str
        Name of a recording or a tool.
    length : int, default 60
        Maximum number of characters.

    Returns
    -------
    str
        Text without markup, control characters and lone surrogates.

    Examples
    --------
    >>> print(plain("costs $5 or $6"))
    costs \$5 or \$6
    """
    return clip_line(show_symbols(text), length).replace("$", r"\$")


def draw_stack(
    ax: Axes,
    values: npt.NDArray[Any],
    labels: Sequence[str],
    colors: Sequence[str],
    hatches: Sequence[str],
) -> None:
    """Draw layers over the requests.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    values : numpy.ndarray of shape (requests, layers)
        Height of each layer. A single request becomes a block that can be seen.
    labels : sequence of str
        Label of each layer.
    colors : sequence of str
        Colour of each layer.
    hatches : sequence of str
        Hatches of the layers from the bottom, so that neighbours differ without colour, too.
    """
    import numpy as np

    places = np.arange(len(values))
    if len(values) == 1:
        places, values = np.array([-0.5, 0.5]), np.repeat(values, 2, axis=0)
    layers = ax.stackplot(
        places, values.T, labels=labels, colors=colors, lw=0.4, edgecolor=ax.get_facecolor()
    )
    for layer, hatch in zip(layers, hatches, strict=False):
        layer.set_hatch(hatch)
    ax.margins(x=0)


def draw_shares(ax: Axes, values: npt.NDArray[np.float64], **text: Any) -> AxesImage:
    """Draw shares as a heat map with the number in each cell; nan stays empty.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    values : numpy.ndarray of shape (rows, columns)
        Shares from 0 to 1.
    **text : object
        Further arguments of ``Axes.text``.

    Returns
    -------
    matplotlib.image.AxesImage
        The picture, for a colour bar.
    """
    import numpy as np

    image = ax.imshow(values, cmap="cividis", vmin=0, vmax=1, aspect="auto")
    for (row, column), value in np.ndenumerate(values):
        if not np.isnan(value):
            color = "black" if value > 0.55 else "white"
            ax.text(column, row, format_share(value), ha="center", va="center", color=color, **text)
    ax.tick_params(length=0)
    return image


def count_axis(ax: Axes, which: str) -> None:
    """Write the numbers of an axis as counts, such as ``20k``.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    which : {"x", "y"}
        Axis.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

    axis = ax.yaxis if which == "y" else ax.xaxis
    if axis.get_scale() == "log":
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_minor_locator(NullLocator())
    write = lambda value, _: f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"  # noqa: E731
    axis.set_major_formatter(FuncFormatter(write))


def choose_limit(limits: Iterable[float], limit: float | str | None) -> float:
    """Return the limit to show: the one that was asked for, or the smallest.

    Parameters
    ----------
    limits : iterable of float
        Limits that were evaluated.
    limit : float, str or None
        Limit that was asked for, such as ``8000``, ``"8k"`` or ``"50%"``.

    Returns
    -------
    float
        Limit.

    Raises
    ------
    SpecError
        If the limit was not evaluated.

    Examples
    --------
    >>> choose_limit([16000, 8000], None)
    8000
    """
    known = sorted(set(limits))
    if limit is None:
        return known[0]
    wanted = parse_limit(limit)
    if wanted not in known:
        told = ", ".join(f"{each:g}" for each in known)
        raise SpecError(f"limit {wanted:g} was not evaluated; choose from {told}")
    return wanted


def say_nothing(ax: Axes, sentence: str) -> Axes:
    """Write a sentence in place of a plot without data.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    sentence : str
        Why there is nothing to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The axes.
    """
    from textwrap import fill

    ax.set_axis_off()
    ax.text(0.5, 0.5, fill(sentence, 60), ha="center", va="center", transform=ax.transAxes)
    ax.set_label(sentence)
    return ax


def place_legend(ax: Axes, **options: Any) -> None:
    """Draw a legend below the axes, where it covers no data.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes.
    **options : object
        Arguments of ``Axes.legend`` that replace the usual ones; ``columns`` is the number of columns.
    """
    import matplotlib as mpl
    from matplotlib.transforms import ScaledTranslation

    figure = ax.get_figure(root=True)
    assert figure is not None
    room = 4.2 * mpl.rcParams["font.size"] / 72  # inches for the labels of the axis
    below = ax.transAxes + ScaledTranslation(0, -room, figure.dpi_scale_trans)
    usual = {"loc": "upper left", "bbox_to_anchor": (0, 0), "bbox_transform": below}
    usual |= {"frameon": False, "fontsize": "small", "borderaxespad": 0, "handlelength": 2.2}
    ax.legend(**{**usual, "ncols": options.pop("columns", 2), **options})


def join_names(names: Sequence[str]) -> str:
    """Join names to a text such as ``a, b and c``.

    Parameters
    ----------
    names : sequence of str
        Names.

    Returns
    -------
    str
        Text.

    Examples
    --------
    >>> join_names(["a", "b", "c"]), join_names(["a"])
    ('a, b and c', 'a')
    """
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last
