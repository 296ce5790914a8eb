"""``ctxlab report``: write the results of a saved run as one HTML file."""

from __future__ import annotations

from pathlib import Path

from ctxlab.cli.options import FORCE, argument, flag, option
from ctxlab.cli.output import print_note, stdout_or
from ctxlab.errors import SaveError, SpecError


def command(
    run: Path = argument(
        "RUN", "Folder of a run: --out of ctxlab eval, compare or tune.", default=...
    ),
    output: str = option(
        "--output -o FILE", "HTML file to write; - for standard output.", default="report.html"
    ),
    data: list[str] | None = option(
        "--data PATH",
        "Recordings of the run, if they are no longer where it read them. May be repeated.",
    ),
    with_text: bool = flag(
        "--with-text",
        "Include texts of messages and the names that were lost. Without it, the file has no text of "
        "the recordings.",
    ),
    sample: int = option(
        "--sample N", "Number of recordings to show request by request.", default=6, min=0
    ),
    title: str = option("--title TEXT", "Title of the report.", default=""),
    min_recall: float = option(
        "--min-recall SHARE",
        "Minimum held far recall of a recommended strategy, as a share of that of full history.",
        default=0.95,
    ),
    force: bool = FORCE,
) -> None:
    """Write the results of a saved run as one HTML file, to read and to send.

    Examples
    --------
    ctxlab eval logs/ -l 64k --out runs/week48
    ctxlab report runs/week48                               write report.html
    ctxlab report runs/week48 -o week48.html --with-text    with the texts of six recordings
    ctxlab report runs/week48 --data /mnt/logs              recordings that have moved

    The file works offline: it has the decision, a table to sort and filter, the frontier, what each
    recording lost at which request, and how sure the differences are. It replays a sample of the
    recordings, so these must still be there. Strategies that call a model are not replayed.
    """
    from ctxlab.evaluation.report import make_report
    from ctxlab.evaluation.results import Results
    from ctxlab.formats import load

    target = None if output == "-" else Path(output)
    if target is not None and target.exists() and not force:
        raise SpecError(f"--output: {output} exists; pass --force to replace it")
    if not 0 <= min_recall <= 1:
        raise SpecError(f"--min-recall: expected a share from 0 to 1, got {min_recall:g}")
    results = Results.load(run)
    recordings = load(data, on_error="skip") if data else ()
    html = make_report(
        results, recordings, title=title, with_text=with_text, sample=sample, min_recall=min_recall
    )
    if target is None:
        out = stdout_or("-")
        assert not isinstance(out, str)
        out.write(html)
        return
    try:
        target.write_text(html, encoding="utf-8")
    except OSError as error:
        raise SaveError(f"{output}: cannot write the report: {error.strerror or error}") from None
    kept = "with texts of the recordings" if with_text else "without text of the recordings"
    print_note(f"{output} written ({len(html) / 1e6:.1f} MB, {kept})")
