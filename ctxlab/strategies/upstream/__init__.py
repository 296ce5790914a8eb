"""Original code of other packages as strategies: ``peer:langchain.trim_messages(max_tokens=8000)``.

Each module of this folder imports its package, and is loaded when its strategy is first used. The
extra ``peers`` installs the packages. The strategies are as slow as their packages, and process the
whole conversation at every request.
"""

from __future__ import annotations

from ctxlab.strategies.upstream.base import PEERS, Peer, PeerAdapter, PeerSettings, find_peer

__all__ = ["PEERS", "Peer", "PeerAdapter", "PeerSettings", "find_peer"]
