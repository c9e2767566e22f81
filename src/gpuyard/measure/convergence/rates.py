"""How large a step a layer's weights take."""

import math

# tried on the linear spoken-digit model: one rate for all layers is too much for the first, whose
# 12,000 inputs move together, and too little for the last
FIRST = 0.03
# at the first rate the conv model's loss went up and down from its eighth epoch of 36 updates on
KEPT = 0.85
KEPT_AFTER_UPDATES = 36
LEAST_KEPT = 0.05  # small data sets may need hundreds of epochs; they must not come to a halt


def rate(inputs: int, updates: int = 0) -> float:
    """For a layer whose neurons have so many inputs, after so many updates.

    It follows from what was done, not from how much is wanted: a run that is taken up again, or that is
    given more epochs, takes the same steps.
    """
    kept = max(LEAST_KEPT, float(KEPT ** (updates / KEPT_AFTER_UPDATES)))
    return FIRST / math.sqrt(inputs) * kept
