"""``ctxlab next-action``: ask a model for the next tool call and compare it with the recorded one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ctxlab.cli.options import ASKING, READING, Options, flag, option, with_options
from ctxlab.cli.probing import ask_model
from ctxlab.errors import ReadError, SpecError


@with_options(
    "data answer_model strategies limits model reserve" + ASKING + READING + " on_error out json "
    "no_progress",
    strategies="Strategy to evaluate, such as 'observation_mask | panic'. May be repeated. Default: "
    "full (the upper bound), a mask, a window, nothing (the lower bound).",
    out="Save the run and all answers to this folder.",
)
def command(
    options: Options,
    requests_per_recording: int = option(
        "--requests-per-recording N",
        "Requests to ask at in each recording, spread over its length; 0 means all.",
        default=20,
    ),
    include_text_only: bool = flag(
        "--include-text-only", "Also ask at requests where the agent called no tool."
    ),
    only_changed: bool = flag(
        "--only-changed", "Ask only at requests whose context at least one strategy changes."
    ),
    tools: Path | None = option(
        "--tools FILE",
        "JSON file with a list of tool definitions [the recorded ones, else derived from the "
        "recorded calls].",
    ),
    max_tokens: int = option("--max-tokens N", "Most tokens of a reply.", default=4096),
) -> None:
    """Ask a model for the next tool call under each strategy and compare it with the recorded call.

    Examples
    --------
    ctxlab next-action logs/ -a gpt-5-mini --dry-run           estimate the cost
    ctxlab next-action logs/ -a gpt-5-mini -l 16k --max-cost 5 --out run
    ctxlab next-action logs/ -a gpt-5-mini -s full -s panic --only-changed

    Answers are cached: the same command run again calls no model and prints the same results.
    """
    from ctxlab.cli.render.next_action import next_action_text
    from ctxlab.evaluation.experiment import ExperimentGrid
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
        raise ReadError(path, None, "this is not JSON; expected a list of tools") from None
    if not isinstance(found, list) or not all(isinstance(tool, dict) for tool in found):
        wanted = "a JSON list of tool definitions, as objects in OpenAI's format"
        raise SpecError(f"{path}: expected {wanted}")
    return tuple(found)
