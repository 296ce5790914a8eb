"""``ctxlab next-action``: compare a model's next tool call with the recorded tool call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxlab.cli.options import ASKING, READING, TABLE, Options, flag, option, with_options
from ctxlab.cli.probing import ask_model
from ctxlab.errors import ReadError, SpecError


@with_options(
    "data answer_model strategies limits model reserve"
    + ASKING
    + READING
    + " on_error out"
    + TABLE
    + " json no_cache no_progress",
    strategies="Strategy to evaluate, such as 'observation_mask | panic'. May be repeated. Default: "
    "full (upper bound), 'observation_mask(keep=10) | sliding_window | panic', sliding_window and "
    "nothing (lower bound).",
    out="Save the run and all answers of the model to this folder.",
)
def command(
    options: Options,
    requests_per_recording: int = option(
        "--requests-per-recording N",
        "Number of requests to use in each recording, spread over its length; 0 uses all.",
        default=20,
    ),
    include_text_only: bool = flag(
        "--include-text-only", "Also use requests that the agent answered without a tool call."
    ),
    only_changed: bool = flag(
        "--only-changed", "Use only requests that at least one strategy changes."
    ),
    tools: Path | None = option(
        "--tools FILE",
        "JSON file with a list of tool definitions. Default: the recorded definitions; if there "
        "are none, definitions are derived from the recorded tool calls.",
    ),
    max_tokens: int = option("--max-tokens N", "Maximum tokens of a reply.", default=4096),
) -> None:
    """Measure how often a model makes the recorded tool call when a strategy edits its context.

    At each selected request, the model receives the context that a strategy would send. Its next tool
    call is compared with the tool call in the recording.

    Examples
    --------
    ctxlab next-action logs/ -a gpt-5-mini --dry-run  estimate the cost
    ctxlab next-action logs/ -a gpt-5-mini -l 16k --max-cost 5 --out run
    ctxlab next-action logs/ -a gpt-5-mini -s full -s panic --only-changed

    Answers are cached. If you repeat a command, it calls no model and prints the same results.
    """
    from ctxlab.cli.render.next_action import next_action_text
    from ctxlab.evaluation.grid import ExperimentGrid
    from ctxlab.evaluation.probing.next_action import DEFAULT_NEXT_ACTION_STRATEGIES, NextActionPlan

    spec = options.spec(strategies=tuple(DEFAULT_NEXT_ACTION_STRATEGIES))
    grid = ExperimentGrid.from_arguments(
        spec.strategies, spec.limits, spec.model, spec.reserve, (), spec.profiles
    )
    plan = NextActionPlan(
        grid,
        options.answer_model,
        requests_per_recording,
        options.replicates,
        None if tools is None else _read_tool_definitions(tools),
        include_text_only,
        only_changed,
        max_tokens,
        spec.seed,
    )
    ask_model(options, spec, plan, next_action_text)


def _read_tool_definitions(path: Path) -> tuple[dict[str, Any], ...]:
    from ctxlab._utils.jsonio import parse_json

    try:
        found = parse_json(path.read_bytes())
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except ValueError:
        raise ReadError(path, None, "invalid JSON; expected a list of tool definitions") from None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        wanted = "a JSON list of tool definitions, as objects in OpenAI's format"
        raise SpecError(f"{path}: expected {wanted}, got {str(found)[:60]}")
    return tuple(found)
