"""How much to own of a demand, for one case or many of the same shape at once: the newsvendor's rule, exact
for whole machines, also where renting anything at all has a price of its own."""

from dataclasses import dataclass

import numpy as np

from gpuyard.economics.amounts import Amounts, Array, array_of

_SLACK = 1e-9  # a demand of 2.0000000001 machines does not want a third


@dataclass(frozen=True)
class OwnedSize:
    """One entry a case: what to own, and what that comes to each hour."""

    own: Array
    own_all: Array  # enough for the peak
    served: Array  # of the demand, on average, by what is owned
    rented: Array  # the rest
    usd_per_hour: Array


def critical_share(owned_usd: Amounts, rented_usd: Amounts, running_usd: Amounts) -> Array:
    """The share of hours in which demand is at most what should be owned; 0 where owning never pays."""
    margin = array_of(rented_usd) - running_usd
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        return np.where(margin > 0, np.maximum(0.0, 1 - array_of(owned_usd) / margin), 0.0)


def best_owned_size(
    wanted: Array,
    *,
    owned_usd: Amounts,
    rented_usd: Amounts,
    running_usd: Amounts = 0.0,
    renting_usd: Amounts = 0.0,
    scale: Amounts = 1.0,
    each: Amounts = 1.0,
    least: Amounts = 0.0,
    most: Amounts = np.inf,
) -> OwnedSize:
    """The cheapest multiple of `each` to own where `scale × wanted` is wanted in equal periods.

    Prices are for one and hour: owned whether used or not, rented, what use of an owned one adds.
    `renting_usd` is paid each hour where anything is rented at all, like data that is kept in a cloud.
    No less than `least` and no more than `most` can be owned.
    """
    ordered = np.sort(wanted)
    factor, step = array_of(scale), array_of(each)
    share = critical_share(owned_usd, rented_usd, running_usd)
    rank = np.clip(np.ceil(share * ordered.size - _SLACK) - 1, 0, ordered.size - 1).astype(int)
    real = np.where(share > 0, ordered[rank] * factor, 0.0)
    everything = np.ceil(ordered[-1] * factor / step - _SLACK) * step
    below = np.floor(real / step + _SLACK) * step
    # cost is convex in the size up to the last machine, and the last one ends what renting costs by itself
    nearly = np.maximum(everything - step, 0.0)
    sizes = (0.0, below, below + step, nearly, everything)
    limit = np.minimum(everything, np.floor(array_of(most) / step + _SLACK) * step)
    shape = np.broadcast_shapes(
        *(array_of(a).shape for a in (limit, below, rented_usd, running_usd, renting_usd))
    )
    tried = [
        cost_of_size(
            ordered, np.broadcast_to(np.minimum(np.maximum(size, least), limit), shape), everything,
            owned_usd=owned_usd, rented_usd=rented_usd, running_usd=running_usd,
            renting_usd=renting_usd, scale=factor,
        )
        for size in sizes
    ]  # fmt: skip
    best = np.argmin(np.stack([one.usd_per_hour for one in tried]), axis=0)
    return OwnedSize(
        own=np.choose(best, [one.own for one in tried]),
        own_all=np.broadcast_to(everything, shape),
        served=np.choose(best, [one.served for one in tried]),
        rented=np.choose(best, [one.rented for one in tried]),
        usd_per_hour=np.choose(best, [one.usd_per_hour for one in tried]),
    )


def cost_of_size(
    wanted: Array,
    own: Array,
    own_all: Array,
    *,
    owned_usd: Amounts,
    rented_usd: Amounts,
    running_usd: Amounts,
    renting_usd: Amounts,
    scale: Amounts,
) -> OwnedSize:
    """What it comes to with so much owned; `wanted` is sorted."""
    sums = np.concatenate([[0.0], np.cumsum(wanted)])
    factor = array_of(scale)
    level = np.divide(own, factor, out=np.full(np.shape(own), np.inf), where=factor > 0)
    full = np.searchsorted(wanted, level, side="right")  # periods that what is owned serves whole
    over = wanted.size - full
    capped = np.where(over > 0, np.where(np.isfinite(level), level, 0.0) * over, 0.0)
    served = factor * (sums[full] + capped) / wanted.size
    rented = np.maximum(factor * sums[-1] / wanted.size - served, 0.0)
    usd = (
        array_of(owned_usd) * own
        + array_of(running_usd) * served
        + array_of(rented_usd) * rented
        + array_of(renting_usd) * (own < own_all)
    )
    return OwnedSize(own, own_all, served, rented, usd)
