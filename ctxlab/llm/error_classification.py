"""What went wrong with a call decides whether asking again is any use.

litellm maps the errors of all providers onto a few classes and loses on the way whether a response
was seen at all: a cut connection, a body that is no JSON and a real status 500 are one class there.
The chain of causes still tells, down to the HTTP library, whose classes are known here by name.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime
from typing import Any, Literal, NamedTuple

__all__ = ["CallFailure", "classify_error"]

_MAX_REASON_CHARS = 300
"characters of a reason"
_RETRYABLE_STATUSES = {408, 425, 429}
# Sent and taken in, but this one request cannot be answered: no fault of the key or the settings.
_DECLINED_ERRORS = {
    *("ContextWindowExceededError", "ContentPolicyViolationError"),  # litellm's classes
    *("context_length_exceeded", "content_policy_violation", "content_filter"),  # OpenAI's codes
}
# OpenAI says with the status of a rate limit that the account has no money left.
_QUOTA_EXCEEDED = "insufficient_quota"
_CONNECTION_ERRORS = {"TransportError", "APIConnectionError", "ConnectionError"}


class CallFailure(NamedTuple):
    """What became of one HTTP request that gave no answer."""

    reason: str
    retry_class: Literal["refused", "declined", "transient"]
    "asking again is no use at all; no use for this request; of use in a while"
    outcome: Literal["failed", "interrupted", "unsent"]
    "an error came back; no answer that could be read; nothing went out"
    retry_after: float = 0.0
    "seconds that the provider asks to wait"


def classify_error(error: Exception) -> CallFailure:
    """What an error of litellm means.

    >>> classify_error(ValueError("choices is no list"))
    CallFailure(reason='ValueError: choices is no list', retry_class='declined', \
outcome='interrupted', retry_after=0.0)
    """
    chain = list(_iter_causes(error))
    names = {cls.__name__ for each in chain for cls in type(each).__mro__} | _error_codes(error)
    status = getattr(error, "status_code", None)
    headers = _find_response_headers(chain)
    # litellm invents a status where nobody answered, so there it is not told.
    reason = _format_reason(_unwrap_error(error), status if headers is not None else None)
    if headers is not None:
        if names & _DECLINED_ERRORS:
            return CallFailure(reason, "declined", "failed")
        if _is_retryable_status(status) and _QUOTA_EXCEEDED not in names:
            return CallFailure(reason, "transient", "failed", _parse_retry_after(headers))
        return CallFailure(reason, "refused", "failed")
    if names & _CONNECTION_ERRORS:
        return CallFailure(_format_reason(_find_root_cause(chain)), "transient", "interrupted")
    if event := _find_stream_error(chain):
        declined = (names | _error_codes(event)) & _DECLINED_ERRORS
        return CallFailure(
            _format_reason(event), "declined" if declined else "transient", "interrupted"
        )
    if names & _DECLINED_ERRORS:
        return CallFailure(reason, "declined", "unsent")
    if (
        _is_retryable_status(status) is False
        or _is_missing_key_error(chain)
        or isinstance(error, ImportError)
    ):
        return CallFailure(reason, "refused", "unsent")
    return CallFailure(reason, "declined", "interrupted")


def _unwrap_error(error: Exception) -> Exception:
    """What litellm wraps where a stream breaks."""
    inner = getattr(error, "original_exception", None)
    return inner if isinstance(inner, Exception) else error


def _find_stream_error(chain: list[BaseException]) -> Exception | None:
    """An error that came as an event of a stream: OpenAI's library raises the class of all others."""
    for each in chain:
        if (type(each).__module__, type(each).__name__) == ("openai", "APIError"):
            return each  # type: ignore[return-value]
    return None


def _is_retryable_status(status: Any) -> bool | None:
    """Whether a status will pass; None where it is no status of an error."""
    if not isinstance(status, int) or status < 400:
        return None
    return status in _RETRYABLE_STATUSES or status >= 500


def _error_codes(error: Exception) -> set[str]:
    """What the provider itself calls it, where it does."""
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, Mapping) else None
    return {each for each in (code, getattr(error, "code", None)) if isinstance(each, str)}


def _is_missing_key_error(chain: list[BaseException]) -> bool:
    """OpenAI's library raises its root class itself where it finds no key; litellm calls that a 500."""
    return any((type(e).__module__, type(e).__name__) == ("openai", "OpenAIError") for e in chain)


def _iter_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _find_root_cause(chain: list[BaseException]) -> BaseException:
    """The one that says most: litellm calls every connection that fails an internal server error."""
    return next((each for each in reversed(chain) if str(each).strip()), chain[0])


def _find_response_headers(chain: list[BaseException]) -> Mapping[str, str] | None:
    """The headers of the provider's response with an error status; None where there was none."""
    for each in chain:
        if type(each).__name__ == "HTTPStatusError":
            return each.response.headers  # type: ignore[attr-defined, no-any-return]
        headers = getattr(each, "litellm_response_headers", None)
        if headers is not None:
            return headers  # type: ignore[no-any-return]
    return None


def _parse_retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that ``Retry-After`` asks for, which holds a number or a date."""
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
        said = said.removeprefix(start[0]).removeprefix(start[1])  # litellm says it twice
    said = f"{name}: {said}"
    if len(said) > _MAX_REASON_CHARS:
        said = said[: _MAX_REASON_CHARS - 1] + "…"
    return f"{said} (status {status})" if status is not None else said
