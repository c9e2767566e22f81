"""How large a step a layer's weights take in an epoch."""

import math

# tried on the linear spoken-digit model: one rate for all layers is too much for the first, whose
# 12,000 inputs move together, and too little for the last
FIRST = 0.03
# at the first epoch's rate the conv model's loss went up and down from the eighth epoch on
KEPT_FROM_EPOCH_TO_EPOCH = 0.85


def rate(inputs: int, epoch: int = 1) -> float:
    """For a layer whose neurons have so many inputs.

    It follows from the epoch's number alone, not from how many are wanted: a run that is taken up
    again, or that is given more epochs, takes the same steps.
    """
    return FIRST / math.sqrt(inputs) * KEPT_FROM_EPOCH_TO_EPOCH ** (epoch - 1)
