"""``ctxlab calibrate``: fit token counts to the bills of recordings."""

from __future__ import annotations

from pathlib import Path

from ctxlab.cli.options import READING, Options, flag, option, with_options
from ctxlab.cli.output import one_line, print_note, print_result


@with_options("data" + READING + " json no_progress", json="Print the sessions as JSON.")
def command(
    options: Options,
    model: str = option(
        "--model -m MODEL",
        "Learn from recordings of this model's family.",
        default="claude-opus-4-5",
    ),
    project: Path = option(
        "--project DIR", "Project folder to store the profile in.", default=Path()
    ),
    dry_run: bool = flag("--dry-run", "Show the profile without storing it."),
) -> None:
    """Fit token counts to the usage that a provider billed in recordings.

    Most providers do not publish their tokenizers. The billed usage of recorded requests shows how far
    counts with o200k_base are from the provider's own, and how many tokens a tool call and hidden
    reasoning take in addition to their text. The result is a profile, stored in .ctxlab/profiles of
    the current folder. eval and describe use it when they run there. A profile for Claude is built in.

    Examples
    --------
    ctxlab calibrate ~/.claude/projects --where 'model=claude-opus*'
    ctxlab calibrate logs/ --model gemini-2.5-pro --dry-run   only the Gemini recordings in logs/
    """
    from ctxlab._utils.progress import track
    from ctxlab.cli.render.format import format_count, to_json_array
    from ctxlab.cli.render.table import Column, Table
    from ctxlab.tokens.calibration import calibrate

    spec = options.spec(on_error="skip")
    shown = track(spec.recordings(), "reading", None, options.progress)
    found = calibrate(shown, model, source=f"sessions in {', '.join(spec.data)}")
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
    error = "an unknown amount (all sessions are in one cluster)"
    if profile.error is not None and profile.error_90 is not None:
        error = f"{profile.error:.1%} (median), and by {profile.error_90:.0%} or more in one of ten"
    legend = (
        f"A text is billed as {profile.ratio:.3f} tokens per token of o200k_base plus "
        f"{profile.per_char:.3f} per character; a tool call adds {profile.per_call:.0f}; hidden "
        f"reasoning that is sent back counts as {profile.reasoning:.2f} per token; {profile.fixed:,} "
        "tokens of each request are missing from the logs.",
        f"Fitted on {profile.sessions} sessions and {profile.requests:,} requests. On sessions left "
        f"out of the fit, a request is off by {error}.",
        "Billed, counted: tokens of the largest request by the provider and by the profile. Unlogged: "
        "system prompt and tools. Error: median of |counted - billed| / billed with the recording left "
        "out of the fit and its unlogged part taken from its first bill. Unrecorded changes: context "
        "changes that the log does not show.",
    )
    print_result(Table(columns).render(*legend))
