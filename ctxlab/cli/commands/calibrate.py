"""``ctxlab calibrate`` learns from recorded bills how a family of models counts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ctxlab.cli.options import FormatName, NoProgress, Paths, Sample, Seed, Where, make_spec
from ctxlab.cli.output import one_line, print_note, print_result

__all__ = ["command"]


def command(
    paths: Paths,
    model: Annotated[
        str,
        typer.Option(
            "--model",
            "-m",
            metavar="MODEL",
            help="Whose bills teach: recordings of its provider's family.",
        ),
    ] = "claude-opus-4-5",
    project: Annotated[
        Path, typer.Option(metavar="DIR", help="The project that keeps the profile.")
    ] = Path(),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show it and store nothing.")] = False,
    where: Where = None,
    sample: Sample = None,
    seed: Seed = None,
    format: FormatName = None,
    json: Annotated[bool, typer.Option("--json", help="Print the sessions as JSON.")] = False,
    no_progress: NoProgress = False,
) -> None:
    """Learn from the provider's usage in recordings how its models count, for this project's runs.

    The vocabularies of most providers are not public. What was billed for recorded requests tells how
    far a count of o200k_base is from the provider's own, and what a tool call and hidden reasoning
    cost beside their text. The profile is stored in .ctxlab/profiles of the current folder; eval and
    describe use it there. A profile for Claude is built in.

    \b
    Examples:
      ctxlab calibrate ~/.claude/projects --where 'model=claude-opus*'
      ctxlab calibrate logs/ --model gemini-2.5-pro --dry-run   those of Gemini among them
    """
    from rich.text import Text

    from ctxlab._utils.progress import track
    from ctxlab.cli.render.format import format_count, make_table, render_to_text, to_json_array
    from ctxlab.tokens.calibration import calibrate

    spec = make_spec(paths, where=where, sample=sample, seed=seed, format=format, on_error="skip")
    shown = track(spec.recordings(), "reading", None, False if no_progress else None)
    found = calibrate(shown, model, source=f"sessions in {', '.join(paths)}")
    if found.skipped:
        why_not = ", ".join(f"{count:,} × {one_line(why)}" for why, count in found.skipped.items())
        print_note(f"passed over: {why_not}")
    if not dry_run:
        print_note(f"stored as {found.save(project)}")
    sessions = sorted(found.sessions, key=lambda session: session.recording)
    if json:
        print_result(to_json_array(vars(session) for session in sessions))
        return
    rows = [
        (
            [
                one_line(session.recording),
                f"{session.requests:,}",
                format_count(session.billed),
                format_count(session.counted),
                format_count(session.fixed),
                f"{100 * session.error:.1f}",
                str(len(session.unsaid) or ""),
            ],
            "",
        )
        for session in sessions
    ]
    profile = found.profile
    heads = [
        "recording",
        "requests",
        "billed",
        "counted",
        "unlogged",
        "error %",
        "unrecorded\nchanges",
    ]
    error = "off by an unknown amount, since there is only one cluster of them"
    if profile.error is not None and profile.error_90 is not None:
        error = (
            f"off by {profile.error:.1%} in the median and by {profile.error_90:.0%} in one of ten"
        )
    legend = (
        f"A text is billed as {profile.ratio:.3f} for each token of o200k_base and "
        f"{profile.per_char:.3f} for each character, a tool call as {profile.per_call:.0f} more, "
        f"hidden reasoning that is sent back as {profile.reasoning:.2f} a token; {profile.fixed:,} "
        "tokens of each request are in no log.",
        f"{profile.sessions} sessions, {profile.requests:,} requests; on sessions left out of the fit "
        f"a request is {error}.",
        "Billed, counted: tokens of the largest request by the provider and by the profile. Unlogged: "
        "system prompt and tools. Error: median of |counted - billed| / billed, while the recording was "
        "left out of the fit, its unlogged part taken from its first bill. Unrecorded changes: changes "
        "of context that no row records.",
    )
    print_result(render_to_text(make_table(heads, rows), Text(), *map(Text, legend)))
