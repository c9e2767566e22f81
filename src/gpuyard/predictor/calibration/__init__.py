"""The predictor's free constants, fitted to a user's own measurements, and the file that keeps them."""
