"""The messages of the next request to the model, and the edits that strategies make to them."""
