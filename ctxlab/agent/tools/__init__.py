"""Tools of an agent: typed functions, a workspace, and child processes."""
