"""Access to files, URLs, archives and published data sets."""
