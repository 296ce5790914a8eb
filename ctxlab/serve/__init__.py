"""Servers that provide sessions over MCP and HTTP."""
