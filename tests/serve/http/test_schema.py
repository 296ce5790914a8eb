"""Tests that the HTTP server behaves as its OpenAPI document says."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from http_serving import created, said, scripted, serving
from hypothesis import HealthCheck, given, settings
from schemathesis.generation import GenerationMode

from ctxlab.serve.http import make_app

TOKEN = {"Authorization": "Bearer secret"}
EXAMPLES = int(os.environ.get("CTXLAB_SCHEMA_EXAMPLES", "15"))
ATTEMPTS = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("workspace")


@pytest.fixture(scope="module")
def session(workspace: Path) -> str:
    """Create a session with three turns."""
    with serving(workspace) as client:
        id = created(client, workspace)
        for text in ("Fix the parser", "the walrus sleeps", "Release it"):
            said(client, id, text)
    return id


@pytest.fixture(scope="module")
def app(workspace: Path) -> Iterator[Any]:
    app = make_app([workspace], agent_for=scripted(), token="secret")
    yield app
    app.state.service.close()


@pytest.fixture(scope="module")
def api(app: Any) -> Any:
    return schemathesis.openapi.from_asgi("/openapi.json", app, headers=TOKEN)


def each_case(api: Any, label: str, mode: GenerationMode, check: Callable[[Any], None]) -> None:
    """Send generated requests of an operation that are valid or invalid by the document."""
    operation = next(o.ok() for o in api.get_all_operations() if o.ok().label == label)

    @ATTEMPTS
    @given(case=operation.as_strategy(generation_mode=mode))
    def attempt(case: schemathesis.Case) -> None:
        check(case)

    attempt()


APPROVAL = "POST /sessions/{id}/approvals/{call}"
OPERATIONS = (
    *("GET /health", "POST /chat", "GET /workspaces/{path}/sessions", "POST /sessions"),
    *("POST /sessions/{id}/messages", "DELETE /sessions/{id}", "GET /api/v1/sessions/{id}/toc"),
    *("GET /api/v1/sessions/{id}/turns/{turn}", "GET /api/v1/sessions/{id}/search"),
    *("GET /api/v1/sessions", "GET /api/v1/sessions/{id}", "GET /api/v1/search"),
    APPROVAL,
)


@pytest.mark.e2e
def test_all_operations_are_tried(api: Any) -> None:
    assert {each.ok().label for each in api.get_all_operations()} == set(OPERATIONS)


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("label", OPERATIONS)
def test_what_keeps_to_the_document_is_answered_as_it_says(api: Any, label: str) -> None:
    each_case(
        api, label, GenerationMode.POSITIVE, lambda case: case.call_and_validate(headers=TOKEN)
    )


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("label", OPERATIONS[1:])  # nothing can be wrong with the first
def test_what_breaks_the_document_is_refused_as_it_says(api: Any, label: str) -> None:
    each_case(
        api, label, GenerationMode.NEGATIVE, lambda case: case.call_and_validate(headers=TOKEN)
    )


@pytest.mark.e2e(smoke=True)
@pytest.mark.parametrize("label", [each for each in OPERATIONS if each != APPROVAL])
def test_what_names_a_session_that_is_there_is_done(
    api: Any, label: str, workspace: Path, session: str
) -> None:
    known = {"id": session, "path": str(workspace), "turn": "2"}
    said = {"workspacePath": str(workspace), "workspace": None, "sessionId": session}

    def check(case: schemathesis.Case) -> None:
        case.path_parameters = {name: known[name] for name in case.path_parameters or {}}
        if isinstance(case.body, dict):
            case.body.update({name: said[name] for name in said if name in case.body})
        assert case.call_and_validate(headers=TOKEN).status_code in (200, 201)

    each_case(api, label, GenerationMode.POSITIVE, check)


def test_the_document_is_complete(app: Any) -> None:
    document = app.openapi()
    assert document["info"]["version"]
    assert document["components"]["securitySchemes"]
    assert document["security"]
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"], path
            assert {"400", "401", "403", "413", "422", "500"} <= set(operation["responses"])
            success = [r for code, r in operation["responses"].items() if code < "300"]
            assert all(response["content"] for response in success), (method, path)
            for parameter in operation.get("parameters", ()):
                assert parameter["description"], (path, parameter["name"])
    shapes = document["components"]["schemas"]
    for name in ("ChatRequest", "SessionRequest", "MessageRequest", "SessionAnswer", "Problem"):
        assert shapes[name]["examples"], name
