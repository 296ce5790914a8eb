"""Strategies that run the original code of upstream packages, such as LangChain.

An example is ``peer:langchain.trim_messages(max_tokens=8000)``. Each module of this folder imports
one package, and is loaded when one of its strategies is first used. The extra ``peers`` installs the
packages, except openhands-sdk and coding agents, which only ``nox -s peers`` installs. The strategies
are as slow as the packages. Most of them process the whole conversation at every request.
"""

from __future__ import annotations

from ctxlab.strategies.upstream.base import PEERS, Peer, PeerAdapter, PeerSettings, find_peer

__all__ = ["PEERS", "Peer", "PeerAdapter", "PeerSettings", "find_peer"]
