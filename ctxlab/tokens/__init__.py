"""Counting tokens: vocabularies, models, prices, calibration."""
