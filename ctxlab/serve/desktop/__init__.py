"""MCP server with which an agent sees and uses a desktop."""

from ctxlab.serve.desktop.server import DEFAULT_PORT, DesktopServer
from ctxlab.serve.desktop.tools import ACTIONS, DesktopTools, default_audit_path

__all__ = ["ACTIONS", "DEFAULT_PORT", "DesktopServer", "DesktopTools", "default_audit_path"]
