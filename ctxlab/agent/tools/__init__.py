"""Tools for agents: tools built from functions, tools for a workspace, and shell commands."""
