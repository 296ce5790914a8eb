"""``ctxlab cache``: describe and delete the token counts that replays store."""

from __future__ import annotations

from ctxlab._utils.humanize import pluralize
from ctxlab.cli.options import App
from ctxlab.cli.output import print_result

_OFF = "CTXLAB_CACHE is empty, so no token counts are stored"

app = App()


@app.callback()
def _describe() -> None:
    """Describe or delete the token counts that earlier replays stored.

    A repeated replay reads the counts instead of tokenizing the same texts again. Results do not depend
    on the counts. They are stored as hashes and integers, without any text.

    The folder is $CTXLAB_CACHE, else a folder in your cache folder. To store nothing, use --no-cache or
    set CTXLAB_CACHE to an empty string. Replies of models are stored elsewhere, in .ctxlab/calls.
    """


@app.command("info", short_help="Show the folder and the size.")
def info() -> None:
    """Show the folder of the stored token counts, their number, their size and the maximum size."""
    from ctxlab._utils.numbers import format_bytes
    from ctxlab.tokens.count_cache import find_count_cache

    cache = find_count_cache()
    if cache is None:
        print_result(_OFF)
        return
    found = cache.info()
    lines = [
        f"folder   {found.folder}",
        f"entries  {found.entries:,}",
        f"size     {format_bytes(found.bytes)}",
        f"maximum  {format_bytes(found.max_bytes)}",
    ]
    print_result("\n".join(lines))


@app.command("clear", short_help="Delete the token counts.")
def clear() -> None:
    """Delete the stored token counts. The next replays count their texts again."""
    from ctxlab._utils.numbers import format_bytes
    from ctxlab.tokens.count_cache import find_count_cache

    cache = find_count_cache()
    if cache is None:
        print_result(_OFF)
        return
    removed = cache.clear()
    counts = pluralize(removed.entries, "token count")
    print_result(f"deleted {counts} ({format_bytes(removed.bytes)}) from {removed.folder}")
