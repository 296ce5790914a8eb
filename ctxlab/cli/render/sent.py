"""Render what one request contains, and how it differs from another request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from rich.text import Text

from ctxlab.cli.output import one_line
from ctxlab.cli.render import format as show
from ctxlab.cli.render.control_characters import strip_control_characters
from ctxlab.cli.render.table import Table
from ctxlab.evaluation.columns import Column

if TYPE_CHECKING:
    import pandas as pd

    from ctxlab.evaluation.sent import SentRequest

_STYLES = {
    "verbatim": "",
    "truncated": "cyan",
    "stub": "yellow",
    "pointer": "yellow",
    "summary": "green",
    "rewritten": "magenta",
    "covered": "dim",
    "dropped": "dim",
}


def sent_text(sent: SentRequest, with_texts: bool) -> str:
    """Return the messages of a request as a table, or with their whole texts.

    Parameters
    ----------
    sent : SentRequest
        Request to print.
    with_texts : bool
        Print the whole text of each message instead of its beginning.

    Returns
    -------
    str
        Text to print.
    """
    head = Text(
        f"Request {sent.request}, before message {sent.position}, built by {sent.strategy}: "
        f"{len(sent.entries):,} messages, {sent.tokens:,} tokens.",
        "bold",
    )
    rows = sent.table.to_dict("records")
    if with_texts:
        return show.render_to_text(head, *_with_texts(rows))
    columns = [
        Column("", [str(i) for i in range(len(rows))]),
        Column("role", [row["role"] for row in rows], left=True),
        Column("form", [row["form"] for row in rows], left=True),
        Column("stands for", [_span(row) for row in rows]),
        Column("tokens", [f"{row['tokens']:,}" for row in rows]),
        Column("tool", [one_line(row["tool"])[:24] for row in rows], drop=1, left=True),
    ]
    return show.render_to_text(head, Text(), _table(columns, rows).text)


def diff_text(changes: pd.DataFrame, with_texts: bool) -> str:
    """Return the differences of two requests as a table, or with their whole texts.

    Parameters
    ----------
    changes : pandas.DataFrame
        Result of ``SentRequest.diff``.
    with_texts : bool
        Print the whole text of each message instead of its beginning.

    Returns
    -------
    str
        Text to print.
    """
    rows = changes.to_dict("records")
    saved = int(changes["other_tokens"].sum() - changes["tokens"].sum())
    head = Text(
        f"{len(rows):,} messages differ; the request has {abs(saved):,} tokens "
        f"{'fewer' if saved >= 0 else 'more'}.",
        "bold",
    )
    if not rows:
        return show.render_to_text(Text("Both requests have the same messages.", "bold"))
    if with_texts:
        return show.render_to_text(head, *_with_texts(rows))
    columns = [
        Column("message", [_span(row) for row in rows]),
        Column("role", [row["role"] for row in rows], left=True),
        Column("here", [row["form"] for row in rows], left=True),
        Column("there", [row["other_form"] for row in rows], left=True),
        Column("tokens", [f"{row['tokens']:,}" for row in rows]),
        Column("tokens\nthere", [f"{row['other_tokens']:,}" for row in rows]),
    ]
    return show.render_to_text(head, Text(), _table(columns, rows).text)


def _table(columns: list[Column], rows: list[dict[Any, Any]]) -> Table:
    """Return a table whose last column has as much of the texts as fits on a line."""
    used = sum(each.width + 1 for each in columns)
    room = max(show.output_width() - used, 20)
    texts = [show_beginning(row["text"] or row.get("other_text", ""), room) for row in rows]
    styled = [(i, _STYLES.get(row["form"], "")) for i, row in enumerate(rows)]
    return Table([*columns, Column("text", texts, left=True)], styled)


def show_beginning(text: str, room: int) -> str:
    r"""Return the beginning of a text on one line.

    Parameters
    ----------
    text : str
        Text of a message.
    room : int
        Maximum number of characters.

    Returns
    -------
    str
        At most ``room`` characters, without line breaks and control characters.

    Examples
    --------
    >>> show_beginning("a long\ntext of a message", 12)
    'a long text…'
    """
    line = one_line(text[: 4 * room])
    return line if len(line) <= room else f"{line[: room - 1]}…"


def _span(row: dict[Any, Any]) -> str:
    first, last = row["first"], row["last"]
    if first != first or first is None or str(first) == "<NA>":
        return "added"
    return f"{first}" if first == last else f"{first}–{last}"


def _with_texts(rows: list[dict[Any, Any]]) -> Iterator[Text]:
    for row in rows:
        form = f"{row['form']}, there {row['other_form']}" if "other_form" in row else row["form"]
        yield Text()
        yield Text(
            f"── {_span(row)} {row['role']}, {form}, {row['tokens']:,} tokens",
            f"bold {_STYLES.get(row['form'], '')}".strip(),
        )
        for name in ("text", "other_text"):
            if row.get(name):
                yield Text(strip_control_characters(row[name]), "dim" if name != "text" else "")
