"""The tools of an agent and what runs them: typed functions, a workspace, processes."""
