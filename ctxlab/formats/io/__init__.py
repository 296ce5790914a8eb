"""Modules that find and open files, URLs, archives and published data sets."""
