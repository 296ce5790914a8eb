"""The messages of the next request, and the edits that strategies make to them."""
