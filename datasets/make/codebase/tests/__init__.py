"""Tests of the stockroom; each states one promise."""
