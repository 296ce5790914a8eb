"""Classify errors of litellm: whether a retry can help, and whether the attempt was billed.

litellm maps the errors of all providers to a few exception classes. These do not show whether the
provider responded: a lost connection, a response that is not JSON and a real status 500 all have the
same class. The chain of an exception's causes shows the difference, because the chain ends with an
exception of the HTTP library. Exceptions in the chain are recognized by the names of their classes.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple

from ctxlab.llm.redaction import redact

_MAX_REASON_CHARS = 300
"maximum length of a reason in characters"
_RETRYABLE_STATUSES = {408, 425, 429}
# The provider cannot answer this one request; the key and the settings are fine.
_DECLINED_ERRORS = {
    *("ContextWindowExceededError", "ContentPolicyViolationError"),  # litellm's classes
    *("context_length_exceeded", "content_policy_violation", "content_filter"),  # OpenAI's codes
}
# OpenAI uses the status of a rate limit for an account without credit, too.
_QUOTA_EXCEEDED = "insufficient_quota"
_CONNECTION_ERRORS = {"TransportError", "APIConnectionError", "ConnectionError"}
_MISSING_KEY = re.compile(r"missing .{0,20}(api key|credentials)", re.IGNORECASE)


class CallFailure(NamedTuple):
    """Classification of a failed attempt to get a reply."""

    reason: str
    "error message as one line"
    retry_class: Literal["refused", "declined", "transient"]
    "refused: no request can succeed; declined: this request cannot succeed; transient: retry later"
    outcome: Literal["failed", "interrupted", "unsent"]
    "failed: the provider sent an error; interrupted: no readable reply; unsent: nothing was sent"
    retry_after: float = 0.0
    "seconds that the provider asks to wait before a retry; 0.0 if it does not say"


def classify_error(error: Exception, secrets: Iterable[str] = ()) -> CallFailure:
    """Classify an exception that a call of litellm raised.

    Parameters
    ----------
    error : Exception
        Exception of litellm, or of the code that parses its response.
    secrets : iterable of str
        Credentials of the client, which are removed from the error message.

    Returns
    -------
    CallFailure
        Error message; whether a retry can help (``retry_class``); whether the attempt may have been
        billed (``outcome``); and the wait in seconds that the provider asks for.

    Examples
    --------
    >>> classify_error(ValueError("choices is not a list"))
    CallFailure(reason='ValueError: choices is not a list', retry_class='declined', \
outcome='interrupted', retry_after=0.0)
    """
    failure = _classify(error)
    return failure._replace(reason=_shorten(redact(failure.reason, secrets)))


def _classify(error: Exception) -> CallFailure:
    chain = list(_iter_causes(error))
    names = {cls.__name__ for each in chain for cls in type(each).__mro__} | _error_codes(error)
    status = getattr(error, "status_code", None)
    headers = _find_response_headers(chain)
    # If there was no response, litellm invents a status, which is not shown.
    inner = getattr(error, "original_exception", None)  # the error of an interrupted stream
    told = inner if isinstance(inner, Exception) else error
    reason = _format_reason(told, status if headers is not None else None)
    if headers is not None:
        if names & _DECLINED_ERRORS:
            return CallFailure(reason, "declined", "failed")
        if _is_retryable_status(status) and _QUOTA_EXCEEDED not in names:
            return CallFailure(reason, "transient", "failed", _parse_retry_after(headers))
        return CallFailure(reason, "refused", "failed")
    if _MISSING_KEY.search(reason):  # litellm has a different class for each provider
        return CallFailure(reason, "refused", "unsent")
    if names & _CONNECTION_ERRORS:
        # litellm reports connection errors as server errors, so show the innermost error's text.
        root = next((each for each in reversed(chain) if str(each).strip()), error)
        return CallFailure(_format_reason(root), "transient", "interrupted")
    if event := _find_openai_error(chain, "APIError"):  # the class of errors within a stream
        if (names | _error_codes(event)) & _DECLINED_ERRORS:
            return CallFailure(_format_reason(event), "declined", "interrupted")
        return CallFailure(_format_reason(event), "transient", "interrupted")
    if names & _DECLINED_ERRORS:
        return CallFailure(reason, "declined", "unsent")
    # OpenAI's library raises its root class if there is no key, which litellm reports as a 500.
    no_key = _find_openai_error(chain, "OpenAIError")
    if no_key or _is_retryable_status(status) is False or isinstance(error, ImportError):
        return CallFailure(reason, "refused", "unsent")
    return CallFailure(reason, "declined", "interrupted")


def _find_openai_error(chain: list[BaseException], name: str) -> BaseException | None:
    """Return the first error in ``chain`` whose class is OpenAI's class ``name``, or None.

    Errors of subclasses are skipped.
    """
    for each in chain:
        if (type(each).__module__, type(each).__name__) == ("openai", name):
            return each
    return None


def _is_retryable_status(status: Any) -> bool | None:
    """Return True if an HTTP status reports a temporary error, False if a permanent error.

    Return None if ``status`` is not the status of an error.
    """
    if not isinstance(status, int) or status < 400:
        return None
    return status in _RETRYABLE_STATUSES or status >= 500


def _error_codes(error: BaseException) -> set[str]:
    """Return the error codes that the provider sent, such as ``context_length_exceeded``."""
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, Mapping) else None
    return {each for each in (code, getattr(error, "code", None)) if isinstance(each, str)}


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _find_response_headers(chain: list[BaseException]) -> Mapping[str, str] | None:
    """Return the headers of the provider's error response; None if there was no response."""
    for each in chain:
        if type(each).__name__ == "HTTPStatusError":
            return each.response.headers  # type: ignore[attr-defined, no-any-return]
        headers = getattr(each, "litellm_response_headers", None)
        if headers is not None:
            return headers  # type: ignore[no-any-return]
    return None


def _parse_retry_after(headers: Mapping[str, str]) -> float:
    """Return the wait in seconds from the header ``Retry-After``, which is a number or a date.

    The result is 0.0 if the header is missing or invalid.
    """
    asked = headers.get("retry-after") or ""
    try:
        seconds = float(asked)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(asked).timestamp() - time.time()
        except (ValueError, TypeError):
            return 0.0
    return max(seconds, 0.0) if math.isfinite(seconds) else 0.0


def _format_reason(error: BaseException, status: Any = None) -> str:
    name = type(error).__name__
    said = " ".join(str(error).split())
    while said.startswith(start := (f"litellm.{name}: ", f"{name}: ")):
        said = said.removeprefix(start[0]).removeprefix(start[1])  # litellm repeats the name
    said = f"{name}: {said}"
    return f"{said} (status {status})" if status is not None else said


def _shorten(reason: str) -> str:
    # The status at the end is kept.
    status = re.search(r" \(status \d+\)$", reason)
    end = status[0] if status else ""
    said = reason.removesuffix(end)
    return (said if len(said) <= _MAX_REASON_CHARS else said[: _MAX_REASON_CHARS - 1] + "…") + end
