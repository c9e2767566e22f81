"""Benchmark a deployment: plan its training runs, provide their data, and compare the results with predictions."""
