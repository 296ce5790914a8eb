"""Convert errors to problem details (RFC 9457) that reveal no internals.

The message of a ``CtxlabError`` is written for users and is sent to the client. Any other exception
is logged and answered with status 500 only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from pydantic.config import JsonDict
from starlette.exceptions import HTTPException

from ctxlab._utils.jsonio import repair_surrogates
from ctxlab.errors import (
    CtxlabError,
    ModelRequestRejected,
    ModelUnavailable,
    ReadError,
    SessionActive,
    SessionConflict,
    SpecError,
    UnknownSession,
    UnknownTurn,
)
from ctxlab.serve.auth import problem_details

PROBLEM_MEDIA_TYPE = "application/problem+json"

_STATUS_BY_ERROR: Sequence[tuple[type[Exception], int]] = (
    (UnknownTurn, 404),
    (SpecError, 422),
    (SessionActive, 409),
    (SessionConflict, 409),
    (ModelUnavailable, 503),
    (ModelRequestRejected, 502),
    (CtxlabError, 500),
)
INTERNAL_ERROR_DETAIL = "internal error; see the log of the server"
"""Detail of an unexpected error."""

_DETAIL_BY_STATUS = {
    400: "the body cannot be read; send JSON in UTF-8",
    404: "no such URL; see /openapi.json for all routes",
    405: "this URL does not support this method",
}
_STATUS_DESCRIPTIONS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "The server does not serve this workspace, or the request comes from a page of another site.",
    404: "There is no such session, turn or URL.",
    405: "The URL does not support this method.",
    408: "The body was not received in time.",
    409: "A turn is running in the workspace, the session changed elsewhere, or the id is taken.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is missing or invalid.",
    500: "Internal server error.",
    502: "The model rejected the request.",
    503: "No model is available, the model did not answer, or the server is shutting down.",
}


_EXAMPLE = "session '6f9a…' of this workspace is running a turn; wait for its end"
_EXAMPLE_PROBLEM: JsonDict = problem_details(409, _EXAMPLE)


class WrongValue(BaseModel):
    """A value that is missing or invalid."""

    detail: str = Field(description="What is wrong with it.")
    where: str = Field(description="Part of the request: body, query or path.")
    pointer: str = Field(description="JSON pointer to the value within that part.")


class Problem(BaseModel):
    """Details of an error (RFC 9457)."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_PROBLEM]})

    type: str = Field(description="Always about:blank: the status is the kind of problem.")
    title: str = Field(description="Name of the status.")
    status: int
    detail: str = Field(description="What went wrong and what to do about it.")
    errors: list[WrongValue] | None = Field(None, description="With 422: each invalid value.")


def exception_to_problem(error: BaseException) -> dict[str, Any]:
    """Convert an exception to problem details.

    Parameters
    ----------
    error : BaseException
        Exception of a request.

    Returns
    -------
    dict
        The problem details; an unexpected exception reveals nothing.

    Examples
    --------
    >>> exception_to_problem(UnknownSession("a"))["status"]
    404
    >>> exception_to_problem(ValueError("secret"))["detail"]
    'internal error; see the log of the server'
    """
    if isinstance(error, HTTPException):
        detail = _DETAIL_BY_STATUS.get(error.status_code, str(error.detail))
        return problem_details(error.status_code, detail)
    if isinstance(error, UnknownSession):
        return problem_details(404, f"no session {error.id[:200]!r}")
    for kind, status in _STATUS_BY_ERROR:
        if isinstance(error, kind) and not isinstance(error, ReadError):
            return problem_details(status, str(error))
    return problem_details(500, INTERNAL_ERROR_DETAIL)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer all errors of an application with problem details.

    Parameters
    ----------
    app : FastAPI
        Application to change.
    """

    async def failed(request: Request, error: Exception) -> JSONResponse:
        headers = getattr(error, "headers", None)
        if not isinstance(error, HTTPException | CtxlabError):
            headers = {"connection": "close"}  # uvicorn logs the exception and closes it
        return _problem_response(exception_to_problem(error), headers)

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        wrong = [_invalid_value(each) for each in error.errors()]
        said = (f"{w['where']} {w['pointer']}: {w['detail']}".replace("  ", " ") for w in wrong[:3])
        return _problem_response({**problem_details(422, "; ".join(said)), "errors": wrong})

    app.add_exception_handler(RequestValidationError, invalid)
    for kind in (HTTPException, CtxlabError, Exception):
        app.add_exception_handler(kind, failed)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Describe the problems of a route for OpenAPI.

    Parameters
    ----------
    *statuses : int
        HTTP status codes that the route may return.

    Returns
    -------
    dict
        OpenAPI response by status.

    Examples
    --------
    >>> problem_responses(404)[404]["description"]
    'There is no such session, turn or URL.'
    """
    content = {PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    texts = {status: _STATUS_DESCRIPTIONS[status] for status in sorted(statuses)}
    return {status: {"description": text, "content": content} for status, text in texts.items()}


def _problem_response(
    details: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    # A message may quote the request, which may contain lone surrogates.
    texts = {key: value for key, value in details.items() if isinstance(value, str)}
    clean = {**details, **{key: repair_surrogates(text) for key, text in texts.items()}}
    return JSONResponse(clean, details["status"], headers, PROBLEM_MEDIA_TYPE)


def _invalid_value(error: Mapping[str, Any]) -> dict[str, str]:
    """Convert one pydantic error, without the input, which may be long or not JSON."""
    where, *keys = [str(each) for each in error["loc"]] or ["body"]
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)
    detail = str(error["msg"])
    if error["type"] == "json_invalid":
        pointer, detail = "", f"not JSON, from character {keys[0] if keys else 0}"
    said = {"detail": detail, "where": where, "pointer": pointer}
    return {key: repair_surrogates(value)[:300] for key, value in said.items()}
