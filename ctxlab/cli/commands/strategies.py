"""``ctxlab strategies``: list the strategies, or describe one of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ctxlab.cli.options import JSON, argument, complete_strategy
from ctxlab.cli.output import print_result

if TYPE_CHECKING:
    from ctxlab.strategies.introspection import StrategyInfo, StrategyParameter

_KIND_HEADINGS = {
    "strategy": "Strategies",
    "control": "Controls: references for comparisons, which are never recommended",
    "baseline": "Baselines: default context strategies of products and libraries",
}


def command(
    name: str | None = argument(
        "NAME", "Describe this strategy in full.", autocompletion=complete_strategy
    ),
    json: bool = JSON,
) -> None:
    """List the strategies with their parameters, default values, descriptions and sources.

    Examples
    --------
    ctxlab strategies                    list all strategies
    ctxlab strategies rolling_summary    parameters and an example
    ctxlab strategies openhands.default  a product's default
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
                asks = "  (can call a model)" if each.model_use == "optional" else ""
                parts.append(Text.assemble((each.signature, "bold"), (asks, "dim")))
                parts.append(_indent(each.summary))
                parts.append(_indent(f"Source: {each.source}", "dim"))
    return [
        *parts,
        Text(),
        Text("To apply several strategies in order, join them with |, as in 'observation_mask(keep=3) | "
             "panic'. A strategy calls a model only if you set its parameter model. To use your own "
             "Python function or class, write its dotted path, such as mine.last_ten. peer:NAME runs "
             "the original code of a baseline, if its package is installed. ctxlab strategies NAME "
             "describes a strategy in full."),
        Text(f"The default lineup: {', '.join(DEFAULT_LINEUP)}."),
    ]  # fmt: skip


def _render_strategy(known: StrategyInfo) -> list[Any]:
    from rich.text import Text

    from ctxlab.cli.render.table import Table
    from ctxlab.evaluation.columns import text_columns

    parts: list[Any] = [Text(known.signature, "bold"), Text()]
    if known.kind == "baseline":
        parts += [
            Text(known.summary), Text(), Text(f"Source: {known.source}"),
            Text(known.url, no_wrap=True, overflow="ignore"),  # a wrapped link cannot be clicked
            Text(f"Equivalent to: {known.equivalent}"),
        ]  # fmt: skip
    else:
        parts.append(Text(known.docstring))
    if known.parameters:
        rows = [(p.name, p.default or "(required)", p.description) for p in known.parameters]
        columns = text_columns(("parameter", "default", "description"), rows)
        parts += [Text(), Table(columns, wrap=2, prose=True).text]
    if found := [p for p in known.parameters if p.setting is not None]:
        heads = ("parameter", "where to set it", "written as", "note")
        places = [(p.name, _place(p), p.written, p.setting.note) for p in found if p.setting]
        parts += [Text(), Text("Settings of the product", "underline")]
        parts.append(Table(text_columns(heads, places), wrap=3, prose=True).text)
    return parts


def _place(parameter: StrategyParameter) -> str:
    setting = parameter.setting
    if setting is None or setting.kind is None:
        return "not configurable"
    return setting.place or setting.kind


def _to_json_row(known: StrategyInfo) -> dict[str, Any]:
    return {
        "name": known.name,
        "kind": known.kind,
        "signature": known.signature,
        "claim": known.summary,
        "parameters": [
            {"name": p.name, "default": p.default, "meaning": p.description, "setting": _setting(p)}
            for p in known.parameters
        ],
        "source": known.source,
        "model": known.model_use,
        "written_as": known.equivalent,
        "link": known.url,
    }


def _setting(parameter: StrategyParameter) -> dict[str, Any] | None:
    setting = parameter.setting
    if setting is None or setting.kind is None:
        return None
    return {
        "kind": setting.kind,
        "place": setting.place,
        "name": setting.name,
        "written": parameter.written,
        "note": setting.note,
    }


def _indent(text: str, style: str = "") -> Any:
    from rich.padding import Padding
    from rich.text import Text

    return Padding(Text(text, style), (0, 0, 0, 4))
