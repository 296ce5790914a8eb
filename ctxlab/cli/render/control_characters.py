"""Replace the characters of a text that could control or deceive a terminal."""

from __future__ import annotations

# Control characters of terminals, including the 8-bit ones, and those that reverse the order of text.
_BIDIRECTIONAL = {0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)}
_CONTROLS = {*range(32), *range(127, 160), *_BIDIRECTIONAL} - set(map(ord, "\n\t\r"))
# Characters without width, but for those that scripts and emoji need. The last range hides ASCII.
_HIDING = {0x34F, 0x180E, 0x200B, *range(0x2060, 0x2066), 0xFEFF, *range(0xE0000, 0xE0080)}
_CONTROL_CHARACTERS = dict.fromkeys(_CONTROLS | _HIDING, "�") | {13: None}


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
