"""``ctxlab calibrate``: fit token counts to the token usage that a provider billed."""

from __future__ import annotations

from pathlib import Path

from ctxlab.cli.options import READING, Options, flag, option, with_options
from ctxlab.cli.output import one_line, print_note, print_result


@with_options("data" + READING + " json no_progress", json="Print the table as JSON.")
def command(
    options: Options,
    model: str = option(
        "--model -m MODEL",
        "Use only recordings of this model's family, such as all Claude models.",
        default="claude-opus-4-5",
    ),
    project: Path = option(
        "--project DIR", "Folder in which .ctxlab/profiles is created.", default=Path()
    ),
    dry_run: bool = flag("--dry-run", "Print the profile without storing it."),
) -> None:
    """Fit token counts to the token usage that a provider billed.

    Most providers do not publish their tokenizers, so ctxlab counts tokens with o200k_base, the
    tokenizer of OpenAI's models. This command compares these counts with the billed usage in
    recordings and fits a correction, the profile. The profile also contains the extra tokens of tool
    calls and of hidden reasoning.

    The profile is stored in .ctxlab/profiles of the current folder. ctxlab eval and ctxlab describe
    use it when they are run in this folder. A profile for Claude is built in.

    Examples
    --------
    ctxlab calibrate ~/.claude/projects --where 'model=claude-opus*'
    ctxlab calibrate logs/ --model gemini-2.5-pro --dry-run  the Gemini logs
    """
    from ctxlab._utils.numbers import format_count
    from ctxlab._utils.progress import track
    from ctxlab.cli.render.format import to_json_array
    from ctxlab.cli.render.table import Table
    from ctxlab.evaluation.columns import Column
    from ctxlab.tokens.calibration import calibrate

    spec = options.spec(on_error="skip")
    shown = track(spec.recordings(), "reading", None, options.progress)
    found = calibrate(
        shown, model, source=f"sessions in {', '.join(spec.without_credentials().data)}"
    )
    if found.skipped:
        why_not = ", ".join(f"{count:,} × {one_line(why)}" for why, count in found.skipped.items())
        print_note(f"skipped: {why_not}")
    if not dry_run:
        print_note(f"profile stored as {found.save(project)}")
    sessions = sorted(found.sessions, key=lambda session: session.recording)
    if options.json:
        print_result(to_json_array(vars(session) for session in sessions))
        return
    columns = [
        Column("recording", [one_line(each.recording) for each in sessions], left=True),
        Column("requests", [f"{each.requests:,}" for each in sessions], drop=2),
        Column("billed", [format_count(each.billed) for each in sessions]),
        Column("counted", [format_count(each.counted) for each in sessions]),
        Column("unlogged", [format_count(each.fixed) for each in sessions], drop=1),
        Column("error %", [f"{100 * each.error:.1f}" for each in sessions]),
        Column("unrecorded\nchanges", [str(len(each.unsaid) or "") for each in sessions], drop=3),
    ]
    profile = found.profile
    error = "unknown (all sessions are in one cluster)"
    if profile.error is not None and profile.error_90 is not None:
        error = f"{profile.error:.1%} in the median, {profile.error_90:.0%} or more for 1 in 10"
    legend = (
        f"Text is billed as {profile.ratio:.3f} tokens per token of o200k_base plus "
        f"{profile.per_char:.3f} tokens per character. A tool call adds {profile.per_call:.0f} tokens. "
        f"Hidden reasoning that is sent back is billed as {profile.reasoning:.2f} tokens per token. "
        f"{profile.fixed:,} tokens of each request are missing from the logs.",
        f"Fitted on {profile.sessions} sessions and {profile.requests:,} requests. For sessions that "
        f"are not part of the fit, the error of a request is {error}.",
        "Billed: tokens of the largest request, as billed by the provider. Counted: tokens of this "
        "request, as computed with the profile. Unlogged: tokens of the system prompt and tools, "
        "which are not in the log. Error: median of "
        "|counted - billed| / billed, with the recording left out of the fit and its unlogged tokens "
        "taken from its first bill. Unrecorded changes: context changes that the log does not show.",
    )
    print_result(Table(columns).render(*legend))
