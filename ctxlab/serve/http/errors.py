"""Conversion of errors to problem details (RFC 9457) that reveal no internals of the server.

If a ``CtxlabError`` is raised, its message is sent to the client, because it is written for users.
The subclass ``ReadError`` is different: its messages name files of the server. The client gets
status 500 and a fixed text for a ``ReadError`` and for unexpected errors. Unexpected errors are
also logged.
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
"""Text that the client gets in place of the message of an unexpected error."""

_DETAIL_BY_STATUS = {
    400: "the body cannot be parsed; send JSON in UTF-8",
    404: "unknown URL; see /openapi.json for all routes",
    405: "the URL does not support this HTTP method; see /openapi.json for all routes",
}
_STATUS_DESCRIPTIONS = {
    400: "The body cannot be parsed.",
    401: "The token is missing or wrong.",
    403: "The server does not serve this workspace, or a web page of another site sent the request.",
    404: "The session, turn or URL does not exist.",
    405: "The URL does not support this HTTP method.",
    408: "The body was not received in time.",
    409: "A turn is running in the workspace, or another process has changed the session.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "A value is missing or invalid.",
    500: "Internal server error.",
    502: "The model rejected the request.",
    503: "No model is available, the model did not answer, or the server is shutting down.",
}


_EXAMPLE = "session '6f9a…' of this workspace is running a turn; wait until the turn ends"
_EXAMPLE_PROBLEM: JsonDict = problem_details(409, _EXAMPLE)


class WrongValue(BaseModel):
    """Missing or invalid value in a request."""

    detail: str = Field(description="Description of the error.")
    where: str = Field(description="Part of the request with the value: body, query or path.")
    pointer: str = Field(description="JSON pointer to the value within this part of the request.")


class Problem(BaseModel):
    """Description of an error (problem details, RFC 9457)."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE_PROBLEM]})

    type: str = Field(description="Always about:blank. The status tells the kind of error.")
    title: str = Field(description="Standard phrase of the HTTP status.")
    status: int
    detail: str = Field(description="Cause of the error, and how to avoid it.")
    errors: list[WrongValue] | None = Field(None, description="Invalid values (status 422 only).")


def exception_to_problem(error: BaseException) -> dict[str, Any]:
    """Convert an exception to problem details.

    Parameters
    ----------
    error : BaseException
        Exception that was raised while a request was handled.

    Returns
    -------
    dict
        Problem details with a description of the error. The description of a ``ReadError`` or an
        unexpected exception is a fixed text.

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
        return problem_details(
            404, f"unknown session {error.id[:200]!r}; GET /workspaces/PATH/sessions lists the ids"
        )
    for kind, status in _STATUS_BY_ERROR:
        if isinstance(error, kind) and not isinstance(error, ReadError):
            return problem_details(status, str(error))
    return problem_details(500, INTERNAL_ERROR_DETAIL)


def add_problem_handlers(app: FastAPI) -> None:
    """Register handlers that answer all errors of an application with problem details.

    Parameters
    ----------
    app : FastAPI
        Application to which the handlers are added.
    """

    async def failed(request: Request, error: Exception) -> JSONResponse:
        headers = getattr(error, "headers", None)
        if not isinstance(error, HTTPException | CtxlabError):
            headers = {"connection": "close"}  # uvicorn logs the error and disconnects
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
    """Describe the error responses of a route for the OpenAPI document.

    Parameters
    ----------
    *statuses : int
        HTTP status codes of errors that the route may return.

    Returns
    -------
    dict
        OpenAPI response object of each status code.

    Examples
    --------
    >>> problem_responses(404)[404]["description"]
    'The session, turn or URL does not exist.'
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
    """Convert a validation error of pydantic to the fields of ``WrongValue``.

    The invalid value itself is left out, because it may be long or impossible to write as JSON.
    """
    where, *keys = [str(each) for each in error["loc"]] or ["body"]
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)
    detail = str(error["msg"])
    if error["type"] == "json_invalid":
        pointer, detail = "", f"invalid JSON at character {keys[0] if keys else 0}"
    said = {"detail": detail, "where": where, "pointer": pointer}
    return {key: repair_surrogates(value)[:300] for key, value in said.items()}
