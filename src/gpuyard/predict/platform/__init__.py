"""The hardware side of a prediction: what an exchange gets of links inside and between machines."""
