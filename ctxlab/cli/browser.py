"""Open a page of a local server in the browser, without showing the token to other users."""

from __future__ import annotations

import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory

_REDIRECT = """\
<!doctype html>
<meta charset="utf-8">
<meta http-equiv="refresh" content="0; url={url}">
<title>ctxlab</title>
<p><a href="{url}">Sessions</a></p>
"""


@contextmanager
def open_in_browser(url: str, on_failure: Callable[[], None]) -> Iterator[None]:
    """Open a URL in the browser at the beginning of a ``with`` block.

    Other users of the computer can see command lines, also that of the browser. So the browser opens
    a file that only its owner can read, which leads to the URL. The file is deleted at the end of the
    block.

    Parameters
    ----------
    url : str
        URL with a token.
    on_failure : callable
        Function that is called without arguments if no browser is found.

    Yields
    ------
    None
        No value; the browser is started in another thread.
    """
    with TemporaryDirectory(prefix="ctxlab-") as folder:  # only the owner can read the folder
        file = Path(folder, "open.html")
        file.write_text(_REDIRECT.format(url=escape(url)), encoding="utf-8")

        def open_file() -> None:
            try:
                is_open = webbrowser.open(file.as_uri())
            except (webbrowser.Error, OSError):
                is_open = False
            if not is_open:
                on_failure()

        threading.Thread(target=open_file, daemon=True).start()
        yield
