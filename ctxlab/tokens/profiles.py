"""A profile turns counts of a public vocabulary into what a provider bills, for one family of models.

Providers other than OpenAI do not publish their tokenizers, but their bills stand in recorded
sessions. What was learned from those (``ctxlab.tokens.calibration``) is a few figures with a stated
error.
A profile in the folder ``.ctxlab/profiles`` of a project takes the place of the built-in one there.
"""

from __future__ import annotations

import math
import re
from pathlib import Path

import msgspec

from ctxlab.errors import ReadError
from ctxlab.tokens.images import model_family

__all__ = [
    "BUILT_IN_PROFILES",
    "UNCALIBRATED",
    "TokenProfile",
    "find_profile",
    "profile_key",
    "profile_path",
    "read_profile",
]

_PROFILE_FOLDER = Path(".ctxlab") / "profiles"


class TokenProfile(msgspec.Struct, frozen=True, kw_only=True):
    """How a family of models counts, compared with ``o200k_base``; the default changes nothing.

    >>> UNCALIBRATED.billed_tokens(100, 400), BUILT_IN_PROFILES["anthropic"].billed_tokens(100, 400)
    (100, 122)
    """

    family: str = ""
    "what ``profile_key`` names"
    ratio: float = 1.0
    "billed tokens for each counted token of messages"
    per_char: float = 0.0
    "further billed tokens for each character: what one vocabulary merges another does not"
    per_call: float = 0.0
    "further billed tokens for each tool call with its result"
    reasoning: float = 1.0
    "billed tokens for each counted token of hidden reasoning that is sent back"
    fixed: int = 0
    "tokens of each request that the logs do not hold (system prompt, tool definitions): the median"
    error: float | None = None
    "median of |counted - billed| / billed over requests of sessions left out of the fit"
    error_90: float | None = None
    "what nine of ten of these requests stay within; the others are those of products that changed the "
    "context without a word"
    sessions: int = 0
    requests: int = 0
    models: tuple[str, ...] = ()
    "whose sessions it was learned from"
    source: str = ""
    "what it was learned from, in words"

    def billed_tokens(self, counted: int, chars: int, calls: int = 0) -> int:
        """What is billed for text of so many tokens and characters that makes so many tool calls."""
        return round(counted * self.ratio + chars * self.per_char + calls * self.per_call)

    def __post_init__(self) -> None:
        figures = (self.ratio, self.per_char, self.per_call, self.reasoning)
        if (
            not all(0 <= figure < math.inf for figure in figures)
            or not self.ratio + self.per_char > 0
        ):
            raise ValueError(f"figures are 0 or more and text costs something, not {figures}")

    @property
    def accuracy_note(self) -> str:
        """How far the counts can be trusted, as the end of a sentence."""
        error = "an error that was not measured"
        if self.error is not None:
            error = f"off by {self.error:.1%} of a bill in the median"
            error += "" if self.error_90 is None else f", by {self.error_90:.0%} in one of ten"
        of = f" of {' and '.join(self.models)}" if self.models else ""
        said = f"{self.ratio:.2f} × o200k_base"
        said += f" + {self.per_char:.3f} a character" if self.per_char else ""
        said += f" + {self.per_call:.0f} a tool call" if self.per_call else ""
        return f"{said}, learned from {self.sessions} sessions{of} ({self.source}): {error}"


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
    )
}
"""Family → profile. Made by ``ctxlab calibrate``; Claude Opus 4.7 and later count otherwise."""


def profile_key(model: str) -> str:
    """What models that count alike share: their provider's family, else the model's own name.

    >>> profile_key("bedrock/anthropic.claude-opus-4-5"), profile_key("deepseek/deepseek-chat")
    ('anthropic', 'deepseek-chat')
    """
    family = model_family(model)
    return family if family != "other" else model.lower().rpartition("/")[2]


def find_profile(model: str, folder: Path | None = None) -> TokenProfile:
    """The profile for a model: the one stored in the project, else the built-in one, else none.

    ``folder`` is where the project is; None looks in no folder. ``UNCALIBRATED`` where there is none.
    Raises ``ReadError`` where the stored one cannot be read.
    """
    key = profile_key(model)
    if folder is not None and (path := profile_path(key, folder)).is_file():
        profile = read_profile(path)
        if profile.family not in ("", key):
            raise ReadError(
                path,
                None,
                f"Expected a profile of the family {key}, got {profile.family}; rename the file",
            )
        return msgspec.structs.replace(profile, family=key)
    return BUILT_IN_PROFILES.get(key, UNCALIBRATED)


def profile_path(key: str, folder: Path) -> Path:
    """Where a project keeps the profile of what ``profile_key`` names."""
    return folder / _PROFILE_FOLDER / f"{re.sub(r'[^a-z0-9._-]', '_', key)}.json"


def read_profile(path: Path) -> TokenProfile:
    """A profile that was stored; ``ReadError`` where it is none."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=TokenProfile)
    except OSError as error:
        raise ReadError(path, None, error.strerror or str(error)) from None
    except (msgspec.DecodeError, ValueError) as error:
        raise ReadError(path, None, f"no calibration profile: {error}") from None
