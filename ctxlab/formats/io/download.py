"""A data set is fetched once, from where it was left, and kept only if it is what was pinned.

pooch fetches and checks; what it does not do is go on after a break. So each file grows as
``NAME.part`` beside its place, and the next attempt asks the server for the rest alone.
"""

from __future__ import annotations

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

__all__ = ["fetch_dataset", "files_to_fetch"]

_CHUNK = 1 << 16
_TIMEOUT_SECONDS = (15, 60)
"seconds to wait for a connection, and for the next bytes"


def files_to_fetch(dataset: Dataset, sha256: str | None = None) -> tuple[DatasetFile, ...]:
    """The files to fetch: those with a known hash, and the one that ``sha256`` vouches for.

    Raises ``SpecError`` where that hash belongs to no file, and ``DataMissing`` where nothing is
    known of any file.
    """
    unknown = [file for file in dataset.files if not file.sha256]
    if sha256 is None:
        if not dataset.pinned_files:
            raise DataMissing(
                f"no sha256 is known of what {dataset.name} holds, so nothing tells whether it is "
                "what was published; --sha256 HEX fetches it if that is its hash"
            )
        return dataset.pinned_files
    if len(sha256) != 64 or set(sha256.lower()) - set("0123456789abcdef"):
        raise SpecError(f"{sha256!r} is no sha256; it has 64 hexadecimal digits")
    if len(unknown) != 1:
        raise SpecError(f"{dataset.name} has {len(unknown)} files without a known sha256, not one")
    return (*dataset.pinned_files, replace(unknown[0], sha256=sha256.lower()))


def fetch_dataset(
    dataset: Dataset, data_dir: Path, *, sha256: str | None = None, progress: bool | None = None
) -> Path:
    """Puts the files of a data set, its licence and its source into ``data_dir / NAME``; returns that.

    A file that is there already with the right hash is not fetched again. ``CTXLAB_MIRROR`` takes
    the place of the scheme and host of every address. Raises ``DataMissing`` where a server cannot
    be reached or refuses, breaks off, or sends something else than what was pinned, which is not
    kept; ``SpecError`` as ``files_to_fetch`` does.
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
    for name, text in _license_files(dataset).items():
        if not (folder / name).exists():
            (folder / name).write_text(text, encoding="utf-8")
    return folder


def _fetch_file(file: DatasetFile, target: Path, label: str, progress: bool | None) -> None:
    import pooch
    from requests import RequestException

    address = _apply_mirror(file.address)
    part = target.with_name(f"{target.name}.part")

    def resume(address: str, output: str, _: object) -> None:
        _transfer(address, part, file.bytes, label, progress)
        os.replace(part, output)

    pooch.get_logger().setLevel("ERROR")  # what it tells, the bar shows
    try:
        pooch.retrieve(address, file.sha256, target.name, target.parent, downloader=resume)
    except RequestException as error:
        kept = "; what has arrived is kept, and the same command goes on from there"
        raise DataMissing(
            f"{address}: {_error_text(error)}{kept if part.exists() else ''}"
        ) from None
    except ValueError as error:
        raise DataMissing(
            f"{address}: {error} Fetch it again; if it stays so, the server has another file"
        ) from None
    except OSError as error:
        raise DataMissing(f"{target}: {error.strerror or error}") from None


def _transfer(address: str, part: Path, size: int, label: str, progress: bool | None) -> None:
    """Fetches what a part lacks; all of it where the server cannot begin in the middle."""
    import requests

    done = part.stat().st_size if part.exists() else 0
    if done == size:  # the last attempt ended between the last byte and the check
        return
    # Packed bytes would be counted by another measure than those that are kept.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={done}-"} if done else {})
    with requests.get(address, headers=headers, stream=True, timeout=_TIMEOUT_SECONDS) as answer:
        if done and answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
            part.unlink()  # it is longer than the file, so it is no part of it
        answer.raise_for_status()
        done = done if answer.status_code == HTTPStatus.PARTIAL_CONTENT else 0
        total = done + int(answer.headers.get("Content-Length", size - done))
        with part.open("ab" if done else "wb") as kept:
            for chunk in track_bytes(answer.iter_content(_CHUNK), label, total, done, progress):
                kept.write(chunk)
        if part.stat().st_size < total:  # which older versions of urllib3 do not notice
            raise requests.ConnectionError


def _error_text(error: RequestException) -> str:
    """What went wrong, without the stack of libraries that it went through."""
    from requests import HTTPError, Timeout

    if isinstance(error, HTTPError) and error.response is not None:
        answer = error.response
        return f"the server answers {answer.status_code} {answer.reason}"
    if isinstance(error, Timeout):
        return "the server does not answer"
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror
        cause = cause.__cause__ or cause.__context__
    return "the connection broke off"


def _apply_mirror(address: str) -> str:
    mirror = os.environ.get("CTXLAB_MIRROR")
    return mirror.rstrip("/") + urlsplit(address).path if mirror else address


def _verify_sha256(target: Path, file: DatasetFile) -> None:
    import pooch

    if (found := pooch.file_hash(str(target))) != file.sha256:
        raise DataMissing(
            f"{target} is not what was published: its sha256 is {found} and should be "
            f"{file.sha256}; move it away and fetch it again"
        )


def _license_files(dataset: Dataset) -> dict[str, str]:
    """The licence and the source of a data set, as files to lie beside it."""
    licence = dataset.licence
    files = "\n".join(f"- `{f.name}`: {f.address}, {f.bytes} bytes" for f in dataset.files)
    return {
        "LICENSE.txt": f"{licence.name}\n\n{dataset.notice}\n\n{licence.text.strip()}\n\n"
        f"{licence.address}\n",
        "SOURCE.md": f"# {dataset.name}\n\n{dataset.meaning}\n\n{dataset.homepage}\n"
        f"{dataset.citation}\n\nLicence: {licence.name}: {licence.means}\n\n{files}\n",
    }
