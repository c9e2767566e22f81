"""Failure rates of GPUs and interruption rates of spot instances, from published figures.

Publications differ by a factor of twelve, so the interval is wide: it is that of a new cluster, not of the mean.
"""

import math
from statistics import fmean, stdev

from gpuyard.catalog import Gpu, Price
from gpuyard.catalog.interruptions import interruptions
from gpuyard.economics.billing import HOURS_PER_MONTH
from gpuyard.economics.goodput import MeanTime

_Z_90 = 1.645  # σ to either side of 90% of a normal distribution
SPOT_PER_HOUR = 0.05
"""Assumed interruptions of one spot instance per hour if its cloud publishes none; also a plan's default."""
_SPOT_RANGE = 5.0  # the assumption may be off by this factor


def find_failures(gpu: Gpu | None) -> MeanTime:
    """Return the hours between two failures of one GPU: the mean of publications about its architecture, or of all."""
    rows = [row for row in interruptions() if row.kind == "failure"]
    logs = {row.id: math.log(row.gpu_hours or 1.0) for row in rows}
    same = [row.id for row in rows if gpu is not None and row.architecture == gpu.architecture]
    names = same or list(logs)
    center = fmean(logs[name] for name in names)
    reach = _Z_90 * stdev(logs.values())
    about = "" if same or gpu is None else f", none about {gpu.architecture} GPUs"
    basis = f"published failures ({', '.join(names)}{about})"
    return MeanTime(math.exp(center), math.exp(center - reach), math.exp(center + reach), basis)


def find_spot_interruptions(price: Price | None) -> MeanTime:
    """Return the hours between two interruptions of one spot instance.

    A cloud publishes the share of instances that it reclaimed in a month, however short they ran. So this is the lower
    end of the rate; the upper end is the assumption for clouds that publish nothing.
    """
    row = next(
        (
            row
            for row in interruptions()
            if row.kind == "spot" and price is not None and price.cloud == row.cloud
            and price.instance.startswith(row.instances)
        ),
        None,
    )  # fmt: skip
    assumed = 1 / SPOT_PER_HOUR
    if row is None or row.monthly_low is None:
        return MeanTime(
            assumed, assumed / _SPOT_RANGE, assumed * _SPOT_RANGE, "assumed spot interruptions"
        )
    longest = HOURS_PER_MONTH / -math.log1p(-row.monthly_low)
    hours = math.sqrt(assumed * longest)
    return MeanTime(hours, assumed, longest, f"published spot interruptions ({row.id})")
