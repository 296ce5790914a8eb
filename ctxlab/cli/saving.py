"""Check the output folder before the work begins, and save results at its end."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import print_note, report_skipped
from ctxlab.errors import SaveError, SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording

_Kind: TypeAlias = Literal["evaluation", "tuning", "exam", "agreement"]


def parse_out_folder(text: str) -> Path:
    """Return the folder that ``--out`` names; it need not exist yet.

    A trial file is written and removed to see that the folder is writable.

    Parameters
    ----------
    text : str
        The value of the option.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    SpecError
        If nothing can be written there.
    """
    from ctxlab.evaluation.results import UNFINISHED_PREFIX

    if not text:
        raise SpecError("--out: expected a folder, got an empty text; write . for the current one")
    folder = Path(text)
    if folder.is_symlink() and not folder.exists():
        raise SpecError(f"--out: {folder} links to a folder that does not exist; create it first")
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    if not there.is_dir():
        raise SpecError(f"--out: expected a folder, but {there} is a file; name another path")
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=there) as trial:
            (Path(trial) / "trial").write_bytes(b"\0" * 512)
    except OSError as error:
        raise SpecError(f"--out: cannot write to {there}: {error.strerror}") from None
    return folder


def check_output_folder(
    out: Path | None,
    spec: Spec,
    kind: _Kind = "evaluation",
    answer_model: str | None = None,
    recordings: Iterable[Recording] | None = None,
) -> None:
    """Refuse an output folder whose content a run would destroy.

    A new or empty folder is accepted. A saved run of the same kind, recordings and model is accepted
    too, and will be replaced.

    Parameters
    ----------
    out : Path, optional
        The folder; None saves nothing.
    spec : Spec
        The experiment, whose recordings are read if the folder contains a run.
    kind : {"evaluation", "tuning", "exam", "agreement"}
        The kind of run that will be saved.
    answer_model : str, optional
        The model that answers probes or predicts tool calls.
    recordings : iterable of Recording, optional
        The recordings of the experiment, if they were read already.

    Raises
    ------
    SpecError
        If the folder contains anything else.
    """
    from ctxlab.evaluation.fingerprint import identify_recordings
    from ctxlab.evaluation.results import MANIFEST_FILE, UNFINISHED_PREFIX

    if out is None or not out.is_dir():
        return
    names = (each.name for each in out.iterdir())
    files = sorted(name for name in names if not name.startswith(UNFINISHED_PREFIX))
    if not files:
        return
    manifest = _read_manifest(out / MANIFEST_FILE)
    if manifest is None:
        listed = files[0] if len(files) == 1 else f"{len(files):,} entries ({files[0]}, …)"
        raise _refusal(f"expected a new folder, but {out} contains {listed} and no saved run")
    held = next((each for each in _KIND_LABELS if each in manifest), "evaluation")
    if held != kind:
        raise _refusal(f"{out} contains {_KIND_LABELS[held]}, but this is {_KIND_LABELS[kind]}")
    of_kind = manifest.get(kind, {})
    if (answered := of_kind.get("answer_model")) != answer_model:
        raise _refusal(f"{out} contains answers of {answered}, not of {answer_model}")
    before = _count_identities(of_kind.get("recordings") or manifest["recordings"])
    with report_skipped(spec.on_error):
        read = spec.recordings() if recordings is None else recordings
        now = _count_identities(identify_recordings(read, spec.model_choice))
    if before != now:
        raise _refusal(f"{out} contains a run over {_describe_difference(before, now)}")
    print_note(f"{out} contains a run over the same recordings and model; it will be replaced")


def _refusal(why: str) -> SpecError:
    return SpecError(f"--out: {why}; name another folder or delete this one")


@contextmanager
def save_then_print(out: Path | None, save: Callable[[Path], object], note: str) -> Iterator[None]:
    """Save results, then run the body, which prints them even if saving failed.

    Parameters
    ----------
    out : Path, optional
        The folder; None saves nothing.
    save : callable
        Saves the results into a folder.
    note : str
        The note to print after saving.

    Raises
    ------
    SaveError
        After the body, if the results could not be saved.
    """
    failure = None
    if out is not None:
        try:
            save(out)
            print_note(note)
        except OSError as error:
            why = f"the run could not be saved: {error.strerror or error}"
            failure = SaveError(f"{out}: {why}; its results were only printed")
    try:
        yield
    finally:  # printing exits early when the reader closed the pipe
        if failure is not None:
            raise failure


_KIND_LABELS = {
    "evaluation": "a run of ctxlab eval or compare",
    "tuning": "a run of ctxlab tune",
    "exam": "a run of ctxlab probe",
    "agreement": "a run of ctxlab next-action",
}
_IDENTITY_KEYS = ("digest", "cluster", "counted_as")


def _read_manifest(path: Path) -> dict[str, Any] | None:
    """Return the manifest of a saved run, or None if there is none."""
    try:
        found = parse_json(path.read_bytes())
    except (OSError, ValueError):
        return None
    match found:
        case {"recordings": [_, *_] as recordings, "spec": dict()}:
            keys = {*_IDENTITY_KEYS}
            if all(isinstance(each, dict) and each.keys() >= keys for each in recordings):
                return dict(found)
    return None


def _count_identities(recordings: Iterable[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    return Counter(tuple(each.get(key) for key in _IDENTITY_KEYS) for each in recordings)


def _describe_difference(before: Counter[tuple[Any, ...]], now: Counter[tuple[Any, ...]]) -> str:
    """Describe how the recordings of a saved run differ from those of a new one."""
    contents = [Counter(digest for digest, *_ in each.elements()) for each in (before, now)]
    if contents[0] == contents[1]:
        return "the same recordings with a different model or different clusters"
    gone = (contents[0] - contents[1]).total()
    new = (contents[1] - contents[0]).total()
    return f"different recordings (missing now: {gone:,} of its {before.total():,}; new: {new:,})"
