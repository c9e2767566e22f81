"""Commands that measure, store results, and fit the predictor to them."""
