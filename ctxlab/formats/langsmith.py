"""LangSmith exports runs, of which those of a model say the whole conversation again and again.

A file is a JSON list of runs, JSONL of them, or ``{"runs": [...]}`` as the API answers; a run may
hold its ``child_runs``. Only runs of type ``llm`` (``chat_model`` in a stream of events) are read: the
chains and tools around them repeat what they say, and are counted by their type.

- ``inputs`` and ``outputs`` are what LangChain, ``wrap_openai``, ``wrap_anthropic`` or ``traceable``
  logged (``any_call``). A prompt of a model that is no chat model is a user's message.
- Runs belong together by ``session_id``, ``thread_id`` or ``conversation_id`` in their metadata, else
  by their trace. The ``session_id`` of the run itself is the project.
- Usage is the answer's own, else the run's. It counts the cached tokens within the prompt.

Answers that continue another by ``previous_response_id`` say only what is new, and are conversations
of their own. The bulk export (Parquet) is not read.

Source: docs.langchain.com/langsmith (``run-data-format``, ``log-llm-trace``, ``threads``), 2026;
langsmith 0.15.0 ``schemas.Run`` and ``wrappers``; langchain-core 1.8.2 ``tracers``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import (
    Format,
    Source,
)
from ctxlab.formats.common.api_tools import tools_of
from ctxlab.formats.common.json_files import values
from ctxlab.formats.common.traces import (
    Call,
    call,
    conversations,
    thread_of,
)
from ctxlab.formats.common.usage import (
    anthropic_usage,
    langchain_usage,
    openai_usage,
)
from ctxlab.formats.io.head import Head
from ctxlab.formats.optional_fields import (
    first_text,
    iso_time,
    within,
)
from ctxlab.formats.required_fields import an_object
from ctxlab.messages.types import (
    Recording,
    Usage,
)

__all__ = ["FORMAT", "read", "sniff"]

_TYPES = ("llm", "chat_model", "chain", "tool", "retriever", "embedding", "prompt", "parser")
_THREADS = ("session_id", "thread_id", "conversation_id")
_TOLD = ("trace_id", "dotted_order", "start_time", "parent_run_id", "session_id", "inputs")


def sniff(head: Head) -> bool:
    """Whether a file begins with a run: a type that LangSmith knows, and where it belongs."""
    return any(_is_run(run) for row in head.rows for run in _listed(row))


def read(source: Source) -> Iterator[Recording]:
    """The conversations of each thread, or else of each trace."""
    return conversations(_calls(source), source)


FORMAT = Format("langsmith", "LangSmith runs, exported as JSON or JSONL", sniff, read)


def _is_run(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and value.get("run_type") in _TYPES
        and any(key in value for key in _TOLD)
    )


def _listed(value: Any) -> list[Any]:
    runs = within(value, "runs")
    if isinstance(runs, list):
        return runs
    return value if isinstance(value, list) else [value]


def _calls(source: Source) -> Iterator[Call]:
    for where, value in values(source):
        for number, run in enumerate(_runs(value)):
            with source.guard(*(where or (number, "run"))):
                kind = an_object(run, "a run").get("run_type")
                if kind in ("llm", "chat_model"):
                    yield _call(run, source)
                else:
                    source.skip(f"run of type {kind}")


def _runs(value: Any) -> Iterator[Any]:
    """Every run of a value, those within another after it."""
    waiting = _listed(value)[::-1]
    while waiting:
        run = waiting.pop()
        yield run
        children = within(run, "child_runs")
        if isinstance(children, list):
            waiting += children[::-1]


def _call(run: dict[str, Any], source: Source) -> Call:
    extra, inputs, outputs = run.get("extra"), run.get("inputs"), run.get("outputs")
    metadata, params = within(extra, "metadata"), within(extra, "invocation_params")
    models = (
        within(metadata, "ls_model_name"),
        *(within(each, key) for each in (params, inputs) for key in ("model", "model_name")),
        within(outputs, "model"),
    )
    defined = (within(each, key) for key in ("tools", "functions") for each in (inputs, params))
    return call(
        thread_of(metadata, _THREADS, first_text([run.get("trace_id"), run.get("id")]) or "run"),
        inputs,
        outputs,
        source.skip,
        start=iso_time(run.get("start_time")),
        end=iso_time(run.get("end_time")),
        usage=_usage(run),
        tools=tools_of(next((each for each in defined if each), None), source.skip),
        model=first_text(models),
    )


def _usage(run: dict[str, Any]) -> Usage | None:
    outputs = run.get("outputs")
    raw = within(outputs, "usage")
    counted = {
        "input_tokens": run.get("prompt_tokens"),
        "output_tokens": run.get("completion_tokens"),
        "input_token_details": run.get("prompt_token_details"),
        "output_token_details": run.get("completion_token_details"),
    }
    return (
        langchain_usage(within(outputs, "usage_metadata"))
        or langchain_usage(within(run.get("extra"), "metadata", "usage_metadata"))
        or openai_usage(within(outputs, "llm_output", "token_usage") or None)
        or (openai_usage(raw) if within(raw, "prompt_tokens") else anthropic_usage(raw))
        or (langchain_usage(counted) if run.get("prompt_tokens") else None)
    )
