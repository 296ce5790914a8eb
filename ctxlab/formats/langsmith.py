"""Reader for LangSmith runs exported as JSON or JSONL.

A file is a JSON list of runs, JSONL with one run per line, or ``{"runs": [...]}`` as returned by
the API. A run may contain ``child_runs``. Only runs of type ``llm`` are read (``chat_model`` if the
file was recorded from streamed events). Runs of chains and tools repeat the same content. They are
skipped and counted by type. Each ``llm`` run repeats the whole conversation so far, so these runs
are joined into conversations.

- ``inputs`` and ``outputs`` contain the request and response as logged by LangChain,
  ``wrap_openai``, ``wrap_anthropic`` or ``traceable`` (see ``common/traces``). The prompt of a
  completion model becomes a user message.
- Runs are grouped by the ``session_id``, ``thread_id`` or ``conversation_id`` in their metadata.
  Runs without such an id are grouped by trace. The ``session_id`` field of the run itself is not
  used, because it identifies the project.
- Token usage is read from the response or, if the response has none, from the run. The prompt
  tokens of a run include cached tokens.

A call to the Responses API with ``previous_response_id`` logs only its new messages, so it becomes
a separate conversation. Bulk exports (Parquet) are not read.

References
----------
docs.langchain.com/langsmith (``run-data-format``, ``log-llm-trace``, ``threads``), 2026;
langsmith 0.15.0 ``schemas.Run`` and ``wrappers``; langchain-core 1.8.2 ``tracers``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ctxlab.formats.base import Format, Source
from ctxlab.formats.common.api_content import parse_tools
from ctxlab.formats.common.traces import TracedCall, build_traced_call, find_thread, group_calls
from ctxlab.formats.common.usage import anthropic_usage, langchain_usage, openai_usage
from ctxlab.formats.fields import first_text, get_in, get_time, require_object
from ctxlab.formats.io.head import FileHead
from ctxlab.messages.types import Recording, Usage

_RUN_TYPES = ("llm", "chat_model", "chain", "tool", "retriever", "embedding", "prompt", "parser")
_THREAD_KEYS = ("session_id", "thread_id", "conversation_id")
_RUN_KEYS = ("trace_id", "dotted_order", "start_time", "parent_run_id", "session_id", "inputs")


def sniff(head: FileHead) -> bool:
    """Check whether a file starts with a LangSmith run: a known ``run_type`` and other fields of a run.

    Parameters
    ----------
    head : FileHead
        The beginning of the file, parsed as JSON.

    Returns
    -------
    bool
        True if one of the first objects is a LangSmith run.
    """
    return any(_is_run(run) for row in head.rows for run in _top_level_runs(row))


def read(source: Source) -> Iterator[Recording]:
    """Read the conversations of each thread, or of each trace if the runs name no thread.

    Parameters
    ----------
    source : Source
        The file to read. Content that is skipped is counted by its ``skip`` method.

    Returns
    -------
    Iterator of Recording
        One recording per conversation.
    """
    return group_calls(_read_calls(source), source)


FORMAT = Format(
    "langsmith",
    "LangSmith runs, exported as JSON or JSONL",
    sniff,
    read,
    versions="from source: langsmith 0.15.0, langchain-core 1.8.2; no real file",
    not_read=(
        "left out: runs of chains, tools and retrievers, further choices, artifacts of "
        "tools, bulk exports in Parquet"
    ),
)


def _is_run(value: Any) -> bool:
    run = get_in(value, "run_type") in _RUN_TYPES
    return run and not value.keys().isdisjoint(_RUN_KEYS)


def _top_level_runs(value: Any) -> list[Any]:
    runs = get_in(value, "runs")
    if isinstance(runs, list):
        return runs
    return value if isinstance(value, list) else [value]


def _read_calls(source: Source) -> Iterator[TracedCall]:
    for where, value in source.read_json_values():
        for number, run in enumerate(_iter_runs(value)):
            with source.handle_errors(*(where or (number, "run"))):
                kind = require_object(run, "a run").get("run_type")
                if kind in ("llm", "chat_model"):
                    yield _parse_call(run, source)
                else:
                    source.skip(f"run of type {kind}")


def _iter_runs(value: Any) -> Iterator[Any]:
    """Yield all runs of a JSON value. Each run is followed by its child runs."""
    waiting = _top_level_runs(value)[::-1]
    while waiting:
        run = waiting.pop()
        yield run
        children = get_in(run, "child_runs")
        if isinstance(children, list):
            waiting += children[::-1]


def _parse_call(run: dict[str, Any], source: Source) -> TracedCall:
    extra, inputs, outputs = run.get("extra"), run.get("inputs"), run.get("outputs")
    metadata, params = get_in(extra, "metadata"), get_in(extra, "invocation_params")
    asked = [get_in(each, key) for each in (params, inputs) for key in ("model", "model_name")]
    models = [get_in(metadata, "ls_model_name"), *asked, get_in(outputs, "model")]
    trace = first_text([run.get("trace_id"), run.get("id")]) or "run"
    defined = (get_in(each, key) for key in ("tools", "functions") for each in (inputs, params))
    return build_traced_call(
        find_thread(metadata, _THREAD_KEYS, trace),
        inputs,
        outputs,
        source.skip,
        start=get_time(run, "start_time"),
        end=get_time(run, "end_time"),
        usage=_parse_usage(run),
        tools=parse_tools(next((each for each in defined if each), None), source.skip),
        model=first_text(models),
    )


def _parse_usage(run: dict[str, Any]) -> Usage | None:
    outputs = run.get("outputs")
    raw = get_in(outputs, "usage")
    counted = {
        "input_tokens": run.get("prompt_tokens"),
        "output_tokens": run.get("completion_tokens"),
        "input_token_details": run.get("prompt_token_details"),
        "output_token_details": run.get("completion_token_details"),
    }
    return (
        langchain_usage(get_in(outputs, "usage_metadata"))
        or langchain_usage(get_in(run, "extra", "metadata", "usage_metadata"))
        or openai_usage(get_in(outputs, "llm_output", "token_usage") or None)
        or (openai_usage(raw) if get_in(raw, "prompt_tokens") else anthropic_usage(raw))
        or (langchain_usage(counted) if run.get("prompt_tokens") else None)
    )
