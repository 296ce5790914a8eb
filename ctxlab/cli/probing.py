"""Ask a model questions about recordings, after printing the maximum cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import pluralize
from ctxlab._utils.numbers import format_dollars
from ctxlab.cli.experiment import spec_to_store
from ctxlab.cli.notices import note_run
from ctxlab.cli.output import print_note, print_result, report_skipped
from ctxlab.cli.saving import check_output_folder, save_then_print
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.cli.options import Options
    from ctxlab.evaluation.probing.plan import ProbingPlan
    from ctxlab.evaluation.spec import Spec
    from ctxlab.llm.batch import RequestEstimate


def ask_model(
    options: Options, spec: Spec, plan: ProbingPlan[Any], to_text: Callable[[Any, Any], str]
) -> None:
    """Run a probing plan: print its maximum cost, ask the model, then save and print the results.

    With ``--dry-run``, only the maximum cost is printed.

    Parameters
    ----------
    options : Options
        Options of the command.
    spec : Spec
        Experiment with the recordings, strategies and limits.
    plan : ProbingPlan
        Plan that creates the questions and grades the replies.
    to_text : callable
        Function that takes the results and the rows and columns to print, and returns the table.
    """
    from ctxlab.cli.render.format import to_json_array
    from ctxlab.cli.render.leaderboard import leaderboard_data
    from ctxlab.evaluation.columns import leaderboard_names
    from ctxlab.llm import MAX_CONCURRENT_CALLS
    from ctxlab.llm.batch import build_cost_limited_client

    if options.concurrency is not None and options.concurrency < 1:
        raise SpecError(f"--concurrency: expected 1 or more, got {options.concurrency}")
    out, view = options.out, options.view
    view.check(leaderboard_names(plan.scores))
    if not options.dry_run:
        check_output_folder(out, spec, plan.results.kind, options.answer_model)
    most = options.concurrency or MAX_CONCURRENT_CALLS
    client = build_cost_limited_client(options.max_cost, spec.calls, concurrency=most)
    with _note_kept_answers_on_cancel(spec):
        with report_skipped(spec.on_error) as skipped:
            recordings = skipped.counting(spec.recordings(skipped))
            estimates = plan.estimate_cost(recordings, client, options.progress)
        for number, (model, each) in enumerate(zip(plan.models, estimates, strict=True)):
            asked = pluralize(each.questions, "verdict" if number else "question")
            print_note(f"{asked}{estimate_text(each, model, spec.calls)}")
        _note_cost_terms(spec, options.max_cost)
        if options.dry_run:
            if options.json:
                rows = zip(plan.models, estimates, strict=True)
                print_result(to_json_array({"model": m, **each._asdict()} for m, each in rows))
            return
        total = sum(each.questions for each in estimates)
        found = plan.run(spec.recordings(), client, spec.data, options.progress, total)
    found.manifest["spec"] = spec_to_store(spec, found)
    del found.manifest["spec"]["metrics"]
    note_run(found, spec.model)
    with save_then_print(out, found.save, f"saved to {out}; answers.parquet contains all answers"):
        as_data = options.json or options.csv
        text = (
            leaderboard_data(found, view, as_csv=options.csv) if as_data else to_text(found, view)
        )
        print_result(text)


def estimate_text(estimate: RequestEstimate, model: str, calls: str) -> str:
    """Describe the cost of questions, as the end of a sentence that starts with the number of questions.

    Parameters
    ----------
    estimate : RequestEstimate
        Number of questions, number of cached replies, and maximum cost.
    model : str
        Model to ask.
    calls : str
        Cache mode: ``"auto"``, ``"replay"`` or ``"record"``.

    Returns
    -------
    str
        Text that begins with a comma, a semicolon or a colon.

    Examples
    --------
    >>> from ctxlab.llm.batch import RequestEstimate
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "auto")
    ', 300 cached or repeated, at most $12.30 with gpt-5-mini'
    >>> estimate_text(RequestEstimate(400, 300, 9000, 12.3), "gpt-5-mini", "replay")
    ', 300 cached or repeated; 100 have no stored answer (--cache-mode auto asks gpt-5-mini)'
    """
    known = f", {estimate.known:,} cached or repeated" if estimate.known else ""
    if estimate.known == estimate.questions:
        return f"{known}: no calls to {model} are needed"
    if calls == "replay":
        left = estimate.questions - estimate.known
        verb = "has" if left == 1 else "have"
        return f"{known}; {left:,} {verb} no stored answer (--cache-mode auto asks {model})"
    usd = estimate.usd
    price = "price unknown" if usd != usd else f"at most {format_dollars(usd)}"
    return f"{known}, {price} with {model}"


@contextmanager
def _note_kept_answers_on_cancel(spec: Spec) -> Iterator[None]:
    """If the ``with`` block is interrupted, print that all answers so far are stored."""
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    try:
        yield
    except KeyboardInterrupt:
        if spec.calls != "replay":
            stored = f"the answers so far are stored in {DEFAULT_CACHE_FOLDER}"
            print_note(f"{stored}; run the same command again to continue")
        raise


def _format_usd(usd: float) -> str:
    """Format an amount of dollars with two decimals, or with more if two are not exact.

    >>> _format_usd(5), _format_usd(0.004), _format_usd(1250.5)
    ('$5.00', '$0.004', '$1,250.50')
    """
    return f"${usd:,.2f}" if round(usd, 2) == usd else f"${usd:,.15g}"


def _note_cost_terms(spec: Spec, max_cost: float | None) -> None:
    """Print whether a model is called, the maximum cost, and which costs are not in the estimate."""
    from ctxlab.llm import DEFAULT_CACHE_FOLDER

    if spec.calls == "replay":
        print_note(f"no model is called; answers are read from {DEFAULT_CACHE_FOLDER}")
    elif max_cost is not None:
        kept = f"all answers up to that point are stored in {DEFAULT_CACHE_FOLDER}"
        print_note(f"the run stops before it costs more than {_format_usd(max_cost)}; {kept}")
    if spec.strategy_models:
        within = ", but it counts towards --max-cost" if max_cost is not None else ""
        said = f"strategies call {', '.join(spec.strategy_models)}"
        print_note(f"{said}; the cost of these calls is not in the estimate{within}")
