"""The environment of commands that an agent runs: without keys, tokens and passwords.

A model that was misled by what it read could send them away. Names are looked at, not values: a password
inside ``DATABASE_URL`` goes through. And it is no sandbox: a command runs as the same user, who can read
that user's files, such as ``~/.netrc``, and on Linux the environment of this program in
``/proc/PID/environ``. Who needs more than that runs the agent in a container.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ctxlab.errors import SpecError

__all__ = ["SECRET_NAMES", "names_to_keep", "without_secrets"]

SECRET_NAMES = ("KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIAL")
"""A variable whose name contains one of these, in any case, is left out."""


def names_to_keep(names: Iterable[str]) -> frozenset[str]:
    """Check names of variables that commands are to inherit nevertheless.

    Parameters
    ----------
    names : iterable of str
        The names as they are in the environment.

    Returns
    -------
    frozenset of str
        The names.

    Raises
    ------
    SpecError
        If it is one string and not several, or if a name cannot be that of a variable.

    Examples
    --------
    >>> names_to_keep("GITHUB_TOKEN")
    Traceback (most recent call last):
    ctxlab.errors.SpecError: Expected a list of names of variables, got 'GITHUB_TOKEN'; pass \
['GITHUB_TOKEN']
    """
    if isinstance(names, str):
        raise SpecError(f"Expected a list of names of variables, got {names!r}; pass [{names!r}]")
    kept = frozenset(names)
    for name in kept:
        if not name or "=" in name or "\0" in name:
            got = f"{name.partition('=')[0]}=…" if "=" in name else repr(name)  # no value is told
            raise SpecError(
                f"Expected the name of an environment variable, got {got}; give the name alone, "
                "such as GITHUB_TOKEN"
            )
    return kept


def without_secrets(environ: Mapping[str, str], keep: Iterable[str] = ()) -> dict[str, str]:
    """Leave out variables that hold secrets, by their names.

    Parameters
    ----------
    environ : mapping of str to str
        The environment of this program.
    keep : iterable of str
        Names that are kept whatever they contain.

    Returns
    -------
    dict of str to str
        The environment for a command.

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
