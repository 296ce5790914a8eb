"""``ctxlab show``: what a strategy sends in one request, and how it differs from the full history."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ctxlab._utils.humanize import parse_limit
from ctxlab.cli.options import READING, Options, flag, option, with_options
from ctxlab.cli.output import print_result, report_skipped
from ctxlab.errors import SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.replay import Replay
    from ctxlab.messages.types import Recording

_LISTED_IDS = 5


@with_options(
    "data strategies limits model" + READING + " on_error json no_cache",
    strategies="Strategy that builds the request. Default: full.",
    limits="Maximum size of a request and its reply: tokens (16000, 16k) or a share of the recording's "
    "length. Default: 50%.",
    json="Print a JSON array with one object per message, with its whole text.",
)
def command(
    options: Options,
    request: int = option(
        "--request -n N",
        "Number of the request, from 0; -1 is the last one.",
        default=-1,
    ),
    recording: str | None = option(
        "--recording ID", "Id of the recording, or its beginning, if the paths contain several."
    ),
    diff: str | None = option(
        "--diff full|STRATEGY",
        "Show only the messages that differ from the full history, or from another strategy.",
    ),
    text: bool = flag("--text", "Print the whole text of each message."),
) -> None:
    """Show what a strategy sends in one request: each message, its form, and what it stands for.

    Examples
    --------
    ctxlab show log.jsonl -s 'observation_mask(keep=3)' -l 50% -n 40
    ctxlab show log.jsonl -s codex -l 64k -n -1 --text       whole texts
    ctxlab show log.jsonl -s codex -l 64k -n -1 --diff full  what is left out
    ctxlab show logs/ --recording a7_98c -s codex -l 64k --diff claude_code

    The forms are verbatim, truncated, stub, pointer, summary and rewritten. In a comparison, a message
    is covered if another one, such as a summary, stands for it, dropped if none does, and absent if it
    is not a recorded message.
    """
    from ctxlab.cli.render.format import frame_to_json
    from ctxlab.cli.render.sent import diff_text, sent_text
    from ctxlab.evaluation.replay import replay

    spec = options.spec()
    (strategy,) = _exactly_one("--strategy", options.changes.get("strategies") or ("full",))
    (limit,) = _exactly_one("--limit", options.changes.get("limits") or (0.5,))
    with report_skipped(spec.on_error) as skipped:
        chosen = _choose(skipped.counting(spec.recordings(skipped)), recording)

    def run(each: str) -> Replay:
        return replay(chosen, each, parse_limit(limit), spec.model)

    replayed = run(strategy)
    try:
        if diff is None:
            sent = replayed.sent(request)
            print_result(frame_to_json(sent.table) if options.json else sent_text(sent, text))
        else:
            changes = replayed.diff(request, None if diff == "full" else run(diff))
            print_result(frame_to_json(changes) if options.json else diff_text(changes, text))
    except IndexError as error:
        raise SpecError(f"--request: {str(error)[0].lower()}{str(error)[1:]}") from None


def _exactly_one(name: str, values: tuple[Any, ...]) -> tuple[Any, ...]:
    if len(values) != 1:
        raise SpecError(f"{name}: expected one, got {len(values)}; name one")
    return values


def _choose(recordings: Iterable[Recording], wanted: str | None) -> Recording:
    """Return the recording whose id begins with ``wanted``, or the only one."""
    found: list[Recording] = []
    for each in recordings:
        if each.id == wanted:
            return each
        if each.id.startswith(wanted or ""):
            found.append(each)
    if len(found) == 1:
        return found[0]
    if not found:
        raise SpecError(f"--recording: expected the id of a recording, got {wanted!r}")
    ids = ", ".join(each.id for each in found[:_LISTED_IDS])
    more = ", …" if len(found) > _LISTED_IDS else ""
    raise SpecError(
        f"expected one recording, got {len(found):,}; add --recording with one of these ids: {ids}{more}"
    )
