"""The agent: tools, a loop with a cap, and a conversation that is stored as it goes."""
