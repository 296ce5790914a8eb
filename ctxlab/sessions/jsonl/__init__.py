"""Sessions as files of so many messages each, of which only the newest grows."""
