"""Read and search stored sessions: what the MCP server and the memory of an agent share."""
