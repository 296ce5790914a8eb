"""Find the paths of images in a message that a user types or drops on the terminal."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote, urlsplit

_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".webp")
# A quoted path, or a path in which a backslash stands before each space, as terminals write it.
_WORD = re.compile(r"""(?<!\S)[(\[{]*(?:'([^'\n]+)'|"([^"\n]+)"|((?:\\.|[^\s\\])+))""")
_PUNCTUATION = ".,;:!?)]}"


def find_image_paths(text: str, workspace: Path) -> dict[str, Path]:
    """Return the existing image files whose paths are written in a message.

    Parameters
    ----------
    text : str
        Message of the user.
    workspace : Path
        Folder to which relative paths refer.

    Returns
    -------
    dict of str to Path
        Absolute path of each file by the path in the message, in the order of the message. Words that
        do not end like an image file, or name no file, are left out.

    Examples
    --------
    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as folder:
    ...     Path(folder, "a b.png").touch()
    ...     list(find_image_paths(r"What is in 'a b.png' and in no.png?", Path(folder)))
    ['a b.png']
    """
    found: dict[str, Path] = {}
    known = set()
    for match in _WORD.finditer(text):
        word = match[1] or match[2] or re.sub(r"\\(.)", r"\1", match[3].rstrip(_PUNCTUATION))
        word = word.removeprefix("@")
        if not word.lower().endswith(_ENDINGS):
            continue
        if word.startswith("file://"):
            word = unquote(urlsplit(word).path)
        try:
            path = workspace / Path(word).expanduser()
            if path.is_file() and (file := path.resolve()) not in known:
                known.add(file)
                found[word] = path
        except (OSError, RuntimeError, ValueError):  # no such home folder, or no valid path
            continue
    return found
