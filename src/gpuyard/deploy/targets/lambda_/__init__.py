"""Instances at Lambda Cloud. The underscore is needed because `lambda` is a Python keyword."""
