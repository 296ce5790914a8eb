"""Remove credentials from the texts of errors that model clients report.

Providers and proxies repeat what was sent to them: an error may contain the API key, a header or the URL
of the request. Such texts are printed, logged and stored, so they must not contain credentials.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ctxlab.errors import redact_urls

CREDENTIAL_NAME = re.compile(
    "key|secret|passw|credential|header|auth|cookie|(ad|session|access|bearer|api)_?token", re.I
)
"""Matches the names of options that identify the caller and do not change the reply."""

_SECRET_VARIABLE = re.compile("KEY|TOKEN|SECRET|PASSW|CREDENTIAL")
_SCHEME = re.compile(r"\b(Bearer|Basic)\s+[\w.~+/=-]{6,}", re.I)
_KEY = re.compile(r"\b(?:sk|pk|rk|gsk|xai|hf|ghp|AIza)[-_]?[\w*-]{12,}")
_MIN_LENGTH = 6
"""Minimum length of a credential; the placeholders of local servers, such as ``none``, are shorter."""


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Replace credentials in a text by ``***``.

    Parameters
    ----------
    text : str
        Text of an error.
    secrets : iterable of str
        Credentials of the client. The values of environment variables whose names suggest a
        credential are always replaced.

    Returns
    -------
    str
        The text without these values, credentials in URLs, headers and common forms of API keys.

    Examples
    --------
    >>> redact("wrong key my-own-key at http://me:pw@host/v1", ["my-own-key"])
    'wrong key *** at http://***@host/v1'
    """
    known = {*secrets, *(v for k, v in os.environ.items() if _SECRET_VARIABLE.search(k.upper()))}
    for secret in sorted(known, key=len, reverse=True):
        if len(secret) >= _MIN_LENGTH:
            text = text.replace(secret, "***")
    return _KEY.sub("***", _SCHEME.sub(r"\1 ***", redact_urls(text)))


def find_secrets(options: Mapping[str, Any]) -> Iterator[str]:
    """Find the credentials among the options of a client.

    Parameters
    ----------
    options : mapping of str to object
        Options by name, such as ``api_key`` or ``extra_headers``.

    Yields
    ------
    str
        A string in an option whose name suggests a credential.

    Examples
    --------
    >>> list(find_secrets({"api_key": "a", "extra_headers": {"X-Key": "b"}, "reasoning_effort": "low"}))
    ['a', 'b']
    """
    for name, value in options.items():
        if CREDENTIAL_NAME.search(name):
            yield from _strings(value)


def without_credentials(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options of a client without credentials, also without those in URLs.

    Parameters
    ----------
    options : mapping of str to object
        Options by name.

    Returns
    -------
    dict of str to object
        The options that can change a reply.

    Examples
    --------
    >>> without_credentials({"extra_headers": {"X-Key": "b"}, "base_url": "http://me:pw@host/v1"})
    {'base_url': 'http://***@host/v1'}
    """
    kept = {k: value for k, value in options.items() if not CREDENTIAL_NAME.search(k)}
    return {k: redact_urls(v) if isinstance(v, str) else v for k, v in kept.items()}


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _strings(each)
    elif isinstance(value, (list, tuple)):
        for each in value:
            yield from _strings(each)
