"""``ctxlab strategies`` is the manual: what there is, how it is written, and whence it comes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ctxlab.cli.output import print_result

if TYPE_CHECKING:
    from ctxlab.strategies.introspection import StrategyInfo

__all__ = ["command"]

_KIND_HEADINGS = {
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
    from ctxlab.cli.render.format import render_to_text, to_json_array
    from ctxlab.strategies.introspection import list_strategies, strategy_info

    chosen = [strategy_info(name)] if name else list_strategies()
    if json:
        print_result(to_json_array([_to_json_row(each) for each in chosen]))
    elif name:
        print_result(render_to_text(*_render_strategy(chosen[0])))
    else:
        print_result(render_to_text(*_render_list(chosen)))


def _render_list(known: list[StrategyInfo]) -> list[Any]:
    from rich.text import Text

    from ctxlab.strategies.registry import DEFAULT_LINEUP

    parts: list[Any] = []
    for kind, head in _KIND_HEADINGS.items():
        parts += [Text(), Text(head, "underline")] if parts else [Text(head, "underline")]
        for each in known:
            if each.kind == kind:
                asks = "  (can ask a model)" if each.model_use == "optional" else ""
                parts.append(Text.assemble((each.signature, "bold"), (asks, "dim")))
                parts.append(_indent(each.summary))
                parts.append(_indent(f"Source: {each.source}", "dim"))
    return [
        *parts,
        Text(),
        Text("Join them with |, as in 'observation_mask(keep=3) | panic'. Those that can ask a model do "
             "so only where model='…' names one. A dotted path, such as mine.last_ten, is a strategy or "
             "a function of your own; peer:NAME runs the code of the package itself, where a baseline "
             "has one. ctxlab strategies NAME says more."),
        Text(f"The default lineup: {', '.join(DEFAULT_LINEUP)}."),
    ]  # fmt: skip


def _render_strategy(known: StrategyInfo) -> list[Any]:
    from rich.text import Text

    from ctxlab.cli.render.format import make_table

    rows = [([p.name, p.default or "(required)", p.description], "") for p in known.parameters]
    parts: list[Any] = [Text(known.signature, "bold"), Text()]
    if known.kind == "baseline":
        parts += [
            Text(known.summary), Text(), Text(f"Source: {known.source}"),
            Text(known.url, no_wrap=True, overflow="ignore"),  # whole, so that it can be followed
            Text(f"Written as: {known.equivalent}"),
        ]  # fmt: skip
    else:
        parts.append(Text(known.docstring))
    if rows:
        parts += [
            Text(),
            make_table(["parameter", "default", "description"], rows, {0, 1, 2}, wrap_column=2),
        ]
    return parts


def _to_json_row(known: StrategyInfo) -> dict[str, Any]:
    return {
        "name": known.name,
        "kind": known.kind,
        "signature": known.signature,
        "claim": known.summary,
        "parameters": [
            {"name": p.name, "default": p.default, "meaning": p.description}
            for p in known.parameters
        ],
        "source": known.source,
        "model": known.model_use,
        "written_as": known.equivalent,
        "link": known.url,
    }


def _indent(text: str, style: str = "") -> Any:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style), (0, 0, 0, 4))
