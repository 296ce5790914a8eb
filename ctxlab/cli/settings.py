"""Settings of the commands that run an agent: from options, a session, the environment and a file.

The first that is set holds, in this order: the option of a command, what a resumed session used, the
environment variable, the file, the default. Only the user's own file is read, never one of the folder in
which an agent works, because a folder may come from a stranger.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ctxlab.errors import SpecError, UnknownName

FILE_VAR = "CTXLAB_CONFIG"
"""Environment variable with the path of the file to read in place of the default file."""


class Setting(NamedTuple):
    """A setting: its type, its default and its meaning."""

    kind: type
    "``str``, ``int`` or ``float``"
    default: Any
    "value if nothing sets it; None for none"
    meaning: str
    "one sentence"
    least: float = 0
    "lowest number that is allowed"


class SettingValue(NamedTuple):
    """The value of a setting, and where it comes from."""

    value: Any
    "the value; None if there is none"
    source: str
    "name of an option or of an environment variable, path of the file, ``session`` or ``default``"


SETTINGS: dict[str, Setting] = {
    "model": Setting(str, None, "Model of the agent."),
    "summary_model": Setting(
        str, None, "Model that writes titles, tables of contents and summaries. Default: no model."
    ),
    "strategy": Setting(str, None, "Context strategy. Default: stubs, a summary and panic."),
    "limit": Setting(str, None, "Maximum tokens of a request and its reply, such as 32k."),
    "approval": Setting(str, "ask", "ask, auto or read-only: what needs your approval."),
    "max_iterations": Setting(int, 10, "Maximum model calls in a turn.", 1),
    "max_tool_failures": Setting(
        int, 3, "Consecutive failures after which a tool is blocked for a turn; 0 blocks none."
    ),
    "retries": Setting(int, 3, "Maximum retries of a model call after a temporary failure."),
    "retry_delay": Setting(float, 1.0, "Seconds before the first retry; later waits double."),
    "agent": Setting(str, None, "Name of the agent, which is stored with its sessions."),
    "system_prompt": Setting(
        str, None, "System prompt in place of the default; {folder} is the agent's folder."
    ),
}
"""Settings by name."""


def env_var(name: str) -> str:
    """Return the environment variable of a setting.

    Parameters
    ----------
    name : str
        Name of the setting.

    Returns
    -------
    str
        Name of the variable.

    Examples
    --------
    >>> env_var("summary_model")
    'CTXLAB_SUMMARY_MODEL'
    """
    return f"CTXLAB_{name.upper()}"


def settings_path() -> Path:
    """Return the path of the settings file, which may not exist.

    Returns
    -------
    Path
        ``$CTXLAB_CONFIG``, or ``config.toml`` in the user's folder of settings.
    """
    if chosen := os.environ.get(FILE_VAR):
        return Path(chosen).expanduser()
    from platformdirs import user_config_path

    return user_config_path("ctxlab") / "config.toml"


def resolve_settings(
    options: Mapping[str, Any] | None = None, session: Mapping[str, Any] | None = None
) -> dict[str, SettingValue]:
    """Return all settings and where each comes from.

    Parameters
    ----------
    options : mapping, optional
        Values of options by name of the setting; None for options that were not given.
    session : mapping, optional
        Values that a resumed session used, by name of the setting.

    Returns
    -------
    dict of str to SettingValue
        Value of each setting in ``SETTINGS``.

    Raises
    ------
    SpecError
        If the file is not valid, or if a value has the wrong type.
    """
    path, options, session = settings_path(), options or {}, session or {}
    from_file = _read_file(path)
    resolved = {}
    for name, setting in SETTINGS.items():
        variable = env_var(name)
        if (given := options.get(name)) is not None:
            resolved[name] = SettingValue(given, f"--{name.replace('_', '-')}")
        elif (stored := session.get(name)) is not None:
            resolved[name] = SettingValue(stored, "session")
        elif text := os.environ.get(variable):
            resolved[name] = SettingValue(_from_text(text, setting, variable), variable)
        elif name in from_file:
            resolved[name] = SettingValue(from_file[name], str(path))
        else:
            resolved[name] = SettingValue(setting.default, "default")
    return resolved


def settings_template() -> str:
    """Return the text of a settings file in which every setting is a comment.

    Returns
    -------
    str
        Text in the TOML format.
    """
    examples = {"model": "gpt-5-mini", "summary_model": "gpt-5-nano", "limit": "64k"}
    examples |= {"strategy": "tool_stubs | rolling_summary | panic", "agent": "me"}
    examples["system_prompt"] = "You work in {folder}. Answer briefly."
    lines = ["# Settings of ctxlab chat and ctxlab serve http. ctxlab config shows those in use."]
    for name, setting in SETTINGS.items():
        value = setting.default if setting.default is not None else examples[name]
        shown = f'"{value}"' if isinstance(value, str) else value
        lines += ["", f"# {setting.meaning}", f"# {name} = {shown}"]
    return "\n".join(lines) + "\n"


def _read_file(path: Path) -> dict[str, Any]:
    try:
        text = path.read_bytes().decode("utf-8")
    except (FileNotFoundError, NotADirectoryError):
        if os.environ.get(FILE_VAR):
            raise SpecError(f"{FILE_VAR}: expected an existing file, got {str(path)!r}") from None
        return {}
    except (OSError, UnicodeDecodeError) as error:
        raise SpecError(f"cannot read {path}: {error}; mend or delete the file") from None
    try:
        found = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise SpecError(f"{path}: expected TOML, got {error}; correct this line") from None
    for name, value in found.items():
        if name not in SETTINGS:
            raise SpecError(f"{path}: {UnknownName('setting', name, list(SETTINGS))}")
        found[name] = _check(value, SETTINGS[name], f"{path}: {name}")
    return found


def _from_text(text: str, setting: Setting, where: str) -> Any:
    try:
        value = setting.kind(text)
    except ValueError:
        value = text
    return _check(value, setting, where)


def _check(value: Any, setting: Setting, where: str) -> Any:
    """Return a value of the right type, or raise ``SpecError``."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if setting.kind is str:
        if isinstance(value, str) or (number and isinstance(value, int)):
            return str(value)  # a limit may be written as a number
        raise SpecError(f"{where}: expected a text in quotes, got {value!r}")
    wanted = "a whole number" if setting.kind is int else "a number"
    whole = setting.kind is float or isinstance(value, int)
    if not (number and whole and setting.least <= value < 1e9):
        raise SpecError(f"{where}: expected {wanted} of {setting.least} or more, got {value!r}")
    return setting.kind(value)
