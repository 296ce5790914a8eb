"""Digests of recordings, used to check if two saved runs evaluated the same conversations."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from ctxlab._utils.jsonio import dump_json
from ctxlab.messages.types import Recording
from ctxlab.tokens.model_choice import ModelChoice


def recording_digest(recording: Recording) -> str:
    """Compute a digest of the content of a recording.

    The digest covers messages (with their times and call ids), tools, compactions and probes. It
    does not cover the recording's id, cluster, source and model. ``identify_recordings`` returns the
    cluster and the model separately.

    Parameters
    ----------
    recording : Recording
        Recording to compute the digest of.

    Returns
    -------
    str
        Digest as 32 hexadecimal digits.

    Examples
    --------
    >>> one, other = Recording("a", ()), Recording("b", (), tools=({"name": "ls"},))
    >>> recording_digest(one) == recording_digest(other)
    False
    """
    digest = hashlib.blake2b(digest_size=16)
    for piece in _iter_digest_parts(recording):
        digest.update(piece.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.hexdigest()


def identify_recordings(
    recordings: Iterable[Recording], model_choice: ModelChoice
) -> Iterator[dict[str, str]]:
    """Identify each recording by its digest, its cluster and the model that counts its tokens.

    If two runs have the same dicts in any order, both evaluated the same recordings with the same
    models.

    Parameters
    ----------
    recordings : iterable of Recording
        Recordings to identify.
    model_choice : ModelChoice
        Chooses the model that counts the tokens of each recording.

    Yields
    ------
    dict
        Identity of the next recording, with the keys ``digest``, ``cluster`` and ``counted_as``.
    """
    for recording in recordings:
        yield {
            "digest": recording_digest(recording),
            "cluster": recording.cluster or recording.id,
            "counted_as": model_choice.model_name_for(recording),
        }


def _iter_digest_parts(recording: Recording) -> Iterator[str]:
    for message in recording.messages:
        content = message.content
        yield message.role
        yield content if isinstance(content, str) else dump_json(content)
        yield dump_json([message.time, message.tool_call_id, message.name])
        for call in message.tool_calls:
            yield call.id
            yield call.name
            yield call.arguments
    yield dump_json(recording.tools)
    for more in (recording.compactions, recording.probes):
        if more:
            yield dump_json(_to_builtins(more))


def _to_builtins(value: Any) -> Any:
    """Convert structs to dicts without the fields that equal their defaults.

    ``msgspec.to_builtins`` leaves out only fields that *are* their defaults, and a copy that came from
    another process has equal texts that are other objects.
    """
    if isinstance(value, msgspec.Struct):
        found = {}
        for field in msgspec.structs.fields(value):
            here, made = getattr(value, field.name), field.default_factory
            if here != (field.default if made is msgspec.NODEFAULT else made()):
                found[field.encode_name] = _to_builtins(here)
        return found
    if isinstance(value, (tuple, list)):
        return [_to_builtins(each) for each in value]
    return value
