"""Servers: sessions over MCP and over HTTP."""
