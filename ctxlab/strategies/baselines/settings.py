"""Settings: where the user of a product sets what a parameter of its baseline stands for."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

SettingKind = Literal["json", "toml", "yaml", "environment", "python", "typescript", "dialog"]


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
    writes it, and ``{percent}`` a hundred times the value"""
    note: str = ""
    "how the setting differs from the parameter; empty if they mean the same"

    def write(self, value: Any) -> str:
        """Return what the user writes to give the setting a value.

        Parameters
        ----------
        value : object
            Value of the parameter of the baseline.

        Returns
        -------
        str
            Text in the language of the file or program; empty if the product has no such setting.
        """
        if self.kind is None:
            return ""
        text = self._format_value(value)
        *outer, last = self.name.split(".")
        if self.kind == "environment":
            return f"{self.name}={text}"
        if self.kind == "python":
            return f"{'.'.join(outer)}({last}={text})"
        if self.kind == "typescript":
            return f"{'.'.join(outer)}({{ {last}: {text} }})"
        if self.kind == "toml":
            return (f"[{'.'.join(outer)}]\n" if outer else "") + f"{last} = {text}"
        if self.kind == "yaml":
            lines = [f"{'  ' * level}{each}:" for level, each in enumerate(outer)]
            return "\n".join([*lines, f"{'  ' * len(outer)}{last}: {text}"])
        if self.kind == "json":
            for level in reversed([*outer, last]):
                text = f"{{{json.dumps(level)}: {text}}}"
            return text
        return f"{self.name}: {text}"

    def _format_value(self, value: Any) -> str:
        percent = f"{100 * value:g}" if isinstance(value, int | float) else ""
        plain = list(value) if isinstance(value, tuple) else value
        written = {"json": json.dumps(plain), "value": repr(value), "percent": percent}
        text = self.value
        for name, each in written.items():
            text = text.replace(f"{{{name}}}", each)
        return text


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
