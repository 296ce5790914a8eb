"""Files, addresses, archives and published data sets."""
