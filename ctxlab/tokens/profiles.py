"""Token profiles, which convert token counts to billed tokens for one family of models.

Providers other than OpenAI do not publish their tokenizers, but recordings contain the numbers of
tokens that the providers billed. ``ctxlab.tokens.calibration`` fits a profile to these numbers. A
profile consists of a few weights and their measured error. A profile that is stored in the folder
``.ctxlab/profiles`` of a project replaces the built-in profile of the same family.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from ctxlab.errors import ReadError
from ctxlab.tokens.images import model_family, normalize_model_name
from ctxlab.tokens.model_families import NEW_CLAUDE

_PROFILE_FOLDER = Path(".ctxlab") / "profiles"


class TokenProfile(msgspec.Struct, frozen=True, kw_only=True):
    """Weights that convert token counts with ``o200k_base`` to billed tokens.

    The default weights leave the counts unchanged.

    Examples
    --------
    >>> UNCALIBRATED.billed_tokens(100, 400), BUILT_IN_PROFILES["anthropic"].billed_tokens(100, 400)
    (100, 122)
    """

    family: str = ""
    "family of models, as returned by ``profile_key``; empty: all models"
    ratio: float = 1.0
    "billed tokens per counted token of messages"
    per_char: float = 0.0
    "additional billed tokens per character, because tokenizers split text differently"
    per_call: float = 0.0
    "additional billed tokens per tool call with its result"
    reasoning: float = 1.0
    "billed tokens per counted token of hidden reasoning that is sent back"
    fixed: int = 0
    "median number of tokens per request outside the log (system prompt, tool definitions)"
    error: float | None = None
    "median of |counted - billed| / billed over requests of recordings that were left out of the fit"
    error_90: float | None = None
    "90th percentile of the errors whose median is ``error``; the largest come from unrecorded changes"
    sessions: int = 0
    "number of recordings in the fit"
    requests: int = 0
    "number of billed requests in the fit"
    models: tuple[str, ...] = ()
    "models of the recordings in the fit"
    source: str = ""
    "description of the recordings in the fit"

    def billed_tokens(self, counted: int, chars: int, calls: int = 0) -> int:
        """Convert counted tokens of text and tool calls to billed tokens.

        Parameters
        ----------
        counted : int
            Number of tokens, counted with ``o200k_base``.
        chars : int
            Number of characters.
        calls : int, optional
            Number of tool calls.

        Returns
        -------
        int
            Number of billed tokens, rounded.
        """
        return round(counted * self.ratio + chars * self.per_char + calls * self.per_call)

    def __post_init__(self) -> None:
        """Raise ValueError if a weight is negative or if ``ratio`` and ``per_char`` are both 0."""
        figures = (self.ratio, self.per_char, self.per_call, self.reasoning)
        if not all(0 <= f < math.inf for f in figures) or not self.ratio + self.per_char > 0:
            raise ValueError(
                "Expected weights (ratio, per_char, per_call, reasoning) of 0 or more, with ratio or "
                f"per_char above 0, got {figures}"
            )

    def save(self, folder: Path) -> Path:
        """Save the profile in a project folder, so that ``find_profile`` uses it for this project.

        Parameters
        ----------
        folder : Path
            Folder of the project.

        Returns
        -------
        Path
            Path of the profile file.
        """
        path = profile_path(self.family, folder)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self)) + b"\n")
        return path

    @property
    def accuracy_note(self) -> str:
        """Weights, source and error of the profile, worded as the end of a sentence."""
        error = "the error was not measured"
        if self.error is not None:
            error = f"the median error is {self.error:.1%} of a bill"
        if self.error is not None and self.error_90 is not None:
            error += f", and one error in ten exceeds {self.error_90:.0%}"
        of = f" of {' and '.join(self.models)}" if self.models else ""
        said = f"{self.ratio:.2f} × the count with o200k_base"
        said += f" + {self.per_char:.3f} per character" if self.per_char else ""
        said += f" + {self.per_call:.0f} per tool call" if self.per_call else ""
        return f"{said}, fitted to {self.sessions} sessions{of} ({self.source}); {error}"


UNCALIBRATED = TokenProfile()

BUILT_IN_PROFILES: dict[str, TokenProfile] = {
    "anthropic": TokenProfile(
        family="anthropic",
        ratio=0.7558,
        per_char=0.1161,
        per_call=62.1,
        reasoning=1.4252,
        fixed=39615,
        error=0.0174,
        error_90=0.157,
        sessions=11,
        requests=1612,
        models=("claude-opus-4-5", "claude-opus-4-6", "claude-sonnet-4-5"),
        source="Claude Code 2.1 and pi",
    ),
    "anthropic-4.7": TokenProfile(
        family="anthropic-4.7",
        ratio=1.2937,
        per_char=0.0712,
        per_call=89.2,
        reasoning=3.4669,
        fixed=32657,
        error=0.0524,
        error_90=0.1715,
        sessions=40,
        requests=5005,
        models=(
            "claude-opus-4-7",
            "claude-opus-4-8",
            "claude-fable-5",
            "claude-sonnet-5",
            "claude-opus-5",
        ),
        source="Claude Code 2.1.112 to 2.1.219, November 2026",
    ),
}
"""Profiles by family, fitted with ``ctxlab calibrate``. The logs of the second profile contain only
summaries of the hidden reasoning, hence the large weight ``reasoning``. Fitted without the sessions of a
repository, it differs from the bills of this repository by 10 to 12 % in three of four repositories. The
fourth has most of the sessions, and the others are too few for a fit."""


def profile_key(model: str) -> str:
    """Return the key under which the token profile of a model is stored.

    The key is the family of the model, as returned by ``model_family``. Claude Opus 4.7 and later models
    of Anthropic split text into more tokens than earlier ones and have a key of their own. For the
    family ``other``, the key is the name of the model without provider prefixes.

    Parameters
    ----------
    model : str
        Name of the model.

    Returns
    -------
    str
        Name of the family or of the model, in lower case.

    Examples
    --------
    >>> profile_key("bedrock/anthropic.claude-opus-4-5"), profile_key("deepseek/deepseek-chat")
    ('anthropic', 'deepseek-chat')
    >>> profile_key("claude-opus-4.8")
    'anthropic-4.7'
    """
    family = model_family(model)
    if family == "anthropic" and re.search(NEW_CLAUDE, normalize_model_name(model)):
        return "anthropic-4.7"
    return family if family != "other" else model.lower().rpartition("/")[2]


def find_profile(model: str, folder: Path | None = None) -> TokenProfile:
    """Return the token profile of a model: the one stored in the project, or the built-in one.

    Parameters
    ----------
    model : str
        Name of the model.
    folder : Path, optional
        Folder of the project. By default, only built-in profiles are used.

    Returns
    -------
    TokenProfile
        Profile of the model's family; ``UNCALIBRATED`` if there is none.

    Raises
    ------
    ReadError
        If the stored profile cannot be read or belongs to another family.

    Examples
    --------
    >>> find_profile("claude-opus-4-5").family, find_profile("gpt-5") == UNCALIBRATED
    ('anthropic', True)
    """
    key = profile_key(model)
    if folder is not None and (path := profile_path(key, folder)).is_file():
        profile = read_profile(path)
        if profile.family not in ("", key):
            what = f"expected a profile of the family {key}, got {profile.family}; rename the file"
            raise ReadError(path, None, what)
        return msgspec.structs.replace(profile, family=key)
    return BUILT_IN_PROFILES.get(key, UNCALIBRATED)


def profile_path(key: str, folder: Path) -> Path:
    """Return the path of the file in which a project stores a profile.

    Parameters
    ----------
    key : str
        Key of the profile, as returned by ``profile_key``.
    folder : Path
        Folder of the project.

    Returns
    -------
    Path
        Path of the JSON file.
    """
    return folder / _PROFILE_FOLDER / f"{re.sub(r'[^a-z0-9._-]', '_', key)}.json"


def read_profile(path: Path) -> TokenProfile:
    """Read a token profile from a file.

    Parameters
    ----------
    path : Path
        Path of the JSON file.

    Returns
    -------
    TokenProfile
        Profile stored in the file.

    Raises
    ------
    ReadError
        If the file cannot be read or does not contain a valid profile.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=TokenProfile)
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(path, None, f"invalid token profile: {error}; delete the file") from None
