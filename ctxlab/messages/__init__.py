"""Messages and recordings: types, conversion, validity and entities."""
