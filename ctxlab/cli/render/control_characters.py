"""Replace or show the characters of a text that could control or deceive a terminal."""

from __future__ import annotations

# Control characters of terminals, including the 8-bit ones, and those that reverse the order of text.
_BIDIRECTIONAL = {0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_CONTROLS = {*range(32), *range(127, 160), *_BIDIRECTIONAL} - set(map(ord, "\n\t\r"))
# Characters without width, which hide text from a reader. The last range repeats ASCII invisibly.
_HIDING = {0x34F, 0x180E, 0x200B, *range(0x2060, 0x2066), 0xFEFF, *range(0xE0000, 0xE0080)}
# Some scripts and emoji need these characters, so only text that the user has to judge shows them.
_JOINING = {0x115F, 0x1160, 0x200C, 0x200D}
_CONTROL_CHARACTERS = dict.fromkeys(_CONTROLS | _HIDING, "�") | {13: None}
_ESCAPES = {
    code: f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
    for code in _CONTROLS | _HIDING | _JOINING | {13}
}


def strip_control_characters(text: str) -> str:
    r"""Replace the control characters in a string, so that it cannot control the terminal.

    Characters that change the direction of text are replaced too, because they can show a text in
    another order, and so are characters without width, because they can hide text. Line feeds and tabs
    are kept. Carriage returns are removed.

    Parameters
    ----------
    text : str
        String to clean.

    Returns
    -------
    str
        String with ``�`` in place of each control character.

    Examples
    --------
    >>> strip_control_characters("a\tb\n\x1b[2Jc\r")
    'a\tb\n�[2Jc'
    """
    return text.translate(_CONTROL_CHARACTERS)


def escape_invisible_characters(text: str) -> str:
    r"""Show the invisible characters of a string, so that a reader sees all of it.

    Parameters
    ----------
    text : str
        String that the user has to judge, such as a command.

    Returns
    -------
    str
        String with escapes in place of control characters, characters that change the direction of text,
        and characters without width. Line feeds and tabs are kept.

    Examples
    --------
    >>> print(escape_invisible_characters("rm \u202etxt.exe\r\x1b[8m"))
    rm \u202etxt.exe\u000d\u001b[8m
    """
    return text.translate(_ESCAPES)
