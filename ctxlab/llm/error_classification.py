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

__all__ = ["Failure", "judge"]

_LONGEST = 300
"characters of a reason"
_BUSY = {408, 425, 429}
# Sent and taken in, but this one request cannot be answered: no fault of the key or the settings.
_DECLINED = {
    *("ContextWindowExceededError", "ContentPolicyViolationError"),  # litellm's classes
    *("context_length_exceeded", "content_policy_violation", "content_filter"),  # OpenAI's codes
}
# OpenAI says with the status of a rate limit that the account has no money left.
_SPENT = "insufficient_quota"
_BROKEN = {"TransportError", "APIConnectionError", "ConnectionError"}


class Failure(NamedTuple):
    """What became of one HTTP request that gave no answer."""

    reason: str
    fate: Literal["refused", "declined", "transient"]
    "asking again is no use at all; no use for this request; of use in a while"
    outcome: Literal["failed", "interrupted", "unsent"]
    "an error came back; no answer that could be read; nothing went out"
    wait: float = 0.0
    "seconds that the provider asks to wait"


def judge(error: Exception) -> Failure:
    """What an error of litellm means.

    >>> judge(ValueError("choices is no list"))
    Failure(reason='ValueError: choices is no list', fate='declined', outcome='interrupted', wait=0.0)
    """
    chain = list(_causes(error))
    names = {cls.__name__ for each in chain for cls in type(each).__mro__} | _codes(error)
    status = getattr(error, "status_code", None)
    headers = _headers(chain)
    # litellm invents a status where nobody answered, so there it is not told.
    reason = _reason(_wrapped(error), status if headers is not None else None)
    if headers is not None:
        if names & _DECLINED:
            return Failure(reason, "declined", "failed")
        if _is_busy(status) and _SPENT not in names:
            return Failure(reason, "transient", "failed", _wait(headers))
        return Failure(reason, "refused", "failed")
    if names & _BROKEN:
        return Failure(_reason(_first_cause(chain)), "transient", "interrupted")
    if event := _event(chain):
        declined = (names | _codes(event)) & _DECLINED
        return Failure(_reason(event), "declined" if declined else "transient", "interrupted")
    if names & _DECLINED:
        return Failure(reason, "declined", "unsent")
    if _is_busy(status) is False or _has_no_key(chain) or isinstance(error, ImportError):
        return Failure(reason, "refused", "unsent")
    return Failure(reason, "declined", "interrupted")


def _wrapped(error: Exception) -> Exception:
    """What litellm wraps where a stream breaks."""
    inner = getattr(error, "original_exception", None)
    return inner if isinstance(inner, Exception) else error


def _event(chain: list[BaseException]) -> Exception | None:
    """An error that came as an event of a stream: OpenAI's library raises the class of all others."""
    for each in chain:
        if (type(each).__module__, type(each).__name__) == ("openai", "APIError"):
            return each  # type: ignore[return-value]
    return None


def _is_busy(status: Any) -> bool | None:
    """Whether a status will pass; None where it is no status of an error."""
    if not isinstance(status, int) or status < 400:
        return None
    return status in _BUSY or status >= 500


def _codes(error: Exception) -> set[str]:
    """What the provider itself calls it, where it does."""
    body = getattr(error, "body", None)
    code = body.get("code") if isinstance(body, Mapping) else None
    return {each for each in (code, getattr(error, "code", None)) if isinstance(each, str)}


def _has_no_key(chain: list[BaseException]) -> bool:
    """OpenAI's library raises its root class itself where it finds no key; litellm calls that a 500."""
    return any((type(e).__module__, type(e).__name__) == ("openai", "OpenAIError") for e in chain)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__


def _first_cause(chain: list[BaseException]) -> BaseException:
    """The one that says most: litellm calls every connection that fails an internal server error."""
    return next((each for each in reversed(chain) if str(each).strip()), chain[0])


def _headers(chain: list[BaseException]) -> Mapping[str, str] | None:
    """The headers of the provider's response with an error status; None where there was none."""
    for each in chain:
        if type(each).__name__ == "HTTPStatusError":
            return each.response.headers  # type: ignore[attr-defined, no-any-return]
        headers = getattr(each, "litellm_response_headers", None)
        if headers is not None:
            return headers  # type: ignore[no-any-return]
    return None


def _wait(headers: Mapping[str, str]) -> float:
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


def _reason(error: BaseException, status: Any = None) -> str:
    name = type(error).__name__
    said = " ".join(str(error).split())
    while said.startswith(start := (f"litellm.{name}: ", f"{name}: ")):
        said = said.removeprefix(start[0]).removeprefix(start[1])  # litellm says it twice
    said = f"{name}: {said}"
    if len(said) > _LONGEST:
        said = said[: _LONGEST - 1] + "…"
    return f"{said} (status {status})" if status is not None else said
