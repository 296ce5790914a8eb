"""Count tokens, look up the limits and prices of models, and calibrate counts against bills."""
