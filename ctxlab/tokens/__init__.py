"""Token counts: encodings, models, prices, calibration."""
