"""Environment variables of commands that an agent runs, without keys, tokens and passwords.

A model that follows instructions in untrusted input could otherwise send secrets to a third party.
Only the names of variables are checked. For example, a password inside ``DATABASE_URL`` is not
removed. This is not a sandbox. A command runs with the permissions of this program's user. It can
read the user's files, such as ``~/.netrc``, and on Linux this program's environment in
``/proc/PID/environ``. For more protection, run the agent in a container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctxlab.errors import SpecError

SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
"""Words that suggest a secret. A variable is removed if its name contains one, in any letter case."""


def names_to_keep(names: Iterable[str]) -> frozenset[str]:
    """Validate the names of variables that commands inherit even if the names suggest secrets.

    Parameters
    ----------
    names : iterable of str
        Names of environment variables.

    Returns
    -------
    frozenset of str
        The validated names.

    Raises
    ------
    SpecError
        If ``names`` is a single string, or if a name is not valid for an environment variable.

    Examples
    --------
    >>> names_to_keep("GITHUB_TOKEN")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: Expected a list of variable names, got 'GITHUB_TOKEN'; pass \
['GITHUB_TOKEN']
    """
    if isinstance(names, str):
        raise SpecError(f"Expected a list of variable names, got {names!r}; pass [{names!r}]")
    kept = frozenset(names)
    for name in kept:
        if not name or "=" in name or "\0" in name:
            got = f"{name.partition('=')[0]}=…" if "=" in name else repr(name)  # hide the value
            raise SpecError(f"Expected the name of an environment variable, got {got}")
    return kept


def without_secrets(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Return a copy of the environment without the variables whose names suggest secrets.

    Parameters
    ----------
    environ : mapping of str to str
        Environment variables of this program, by name.
    keep : iterable of str
        Names of variables that are kept even if their names suggest secrets.

    Returns
    -------
    dict of str to str
        Environment variables for a command, by name.

    Examples
    --------
    >>> environ = {"PATH": "/bin", "OPENAI_API_KEY": "sk", "CTXLAB_TOKEN": "t", "GITHUB_TOKEN": "g"}
    >>> without_secrets(environ, keep=["GITHUB_TOKEN"])
    {'PATH': '/bin', 'GITHUB_TOKEN': 'g'}
    """
    kept = frozenset(keep)
    return {
        name: value
        for name, value in environ.items()
        if name in kept or not any(word in name.upper() for word in SECRET_NAMES)
    }
