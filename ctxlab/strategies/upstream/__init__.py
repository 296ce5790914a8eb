"""The real code of other packages as strategies: ``peer:langchain.trim_messages(max_tokens=8000)``.

Each is a file in this folder that imports its package when it is first used; the extra ``peers``
installs them. They are slow, as their packages are, and look at the whole conversation at every
request.
"""

from __future__ import annotations

from ctxlab.strategies.upstream.base import (
    PEERS,
    EditingAdapter,
    Peer,
    PeerAdapter,
    PeerSettings,
    find_peer,
)

__all__ = ["PEERS", "EditingAdapter", "Peer", "PeerAdapter", "PeerSettings", "find_peer"]
