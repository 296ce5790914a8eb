"""``ctxlab strategies`` is the manual: what there is, how it is written, and whence it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxlab.cli.output import say

if TYPE_CHECKING:
    from ctxlab.strategies.introspection import About

__all__ = ["command"]

_HEADS = {
    "strategy": "Strategies",
    "control": "Controls, which bound a comparison and are never recommended",
    "baseline": "Baselines: what products and libraries do by default",
}


def command(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="One of them, with all that is known of it."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print them as JSON.")] = False,
) -> None:
    """List the strategies: how each is written, with its defaults, what it does, and its source.

    \b
    Examples:
      ctxlab strategies                      all of them
      ctxlab strategies rolling_summary      one, with its parameters and an example
      ctxlab strategies openhands.default    a product's default, with version and link
    """
    from ctxlab.cli.render.format import (
        as_json,
        drawn,
    )
    from ctxlab.strategies.introspection import (
        about,
        catalogue,
    )

    chosen = [about(name)] if name else catalogue()
    if json:
        say(as_json([_plain(each) for each in chosen]))
    elif name:
        say(drawn(*_page(chosen[0])))
    else:
        say(drawn(*_list(chosen)))


def _list(known: list[About]) -> list[Any]:
    from rich.text import Text

    from ctxlab.strategies.registry import LINEUP

    parts: list[Any] = []
    for kind, head in _HEADS.items():
        parts += [Text(), Text(head, "underline")] if parts else [Text(head, "underline")]
        for each in known:
            if each.kind == kind:
                asks = "  (can ask a model)" if each.model == "optional" else ""
                parts.append(Text.assemble((each.signature, "bold"), (asks, "dim")))
                parts.append(_indented(each.claim))
                parts.append(_indented(f"Source: {each.source}", "dim"))
    return [
        *parts,
        Text(),
        Text("Join them with |, as in 'observation_mask(keep=3) | panic'. Those that can ask a model do "
             "so only where model='…' names one. A dotted path, such as mine.last_ten, is a strategy or "
             "a function of your own; peer:NAME runs the code of the package itself, where a baseline "
             "has one. ctxlab strategies NAME says more."),
        Text(f"The default lineup: {', '.join(LINEUP)}."),
    ]  # fmt: skip


def _page(known: About) -> list[Any]:
    from rich.text import Text

    from ctxlab.cli.render.format import table

    rows = [([p.name, p.default or "(must be given)", p.meaning], "") for p in known.parameters]
    parts: list[Any] = [Text(known.signature, "bold"), Text()]
    if known.kind == "baseline":
        parts += [
            Text(known.claim), Text(), Text(f"Source: {known.source}"),
            Text(known.link, no_wrap=True, overflow="ignore"),  # whole, so that it can be followed
            Text(f"Written as: {known.written_as}"),
        ]  # fmt: skip
    else:
        parts.append(Text(known.text))
    if rows:
        parts += [Text(), table(["parameter", "default", "meaning"], rows, {0, 1, 2}, wraps=2)]
    return parts


def _plain(known: About) -> dict[str, Any]:
    return {
        "name": known.name,
        "kind": known.kind,
        "signature": known.signature,
        "claim": known.claim,
        "parameters": [
            {"name": p.name, "default": p.default, "meaning": p.meaning} for p in known.parameters
        ],
        "source": known.source,
        "model": known.model,
        "written_as": known.written_as,
        "link": known.link,
    }


def _indented(text: str, style: str = "") -> Any:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style), (0, 0, 0, 4))
