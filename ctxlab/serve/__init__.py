"""Servers that give clients access to sessions over MCP and HTTP."""
