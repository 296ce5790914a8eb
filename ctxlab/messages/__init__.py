"""Messages and recordings: their types, formats, validity and entities."""
