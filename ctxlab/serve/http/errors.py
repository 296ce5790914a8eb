"""What goes wrong is answered as problem details (RFC 9457), and tells nothing of the inside.

A failure of ours is a sentence for the user and is told; an exception that nobody expected is logged
by the server and answered with 500 and no more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
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

__all__ = [
    "INTERNAL_ERROR_DETAIL",
    "PROBLEM_MEDIA_TYPE",
    "HTTPProblem",
    "Problem",
    "WrongValue",
    "add_problem_handlers",
    "exception_to_problem",
    "problem_responses",
]

PROBLEM_MEDIA_TYPE = "application/problem+json"

_STATUS_BY_ERROR: Sequence[tuple[type[Exception], int]] = (
    (UnknownTurn, 404),
    (SpecError, 422),
    (SessionActive, 409),
    (SessionConflict, 409),
    (ModelUnavailable, 503),
    (ModelRequestRejected, 502),
)
INTERNAL_ERROR_DETAIL = "the server failed; its log says why"
"""What is said of a failure that nobody expected."""

_DETAIL_BY_STATUS = {
    400: "the body cannot be read: send JSON in UTF-8",
    404: "nothing is at this address; /openapi.json lists what there is",
    405: "this address does not take this method",
}
_STATUS_DESCRIPTIONS = {
    400: "The body cannot be read.",
    401: "The token is missing or wrong.",
    403: "The workspace is none of this server, or the page is of another site.",
    404: "There is no such session, turn or address.",
    405: "The address does not take this method.",
    408: "The body did not come in time.",
    409: "A session of the workspace is at work, has gone on elsewhere, or the id is taken.",
    413: "The body is too large.",
    415: "The body is no JSON.",
    422: "A value is missing or wrong.",
    500: "The server failed.",
    502: "The model refused the request.",
    503: "The server has no model, the model gave no answer, or the server is about to end.",
}


class WrongValue(BaseModel):
    """A value that is missing or wrong."""

    detail: str = Field(description="What is wrong with it.")
    where: str = Field(description="body, query or path.")
    pointer: str = Field(description="The value, as a JSON pointer into that.")


class Problem(BaseModel):
    """What went wrong (RFC 9457)."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {
                    "type": "about:blank",
                    "title": "Conflict",
                    "status": 409,
                    "detail": "session '6f9a…' of this workspace is at work: wait for its turn to end",
                }
            ]
        }
    )

    type: str = Field(description="about:blank: the status says what kind of problem it is.")
    title: str = Field(description="The name of the status.")
    status: int
    detail: str = Field(description="What went wrong and what to do about it.")
    errors: list[WrongValue] | None = Field(None, description="With 422: each wrong value.")


class HTTPProblem(Exception):
    """A request that is answered with a problem."""

    def __init__(self, status: int, detail: str) -> None:
        self.status, self.detail = status, detail
        super().__init__(detail)


def exception_to_problem(error: BaseException) -> dict[str, Any]:
    """The problem that an exception is told as.

    >>> exception_to_problem(UnknownSession("a"))["status"]
    404
    >>> exception_to_problem(ValueError("secret"))["detail"]
    'the server failed; its log says why'
    """
    if isinstance(error, HTTPProblem):
        return problem_details(error.status, error.detail)
    if isinstance(error, UnknownSession):
        return problem_details(404, f"no session {error.id[:200]!r}")
    for kind, status in _STATUS_BY_ERROR:
        if isinstance(error, kind):
            return problem_details(status, str(error))
    if isinstance(error, CtxlabError) and not isinstance(error, ReadError):
        return problem_details(500, str(error))
    return problem_details(500, INTERNAL_ERROR_DETAIL)


def add_problem_handlers(app: FastAPI) -> None:
    """Every failure of an app is answered as a problem from now on."""

    async def failed(request: Request, error: Exception) -> JSONResponse:
        return _problem_response(exception_to_problem(error))

    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        # The server logs it and closes the connection.
        return _problem_response(exception_to_problem(error), {"connection": "close"})

    async def invalid(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, RequestValidationError)
        wrong = [_invalid_value(each) for each in error.errors()]
        said = "; ".join(
            f"{each['where']} {each['pointer']}: {each['detail']}".replace("  ", " ")
            for each in wrong[:3]
        )
        return _problem_response({**problem_details(422, said), "errors": wrong})

    async def refused(request: Request, error: Exception) -> JSONResponse:
        assert isinstance(error, HTTPException)
        detail = _DETAIL_BY_STATUS.get(error.status_code) or str(error.detail)
        return _problem_response(problem_details(error.status_code, detail), error.headers)

    app.add_exception_handler(RequestValidationError, invalid)
    app.add_exception_handler(HTTPException, refused)
    app.add_exception_handler(HTTPProblem, failed)
    app.add_exception_handler(CtxlabError, failed)
    app.add_exception_handler(Exception, unexpected)


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """Problems that a route answers with, as OpenAPI describes them.

    >>> problem_responses(404)[404]["description"]
    'There is no such session, turn or address.'
    """
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {
            "description": _STATUS_DESCRIPTIONS[status],
            "content": {PROBLEM_MEDIA_TYPE: schema},
        }
        for status in sorted(statuses)
    }


def _problem_response(
    details: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> JSONResponse:
    # What was sent may come back in a sentence, and need not be good Unicode.
    clean = {
        key: repair_surrogates(value) if isinstance(value, str) else value
        for key, value in details.items()
    }
    return JSONResponse(
        clean,
        status_code=details["status"],
        headers=dict(headers or {}),
        media_type=PROBLEM_MEDIA_TYPE,
    )


def _invalid_value(error: Mapping[str, Any]) -> dict[str, str]:
    """One error of pydantic's, without what was sent: it may be long, and no JSON."""
    where, *keys = [str(each) for each in error["loc"]] or ["body"]
    pointer = "".join(f"/{key.replace('~', '~0').replace('/', '~1')}" for key in keys)
    detail = str(error["msg"])
    if error["type"] == "json_invalid":
        pointer, detail = "", f"not JSON, from character {keys[0] if keys else 0}"
    return {
        "detail": repair_surrogates(detail)[:300],
        "where": where,
        "pointer": repair_surrogates(pointer)[:300],
    }
