"""Numbers that may be one or many: every formula here takes floats or NumPy arrays that broadcast."""

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from gpuyard.errors import UserMistake

Array: TypeAlias = NDArray[np.float64]
Amounts: TypeAlias = float | Array
"""One figure, or an array of them: a candidate, a draw or a month each."""

HOURS_PER_YEAR = 365.25 * 24
HOURS_PER_MONTH = HOURS_PER_YEAR / 12


def array_of(amounts: Amounts) -> Array:
    return np.asarray(amounts, dtype=np.float64)


def check_not_negative(what: str, amounts: Amounts) -> None:
    """Nothing here can be negative; an infinite or missing figure is a slip too."""
    values = array_of(amounts)
    wrong = values[~(np.isfinite(values) & (values >= 0))]
    if wrong.size:
        raise UserMistake(f"{what} must be zero or more, and finite, got {wrong.flat[0]:g}")


def check_share(what: str, amounts: Amounts) -> None:
    """A share is between nothing and all."""
    values = array_of(amounts)
    wrong = values[~((values >= 0) & (values <= 1))]
    if wrong.size:
        raise UserMistake(
            f"{what} must be between 0 % and 100 %, got {100 * float(wrong.flat[0]):g} %"
        )
