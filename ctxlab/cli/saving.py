"""Check where results are to be saved before the work begins, and save them at its end."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import print_note
from ctxlab.errors import SaveError, SpecError

if TYPE_CHECKING:
    from ctxlab.messages.types import Recording
    from ctxlab.tokens.model_choice import ModelChoice

__all__ = ["check_output_folder", "parse_out_folder", "save_then_print"]

_Kind: TypeAlias = Literal["evaluation", "tuning", "exam", "agreement"]


def parse_out_folder(text: str) -> Path:
    """A folder to write into, which need not be there yet, from what ``--out`` says.

    Raises ``SpecError`` where nothing can be written there. A trial file is written and removed.
    """
    from ctxlab.evaluation.results import UNFINISHED_PREFIX

    if not text:
        raise SpecError("--out: the folder is empty; the current one is written as .")
    folder = Path(text)
    if folder.is_symlink() and not folder.exists():
        raise SpecError(
            f"--out: {folder} is a link to a folder that is not there; make that folder"
        )
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    if not there.is_dir():
        raise SpecError(f"--out: {there} is a file and no folder")
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=there) as trial:
            (Path(trial) / "trial").write_bytes(b"\0" * 512)
    except OSError as error:
        raise SpecError(f"--out: nothing can be written in {there}: {error.strerror}") from None
    return folder


def check_output_folder(
    out: Path | None,
    recordings: Callable[[], Iterable[Recording]],
    models: ModelChoice,
    kind: _Kind = "evaluation",
    answer_model: str | None = None,
) -> None:
    """Refuse a folder whose content a run would destroy.

    A new or empty folder is taken, and a saved run of the same kind over the same recordings and model,
    which is replaced.

    Parameters
    ----------
    out : Path, optional
        The folder; None: nothing is saved.
    recordings : callable
        Gives the recordings; called only where the folder holds a run.
    models : ModelChoice
        How they are to be counted and priced.
    kind : str
        What is to be saved.
    answer_model : str, optional
        The model that is asked, where there is one.

    Raises
    ------
    SpecError
        Where the folder holds anything else; says what, and what to do.
    """
    from ctxlab.evaluation.fingerprint import identify_recordings
    from ctxlab.evaluation.results import MANIFEST_FILE, UNFINISHED_PREFIX

    if out is None or not out.is_dir():
        return
    files = sorted(
        each.name for each in out.iterdir() if not each.name.startswith(UNFINISHED_PREFIX)
    )
    if not files:
        return
    other = "name another folder, or delete this one"
    manifest = _read_manifest(out / MANIFEST_FILE)
    if manifest is None:
        raise SpecError(
            f"--out: expected a new folder, got {out}, which holds {_list_names(files)} and no saved "
            f"run; {other}"
        )
    held = next((each for each in ("tuning", "exam", "agreement") if each in manifest), _EVALUATION)
    if held != kind:
        raise SpecError(
            f"--out: {out} holds {_KIND_LABELS[held]}, and this is {_KIND_LABELS[kind]}; {other}"
        )
    answered = manifest.get(kind, {}).get("answer_model") if kind != _EVALUATION else None
    if answered != answer_model:
        raise SpecError(f"--out: {out} holds answers of {answered}, not {answer_model}; {other}")
    before = _count_identities(manifest.get(kind, {}).get("recordings") or manifest["recordings"])
    now = _count_identities(identify_recordings(recordings(), models))
    if before != now:
        raise SpecError(
            f"--out: {out} holds a run over {_describe_difference(before, now)}; {other}"
        )
    print_note(f"{out} holds a run over the same recordings and model: it will be replaced")


@contextmanager
def save_then_print(
    out: Path | None, save: Callable[[Path], object], message: str
) -> Iterator[None]:
    """Save results, then run the body, which prints them whether or not they could be saved.

    Raises ``SaveError`` after the body where they could not.
    """
    failure: SaveError | None = None
    if out is not None:
        try:
            save(out)
            print_note(message)
        except OSError as error:
            why = error.strerror or str(error)
            failure = SaveError(
                f"{out}: the run could not be saved: {why}; the results were printed"
            )
    try:
        yield
    finally:  # also where nobody reads what is printed
        if failure is not None:
            raise failure


_EVALUATION: _Kind = "evaluation"
_KIND_LABELS = {
    "evaluation": "a run of ctxlab eval or compare",
    "tuning": "a run of ctxlab tune",
    "exam": "a run of ctxlab probe",
    "agreement": "a run of ctxlab next-action",
}
_IDENTITY_KEYS = ("digest", "cluster", "counted_as")


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """The manifest of a saved run; None where there is none."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    recordings = found.get("recordings") if isinstance(found, dict) else None
    if (
        not recordings
        or not isinstance(recordings, list)
        or not isinstance(found.get("spec"), dict)
    ):
        return None
    whole = all(isinstance(each, dict) and each.keys() >= {*_IDENTITY_KEYS} for each in recordings)
    return found if whole else None


def _count_identities(recordings: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(each.get(key) for key in _IDENTITY_KEYS) for each in recordings)


def _list_names(names: list[str]) -> str:
    """How many entries a folder has, and the first of them.

    >>> _list_names(["a.txt"]), _list_names(["a.txt", "b", "c"])
    ('a.txt', '3 entries (a.txt, …)')
    """
    return names[0] if len(names) == 1 else f"{len(names):,} entries ({names[0]}, …)"


def _describe_difference(before: Counter[tuple[Any, ...]], now: Counter[tuple[Any, ...]]) -> str:
    """In what a saved run differs from one that is about to be made."""
    contents = [Counter(digest for digest, *_ in each.elements()) for each in (before, now)]
    if contents[0] == contents[1]:
        return "the same recordings with another model or other clusters"
    gone = (contents[0] - contents[1]).total()
    new = (contents[1] - contents[0]).total()
    return f"other recordings (missing now: {gone:,} of its {before.total():,}; new: {new:,})"
