"""Check the output folder before a run starts, and save the results when it ends."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ctxlab._utils.jsonio import parse_json
from ctxlab.cli.output import print_note, report_skipped
from ctxlab.errors import ReadError, SaveError, SpecError

if TYPE_CHECKING:
    from ctxlab.evaluation.spec import Spec
    from ctxlab.messages.types import Recording

_Identity: TypeAlias = tuple[Any, ...]
_Kind: TypeAlias = Literal["evaluation", "tuning", "exam", "agreement"]


def parse_out_folder(text: str) -> Path:
    """Parse the value of ``--out``, and check that the folder is writable.

    The folder need not exist. To check for write access, a temporary file is written to the folder or
    to its nearest existing parent.

    Parameters
    ----------
    text : str
        Value of the option.

    Returns
    -------
    Path
        Path of the output folder.

    Raises
    ------
    SpecError
        If the value is empty, names a file, or names a folder that is not writable.
    """
    from ctxlab.evaluation.run_files import UNFINISHED_PREFIX

    if not text:
        raise SpecError("--out: expected a folder, got an empty string; use . for this folder")
    folder = Path(text)
    if folder.is_symlink() and not folder.exists():
        raise SpecError(f"--out: {folder} links to a folder that does not exist; create it first")
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    if not there.is_dir():
        raise SpecError(f"--out: expected a folder, got the file {there}; name another path")
    try:
        with tempfile.TemporaryDirectory(prefix=UNFINISHED_PREFIX, dir=there) as trial:
            (Path(trial) / "trial").write_bytes(b"\0" * 512)
    except OSError as error:
        raise SpecError(
            f"--out: cannot write to {there} ({error.strerror}); name another folder"
        ) from None
    return folder


def check_output_folder(
    out: Path | None,
    spec: Spec,
    kind: _Kind = "evaluation",
    answer_model: str | None = None,
    recordings: Iterable[Recording] | None = None,
) -> None:
    """Check that saving a run would not destroy other data in the output folder.

    A missing or empty folder is accepted. A folder with a saved run is accepted if the saved run and
    the new run have the same kind, recordings and models. The saved run will then be continued or
    replaced. A folder with only the parts of a stopped run is accepted if the new run has all of their
    recordings.

    Parameters
    ----------
    out : Path, optional
        Output folder; None if the run will not be saved.
    spec : Spec
        Experiment of the run. Its recordings are read if the folder contains a saved run.
    kind : {"evaluation", "tuning", "exam", "agreement"}
        Kind of the run that will be saved. ``"exam"`` is a run of ``ctxlab probe``, and
        ``"agreement"`` is a run of ``ctxlab next-action``.
    answer_model : str, optional
        Model that answers probes or predicts tool calls.
    recordings : iterable of Recording, optional
        Recordings of the experiment. None reads them from the paths of ``spec``.

    Raises
    ------
    SpecError
        If the folder contains other files or a different run.
    """
    from ctxlab.evaluation.fingerprint import identify_recordings
    from ctxlab.evaluation.parts import PARTS_FOLDER, read_identities
    from ctxlab.evaluation.run_files import UNFINISHED_PREFIX

    if out is None or not out.is_dir():
        return

    def identify() -> Iterator[_Identity]:
        with report_skipped(spec.on_error):
            read = spec.recordings() if recordings is None else recordings
            yield from map(_identity, identify_recordings(read, spec.model_choice))

    names = (each.name for each in out.iterdir())
    files = sorted(name for name in names if not name.startswith(UNFINISHED_PREFIX))
    if not files:
        return
    if files == [PARTS_FOLDER] and kind == "evaluation":
        if known := set(map(_identity, read_identities(out))):
            if known.difference(identify()):
                raise _refusal(f"{out} contains a stopped run with other recordings or models")
            print_note(f"{out} contains a stopped run, which goes on")
        return
    manifest, entries = _read_run(out)
    if manifest is None:
        listed = files[0] if len(files) == 1 else f"{len(files):,} entries ({files[0]}, …)"
        raise _refusal(f"expected an empty folder or a saved run, got {out} with {listed}")
    held = next((each for each in _KIND_LABELS if each in manifest), "evaluation")
    if held != kind:
        raise _refusal(f"{out} contains {_KIND_LABELS[held]}, but this is {_KIND_LABELS[kind]}")
    of_kind = manifest.get(kind, {})
    if (answered := of_kind.get("answer_model")) != answer_model:
        raise _refusal(f"{out} contains answers of {answered}, but this run asks {answer_model}")
    before = of_kind.get("recordings") or entries
    missing = Counter(map(_identity, before))
    new = Counter[_Identity]()
    for each in identify():  # with many recordings, only one of the two counters is large
        if missing[each] > 1:
            missing[each] -= 1
        elif missing.pop(each, 0) == 0:
            new[each] += 1
    if missing or new:
        difference = _describe_difference(missing, new, len(before))
        raise _refusal(f"{out} contains a run with {difference}")
    what = "continued" if PARTS_FOLDER in files else "replaced"
    print_note(f"{out} contains a run with the same recordings and model, which will be {what}")


def check_recommendation_folder(out: Path | None) -> None:
    """Check that saving a recommendation would only replace an earlier recommendation.

    Parameters
    ----------
    out : Path, optional
        Output folder; None if nothing will be saved.

    Raises
    ------
    SpecError
        If the folder contains anything else.
    """
    from ctxlab.evaluation.recommendation.results import FILE
    from ctxlab.evaluation.run_files import RUN_FILES

    names = sorted(each.name for each in out.iterdir()) if out is not None and out.is_dir() else []
    if names and (FILE not in names or not {*names} <= {FILE, *RUN_FILES}):
        listed = next((name for name in names if name not in (FILE, *RUN_FILES)), names[0])
        raise _refusal(f"expected an empty folder or a recommendation, got {out} with {listed}")


def _refusal(why: str) -> SpecError:
    return SpecError(f"--out: {why}; name another folder")


@contextmanager
def save_then_print(out: Path | None, save: Callable[[Path], object], note: str) -> Iterator[None]:
    """Save results, then run the ``with`` block, which prints them.

    If saving fails, the block still runs, and the error is raised after the block.

    Parameters
    ----------
    out : Path, optional
        Output folder. None saves nothing.
    save : callable
        Function that saves the results to a folder.
    note : str
        Note to print after the results are saved.

    Raises
    ------
    SaveError
        If the results could not be saved.
    """
    failure = None
    if out is not None:
        try:
            save(out)
            print_note(note)
        except OSError as error:
            why = f"the run could not be saved: {error.strerror or error}"
            failure = SaveError(f"{out}: {why}; the results were printed but not saved")
    try:
        yield
    finally:  # the block raises typer.Exit if the reader of standard output closed the pipe
        if failure is not None:
            raise failure


_KIND_LABELS = {
    "evaluation": "a run of ctxlab eval or compare",
    "tuning": "a run of ctxlab tune",
    "exam": "a run of ctxlab probe",
    "agreement": "a run of ctxlab next-action",
}
_IDENTITY_KEYS = ("digest", "cluster", "counted_as")


def _read_run(folder: Path) -> tuple[dict[str, Any] | None, Sequence[dict[str, Any]]]:
    """Return the manifest and the recordings of a saved run; None if the folder contains no run."""
    from ctxlab.evaluation.recording_table import read_entries
    from ctxlab.evaluation.run_files import MANIFEST_FILE

    try:
        manifest = parse_json((folder / MANIFEST_FILE).read_bytes())
        if isinstance(manifest["spec"], dict):
            entries = read_entries(folder, manifest)
            if entries and {*_IDENTITY_KEYS} <= entries[0].keys():
                return manifest, entries
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ReadError):
        pass
    return None, ()


def _identity(recording: dict[str, Any]) -> _Identity:
    return tuple(recording.get(key) for key in _IDENTITY_KEYS)


def _describe_difference(missing: Counter[_Identity], new: Counter[_Identity], total: int) -> str:
    """Describe how a new run differs from a saved run with a number of recordings.

    ``missing`` has the recordings that are only in the saved run, ``new`` those only in the new one.
    """
    gone, added = (Counter(digest for digest, *_ in each.elements()) for each in (missing, new))
    if gone == added:
        return "the same recordings but a different model or different clusters"
    lost, more = (gone - added).total(), (added - gone).total()
    return f"different recordings (missing now: {lost:,} of {total:,}; new: {more:,})"
