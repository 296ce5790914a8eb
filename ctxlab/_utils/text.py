"""Show text of logs on one line, and without characters that cannot be seen."""

from __future__ import annotations

import re
import unicodedata

_JOINERS = "\u200c\u200d"
"invisible characters that some scripts and emoji need"
_PRINTABLE_BUT_HIDDEN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
"characters without a visible form that Python calls printable"


def one_line(text: str) -> str:
    r"""Convert a string to one line without control characters.

    Parameters
    ----------
    text : str
        String to convert.

    Returns
    -------
    str
        The string with each run of white space replaced by a space, and each unprintable character
        except joiners by ``�``.

    Examples
    --------
    >>> one_line("a\n b\x1b[2Jc")
    'a b�[2Jc'
    """
    return replace_unprintable(" ".join(text.split()), "�")


def replace_unprintable(text: str, by: str) -> str:
    r"""Replace the unprintable characters of a string, except the joiners of words and emoji.

    Parameters
    ----------
    text : str
        String to convert.
    by : str
        Replacement of each unprintable character.

    Returns
    -------
    str
        String in which all characters but joiners are printable.

    Examples
    --------
    >>> replace_unprintable("a\x1b[2Jb", " ")
    'a [2Jb'
    """
    return "".join(c if c.isprintable() or c in _JOINERS else by for c in text)


def show_symbols(text: str) -> str:
    r"""Replace characters that cannot be seen or that change the order of others by symbols.

    These are control characters, bidirectional and other format characters, and lone surrogates, which
    cannot be stored in a file. Line feeds and tabs are kept.

    Parameters
    ----------
    text : str
        Any text, for example from a log.

    Returns
    -------
    str
        Text that can be shown.

    Examples
    --------
    >>> show_symbols("a\x1b[2J \u202eb\tc")
    'a␛[2J ⟨U+202E⟩b\tc'
    """
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else _symbol(each) for each in text)


def show_hidden(text: str, keep: str = "\n\t") -> str:
    r"""Replace every character that a reader does not see, for a text that somebody has to judge.

    Unlike ``show_symbols``, this also shows joiners, variation selectors, fillers, and spaces that are
    not the usual one, because all of them can make two different commands look the same.

    Parameters
    ----------
    text : str
        Any text, for example a command that an agent wants to run.
    keep : str, default "\\n\\t"
        Characters that are kept although they are not printable.

    Returns
    -------
    str
        Text in which each hidden character is shown by its code point, such as ``⟨U+202E⟩``.

    Examples
    --------
    >>> show_hidden("rm \u202etxt.exe\r\x1b[8m"), show_hidden("a\nb", keep="")
    ('rm ⟨U+202E⟩txt.exe⟨U+000D⟩⟨U+001B⟩[8m', 'a⟨U+000A⟩b')
    """
    return "".join(
        f"⟨U+{ord(each):04X}⟩" if each not in keep and _is_hidden(each) else each for each in text
    )


def _is_hidden(character: str) -> bool:
    return not character.isprintable() or _PRINTABLE_BUT_HIDDEN.fullmatch(character) is not None


def _symbol(character: str) -> str:
    code = ord(character)
    if character in "\n\t" or character in _JOINERS or unicodedata.category(character) == "Zs":
        return character
    if code < 32 or code == 127:
        return chr(0x2400 + code) if code < 32 else "␡"
    return f"⟨U+{code:04X}⟩"


def clip_line(text: str, limit: int) -> str:
    r"""Return the beginning of a text on one line.

    Parameters
    ----------
    text : str
        Any text.
    limit : int
        Maximum number of characters.

    Returns
    -------
    str
        At most ``limit`` characters, with an ellipsis if the text is longer.

    Examples
    --------
    >>> clip_line("a long\n text of a message", 12)
    'a long text…'
    """
    line = " ".join(text[: 8 * limit].split())
    is_whole = len(line) <= limit and len(text) <= 8 * limit
    return line if is_whole else f"{line[: limit - 1]}…"
