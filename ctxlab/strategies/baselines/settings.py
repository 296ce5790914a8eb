"""Settings: where the user of a product sets what a parameter of its baseline stands for."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeAlias

SettingKind = Literal["json", "toml", "yaml", "environment", "python", "typescript", "dialog"]
ThresholdUnit = Literal["share", "percent", "tokens", "free"]

_THRESHOLD_SHARES = (0.25, 0.4, 0.55, 0.7, 0.85)
"thresholds to try, as shares of the span from the smallest to the longest request"


class RequestSizes(NamedTuple):
    """Sizes of requests, in tokens, from which thresholds of compaction are derived."""

    window: int = 200_000
    "context window"
    longest: int = 200_000
    "longest request of the conversations, or the window if that is smaller"
    smallest: int = 0
    "tokens that every request has, such as the system prompt"


DEFAULT_SIZES = RequestSizes()
"""Sizes for conversations that fill a context window of 200,000 tokens."""


@dataclass(frozen=True)
class Setting:
    r"""A setting of a product that corresponds to a parameter of its baseline.

    Examples
    --------
    >>> reserve = Setting("reserve", "json", "~/.pi/agent/settings.json", "compaction.reserveTokens")
    >>> print(reserve.write(20_000))
    {"compaction": {"reserveTokens": 20000}}
    >>> share = Setting("trigger", "environment", "", "GOOSE_AUTO_COMPACT_THRESHOLD")
    >>> print(share.write(0.8))
    GOOSE_AUTO_COMPACT_THRESHOLD=0.8
    >>> keep = Setting("keep", "python", "langchain.agents.middleware", "SummarizationMiddleware.keep",
    ...                '("messages", {value})')
    >>> print(keep.write(20))
    SummarizationMiddleware(keep=("messages", 20))
    """

    parameter: str
    "name of the parameter of the baseline"
    kind: SettingKind | None = None
    """how the setting is written: in a file (``json``, ``toml``, ``yaml``), as a variable of the
    environment, as an argument in a program, or in a dialog; None: the product has no such setting"""
    place: str = ""
    "path of the file, import path of the class or function, or place of the dialog"
    name: str = ""
    "name of the setting; dots separate the levels of a file, or a class from its argument"
    value: str = "{json}"
    """how the value is written: ``{json}`` is the value of the parameter as JSON, ``{value}`` as Python
    writes it, ``{percent}`` a hundred times the value, and ``{tokens}`` a share of the context window
    as a number of tokens"""
    note: str = ""
    "how the setting differs from the parameter; empty if they mean the same"
    threshold: ThresholdUnit | None = None
    """unit, if the parameter says at which size of a request the product starts to compact: a
    ``share`` or ``percent`` of the context window, a number of ``tokens``, or of tokens that are still
    ``free``. None: it says something else"""
    alternatives: tuple[Any, ...] | None = None
    "values to try beside the default; None: derived from the default, see ``values_to_try``"

    def write(self, value: Any, window: int | None = None) -> str:
        """Return what the user writes to give the setting a value.

        Parameters
        ----------
        value : object
            Value of the parameter of the baseline.
        window : int, optional
            Context window in tokens, for settings that are written as ``{tokens}``.

        Returns
        -------
        str
            Text in the language of the file or program; empty if the product has no such setting.
        """
        return "" if self.kind is None else write_settings([(self, value)], window)[0].text

    def values_to_try(self, default: Any, sizes: RequestSizes = DEFAULT_SIZES) -> tuple[Any, ...]:
        """Return values of the parameter that differ from its default and are worth trying.

        If ``alternatives`` is None, they are thresholds of compaction between the smallest and the
        longest request, if the parameter is a threshold, and only those below the default. Otherwise
        they are the other truth value, half and double a number above 1, and half and three quarters
        of a share. There are none for other defaults, for the name of a model, and for what the product
        does not let its user set.

        Parameters
        ----------
        default : object
            Default of the parameter.
        sizes : RequestSizes, optional
            Sizes of requests, from which thresholds are derived.

        Returns
        -------
        tuple
            Values, without the default.

        Examples
        --------
        >>> keep = Setting("keep", "json", "settings.json", "compaction.keep")
        >>> keep.values_to_try(20), keep.values_to_try(0.8), keep.values_to_try(None)
        ((10, 40), (0.4, 0.6), ())
        >>> free = Setting("free", "json", "settings.json", "compaction.free", threshold="free")
        >>> free.values_to_try(30_000, RequestSizes(window=400_000, longest=200_000))
        (350000, 320000, 290000, 260000, 230000)
        """
        if self.kind is None or self.parameter == "model":
            return ()
        found: tuple[Any, ...] = ()
        if self.alternatives is not None:
            found = self.alternatives
        elif self.threshold is not None:
            return self._thresholds(default, sizes)
        elif isinstance(default, bool):
            found = (not default,)
        elif isinstance(default, int) and default > 1:
            found = default // 2, default * 2
        elif isinstance(default, float) and 0 < default <= 1:
            found = round(default / 2, 3), round(default * 0.75, 3)
        return tuple(value for value in found if value != default)

    def _thresholds(self, default: Any, sizes: RequestSizes) -> tuple[Any, ...]:
        """Return thresholds below the default, in the unit of the parameter, lowest first."""
        span = sizes.longest - sizes.smallest
        tokens = (sizes.smallest + share * span for share in _THRESHOLD_SHARES)
        if self.threshold in ("share", "percent"):
            unit = 1 if self.threshold == "share" else 100
            shares = (round(each / sizes.window, 2) for each in tokens)
            values: Iterable[Any] = (each if unit == 1 else round(100 * each) for each in shares)
        else:
            is_free = self.threshold == "free"
            exact = (sizes.window - each if is_free else each for each in tokens)
            values = (round(each / 5_000) * 5_000 for each in exact)
            if is_free:
                return tuple(v for v in dict.fromkeys(values) if v > (default or 0))
        return tuple(v for v in dict.fromkeys(values) if v > 0 and (default is None or v < default))

    def _format_value(self, value: Any, window: int | None) -> str:
        is_number = isinstance(value, int | float)
        share = window if window and is_number and value <= 1 else 1
        written = {
            "json": json.dumps(list(value) if isinstance(value, tuple) else value),
            "value": repr(value),
            "percent": f"{100 * value:g}" if is_number else "",
            "tokens": f"{round(value * share, -3):.10g}" if share > 1 else json.dumps(value),
        }
        text = self.value
        for name, each in written.items():
            text = text.replace(f"{{{name}}}", each)
        return text


class WrittenSetting(NamedTuple):
    """Text that gives one or several settings of a product their values."""

    place: str
    "file, program or dialog in which the text is written; ``environment`` for variables"
    text: str
    "what the user writes"
    notes: tuple[str, ...] = ()
    "how the settings differ from the parameters of the baseline"


def write_settings(
    values: Iterable[tuple[Setting, Any]], window: int | None = None
) -> list[WrittenSetting]:
    r"""Return what the user writes to change settings; those in one file or call are written together.

    Parameters
    ----------
    values : iterable of (Setting, object)
        Settings that the product has, each with the value of the parameter of the baseline.
    window : int, optional
        Context window in tokens, for settings that are written as ``{tokens}``.

    Returns
    -------
    list of WrittenSetting
        One text for each file, call or dialog.

    Examples
    --------
    >>> keep = Setting("keep", "json", "settings.json", "compaction.keep")
    >>> auto = Setting("auto", "json", "settings.json", "compaction.auto")
    >>> write_settings([(keep, 5), (auto, False)])[0].text
    '{"compaction": {"keep": 5, "auto": false}}'
    """
    groups: dict[tuple[str, str, str], dict[Setting, str]] = {}
    for setting, value in values:
        if setting.kind is not None:
            outer = setting.name.rpartition(".")[0] if setting.kind in _CALLS else ""
            place = setting.place or setting.kind
            group = groups.setdefault((setting.kind, place, outer), {})
            group[setting] = setting._format_value(value, window)
    return [
        WrittenSetting(place, _WRITERS[kind](group), _unique(each.note for each in group))
        for (kind, place, _), group in groups.items()
    ]


_CALLS = ("python", "typescript")
"kinds of settings that are arguments of a call"


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(filter(None, texts)))


def _write_lines(separator: str) -> Callable[[dict[Setting, str]], str]:
    def write(texts: dict[Setting, str]) -> str:
        return "\n".join(f"{each.name}{separator}{text}" for each, text in texts.items())

    return write


def _write_call(start: str, separator: str, end: str) -> Callable[[dict[Setting, str]], str]:
    def write(texts: dict[Setting, str]) -> str:
        function = next(iter(texts)).name.rpartition(".")[0]
        given = ((each.name.rpartition(".")[2], text) for each, text in texts.items())
        return f"{function}{start}{', '.join(f'{k}{separator}{v}' for k, v in given)}{end}"

    return write


def _write_toml(texts: dict[Setting, str]) -> str:
    tables: dict[str, list[str]] = {}
    for each, text in texts.items():
        table, _, name = each.name.rpartition(".")
        tables.setdefault(table, []).append(f"{name} = {text}")
    parts = sorted(tables.items())  # keys outside a table come first
    return "\n".join(
        "\n".join([*([f"[{table}]"] if table else []), *rows]) for table, rows in parts
    )


def _write_json(texts: dict[Setting, str]) -> str:
    return _format_tree(_build_tree(texts), lambda inner: f"{{{', '.join(inner)}}}", json.dumps)


def _write_yaml(texts: dict[Setting, str]) -> str:
    def join(inner: list[str]) -> str:
        return "\n".join(["", *("  " + line for each in inner for line in each.split("\n"))])

    text = _format_tree(_build_tree(texts), join, str)
    return "\n".join(line[2:].rstrip() for line in text.split("\n")[1:])


_Tree: TypeAlias = "dict[str, _Tree | str]"


def _build_tree(texts: dict[Setting, str]) -> _Tree:
    tree: _Tree = {}
    for each, text in texts.items():
        *outer, last = each.name.split(".")
        level = tree
        for name in outer:
            inner = level.setdefault(name, {})
            assert isinstance(inner, dict), f"{each.name} is in a setting that has a value"
            level = inner
        level[last] = text
    return tree


def _format_tree(tree: _Tree, join: Callable[[list[str]], str], quote: Callable[[str], str]) -> str:
    texts = (
        (name, each if isinstance(each, str) else _format_tree(each, join, quote))
        for name, each in tree.items()
    )
    return join([f"{quote(name)}: {text}" for name, text in texts])


_WRITERS: dict[str, Callable[[dict[Setting, str]], str]] = {
    "json": _write_json,
    "yaml": _write_yaml,
    "toml": _write_toml,
    "environment": _write_lines("="),
    "dialog": _write_lines(": "),
    "python": _write_call("(", "=", ")"),
    "typescript": _write_call("({ ", ": ", " })"),
}


def unavailable(*parameters: str, note: str = "") -> tuple[Setting, ...]:
    """Return entries for parameters that the product does not let its user change.

    Parameters
    ----------
    *parameters : str
        Names of parameters of the baseline.
    note : str, default ""
        Reason, such as ``fixed in the source``.

    Returns
    -------
    tuple of Setting
        One entry per parameter.
    """
    return tuple(Setting(each, note=note) for each in parameters)


def arguments(place: str, function: str, *parameters: str, **renamed: str) -> tuple[Setting, ...]:
    """Return settings that are arguments of one class or function in Python.

    Parameters
    ----------
    place : str
        Import path of the module.
    function : str
        Name of the class or function.
    *parameters : str
        Parameters of the baseline whose argument has the same name.
    **renamed : str
        Names of the arguments of other parameters, by the name of the parameter.

    Returns
    -------
    tuple of Setting
        One setting per parameter.

    Examples
    --------
    >>> (keep,) = arguments("agents.extensions", "ToolOutputTrimmer", keep="recent_turns")
    >>> print(keep.write(4))
    ToolOutputTrimmer(recent_turns=4)
    """
    names = {**{name: name for name in parameters}, **renamed}
    return tuple(
        Setting(parameter, "python", place, f"{function}.{name}", "{value}")
        for parameter, name in names.items()
    )
