"""Download data sets and verify them with the SHA-256 hashes in the catalog.

Each file is first written to ``NAME.part`` in the folder of the data set. After an interruption, the
next download requests only the missing bytes. A file gets its name when its hash has been verified.
"""

from __future__ import annotations

import hashlib
import os
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from msgspec.structs import replace

from ctxlab._utils.progress import track_bytes
from ctxlab.errors import DataMissing, SpecError
from ctxlab.formats.io.datasets import Dataset, DatasetFile

if TYPE_CHECKING:
    from requests import RequestException

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = (15, 60)
"""Seconds to wait for a connection, and seconds to wait for more data."""


def files_to_fetch(dataset: Dataset, sha256: str | None = None) -> tuple[DatasetFile, ...]:
    """Return the files of a data set that can be downloaded, because their hashes are known.

    Parameters
    ----------
    dataset : Dataset
        The data set.
    sha256 : str, optional
        SHA-256 hash of the file that has no hash in the catalog. If it is given, this file is
        returned too.

    Returns
    -------
    tuple of DatasetFile
        The files, each with its hash.

    Raises
    ------
    SpecError
        If ``sha256`` is not a valid hash, or if it is given although the number of files without a
        hash in the catalog is not 1.
    DataMissing
        If the catalog contains no hash for any file and ``sha256`` is not given.
    """
    unknown = [file for file in dataset.files if not file.sha256]
    if sha256 is None:
        if not dataset.pinned_files:
            fix = "pass the expected hash with --sha256 HEX, so that the download can be verified"
            raise DataMissing(f"the catalog contains no sha256 for {dataset.name}; {fix}")
        return dataset.pinned_files
    if len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef"):
        raise SpecError(f"Expected a sha256 of 64 hexadecimal digits, got {sha256!r}")
    if len(unknown) != 1:
        many = f"{dataset.name} has {len(unknown)}"
        raise SpecError(
            f"--sha256 needs exactly one file of unknown hash, but {many}; omit --sha256"
        )
    return (*dataset.pinned_files, replace(unknown[0], sha256=sha256.lower()))


def fetch_dataset(
    dataset: Dataset, data_dir: Path, *, sha256: str | None = None, progress: bool | None = None
) -> Path:
    """Download the files of a data set, and write ``LICENSE.txt`` and ``SOURCE.md`` to its folder.

    If the catalog contains the clusters of the files, they are written to ``clusters.tsv``.

    An existing file with the correct hash is not downloaded again. If the environment variable
    ``CTXLAB_MIRROR`` is set, its value replaces the scheme and host of every URL.

    Parameters
    ----------
    dataset : Dataset
        The data set.
    data_dir : Path
        The folder in which all data sets are stored.
    sha256 : str, optional
        SHA-256 hash of the file that has no hash in the catalog, as in ``files_to_fetch``.
    progress : bool, optional
        Show a progress bar. By default, the bar is shown in a notebook, or if standard error is a
        terminal.

    Returns
    -------
    Path
        Folder of the data set: ``data_dir / NAME``.

    Raises
    ------
    DataMissing
        If a server cannot be reached, rejects the request or closes the connection, or if the hash
        of a file is wrong. A new download with a wrong hash is deleted, an existing file is kept.
    SpecError
        If ``sha256`` is not accepted by ``files_to_fetch``.
    """
    folder = data_dir / dataset.name
    files = files_to_fetch(dataset, sha256)
    for number, file in enumerate(files, 1):
        target = folder / file.name
        if target.is_file():
            _verify_sha256(target, file)
            continue
        label = f"{number}/{len(files)} {target.name}" if len(files) > 1 else target.name
        _fetch_file(file, target, label, progress)
    for name, text in _description_files(dataset).items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def _fetch_file(file: DatasetFile, target: Path, label: str, progress: bool | None) -> None:
    from requests import RequestException

    address = _apply_mirror(file.address)
    part = target.with_name(f"{target.name}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        _transfer(address, part, file.bytes, label, progress)
        if (found := _hash_file(part)) != file.sha256:
            part.unlink()
            raise DataMissing(
                f"{address}: wrong sha256: expected {file.sha256}, got {found}. Run the same command "
                "again. If it fails again, the server has a different file"
            )
        os.replace(part, target)
    except RequestException as error:
        kept = "; run the same command again to resume the download"
        why = _error_text(error) + (kept if part.exists() else "")
        raise DataMissing(f"{address}: {why}") from None
    except OSError as error:
        raise DataMissing(f"{target}: {error.strerror or error}") from None


def _transfer(address: str, part: Path, size: int, label: str, progress: bool | None) -> None:
    """Download the missing bytes of a file, or the whole file if the server cannot resume.

    The bytes are written to ``part``.
    """
    import requests

    done = part.stat().st_size if part.exists() else 0
    if done == size:  # the last attempt was interrupted before the hash was checked
        return
    # With compression, Content-Length would not match the size of the file.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(address, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        if done and answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # the partial file is longer than the published file
        answer.raise_for_status()
        done = done if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0
        total = done + int(answer.headers.get("Content-Length", size - done))
        with part.open("ab" if done else "wb") as kept:
            for chunk in track_bytes(answer.iter_content(_CHUNK), label, total, done, progress):
                kept.write(chunk)
        if part.stat().st_size < total:  # older versions of urllib3 do not report missing bytes
            raise requests.ConnectionError


def _error_text(error: RequestException) -> str:
    """Return a short description of a download error, without the nested library exceptions."""
    from requests import HTTPError, Timeout

    if isinstance(error, HTTPError) and error.response is not None:
        answer = error.response
        return f"the server returned status {answer.status_code} {answer.reason}"
    if isinstance(error, Timeout):
        return "the server did not respond"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "the connection was interrupted"


def _apply_mirror(address: str) -> str:
    mirror = os.environ.get("CTXLAB_MIRROR")
    return mirror.rstrip("/") + urlsplit(address).path if mirror else address


def _verify_sha256(target: Path, file: DatasetFile) -> None:
    if (found := _hash_file(target)) != file.sha256:
        hashes = f"expected the published file with sha256 {file.sha256}, got {found}"
        raise DataMissing(f"{target}: {hashes}; delete or move the file and download it again")


def _hash_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _description_files(dataset: Dataset) -> dict[str, str]:
    """Return the texts of the files that describe a data set, by file name."""
    licence = dataset.licence
    files = "\n".join(f"- `{f.name}`: {f.address}, {f.bytes} bytes" for f in dataset.files)
    clusters = [f"{file.name}\t{file.cluster}\n" for file in dataset.files if file.cluster]
    table = {"clusters.tsv": "".join(["file\tcluster\n", *clusters])} if clusters else {}
    return table | {
        "LICENSE.txt": f"{licence.name}\n\n{dataset.notice}\n\n{licence.text.strip()}\n\n"
        f"{licence.address}\n",
        "SOURCE.md": f"# {dataset.name}\n\n{dataset.meaning}\n\n{dataset.homepage}\n"
        f"{dataset.citation}\n\nLicence: {licence.name}: {licence.means}\n\n{files}\n",
    }
