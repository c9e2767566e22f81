"""From rows of the candidates' table to choices that can be read."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuyard.planner.candidates import Candidates
from gpuyard.planner.mixes import Mixes, plainest_mix, repriced_usd
from gpuyard.planner.offers import is_assumed
from gpuyard.planner.ranking import Ranking, cheapest_other_usd, plainest
from gpuyard.planner.result import Choice, RentedRest
from gpuyard.predict.table import Floats
from gpuyard.specs import Network


def choices(candidates: Candidates, ranking: Ranking, rows: Sequence[int]) -> list[Choice]:
    """Each with the interval of its time and cost: what it comes to at either end of the prediction's."""
    at = np.array(rows, dtype=np.int64)
    predicted, costs = candidates.throughputs, candidates.costs
    row = candidates.row[at]
    slow = candidates.priced(at, predicted.low[row])
    fast = candidates.priced(at, predicted.high[row])
    found = []
    for i, number in enumerate(at):
        offer = candidates.offers[candidates.offer[number]]
        server, r = offer.server, row[i]
        gpus = int(predicted.gpus[r])
        efficiency = float(predicted.scaling_efficiency[r])
        precision = candidates.precision(int(number))
        line = candidates.lines[server.gpu.id][precision]
        joined = offer.network_price(int(predicted.nodes[r]))
        found.append(
            Choice(
                offer=server.id,
                name=server.name,
                way=offer.acquisition,
                gpu=server.gpu.id,
                gpus_per_node=server.gpus,
                nodes=int(predicted.nodes[r]),
                gpus=gpus,
                network=offer.network_words,
                batch_per_gpu=int(predicted.batch_per_gpu[r]),
                remedy=candidates.grid.remedies[predicted.remedy[r]],
                precision=precision,
                update_samples=int(predicted.update_samples[r]),
                samples_per_second=float(predicted.samples_per_second[r]),
                scaling_efficiency=efficiency,
                effective_gpus=gpus * efficiency,
                run_seconds=float(costs.run_seconds[number]),
                run_seconds_low=float(fast.run_seconds[i]),
                run_seconds_high=float(slow.run_seconds[i]),
                usd_per_run=float(costs.usd_per_run[number]),
                usd_per_run_low=float(fast.usd_per_run[i]),
                usd_per_run_high=float(slow.usd_per_run[i]),
                total_usd=float(costs.total_usd[number]),
                clusters=int(costs.clusters[number]),
                utilisation=float(costs.utilisation[number]),
                watts=float(costs.watts[number]),
                price_source=server.price_source,
                price_date=server.price_date.isoformat() if server.price_date else None,
                price_dates=tuple(day.isoformat() for day in server.price_dates),
                price_is_estimate=server.estimate,
                price_is_assumed=is_assumed(candidates.plan, offer.acquisition),
                network_usd=(joined.usd if joined else 0.0) * int(costs.clusters[number]),
                network_price_source=joined.source if joined else "",
                network_is_assumed=offer.network_assumed,
                topology=server.topology,
                network_keys=None if offer.network is None else _keys(offer.network),
                compute_basis=f"{line.basis}: {line.source}",
                in_time=bool(ranking.in_time[number]),
                in_budget=bool(ranking.in_budget[number]),
                broken_rules=tuple(
                    r.words(int(candidates.offer[number]))
                    for r in ranking.rules
                    if r.breaks[number]
                ),
            )
        )
    return found


def _keys(network: Network) -> dict[str, Any]:
    """As they are written, with units."""
    units = {"rate": (8e-9, "Gbit/s"), "per_flow": (8e-9, "Gbit/s"), "latency": (1e6, "us")}
    return {
        key: f"{value * units[key][0]:.9g} {units[key][1]}" if key in units else value
        for key, value in network.model_dump(exclude_defaults=True).items()
    }


def mixed_choices(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, numbers: Sequence[int]
) -> list[Choice]:
    """Each as the choice of its own machines, with what is rented beside them."""
    bases = choices(candidates, ranking, [int(mixes.base[n]) for n in numbers])
    rests = choices(candidates, ranking, [int(mixes.rest[n]) for n in numbers])
    found = []
    for number, base, rest in zip(numbers, bases, rests, strict=True):
        low, high = (
            _at_end(candidates, mixes, number, end) / candidates.runs.total
            for end in (candidates.throughputs.high, candidates.throughputs.low)
        )
        owned = int(mixes.owned[number])
        found.append(
            replace(
                base,
                way="hybrid",
                run_seconds=float(mixes.run_seconds[number]),
                run_seconds_low=max(base.run_seconds_low, rest.run_seconds_low),
                run_seconds_high=max(base.run_seconds_high, rest.run_seconds_high),
                usd_per_run=float(mixes.usd_per_run[number]),
                usd_per_run_low=low,
                usd_per_run_high=high,
                total_usd=float(mixes.total_usd[number]),
                clusters=owned,
                network_usd=base.network_usd / base.clusters * owned,
                utilisation=float(mixes.utilisation[number]),
                watts=base.watts / base.clusters * owned,
                in_time=bool(mixes.in_time[number]),
                in_budget=bool(mixes.in_budget[number]),
                # no more is owned than the premises feed
                broken_rules=tuple(
                    rule.words(int(candidates.offer[mixes.base[number]]))
                    for rule in ranking.rules
                    if not rule.of_size and rule.breaks[mixes.base[number]]
                ),
                owned_way=base.way,
                rest=RentedRest(
                    offer=rest.offer,
                    name=rest.name,
                    way=rest.way,
                    gpu=rest.gpu,
                    nodes=rest.nodes,
                    gpus=rest.gpus,
                    batch_per_gpu=rest.batch_per_gpu,
                    remedy=rest.remedy,
                    precision=rest.precision,
                    run_seconds=rest.run_seconds,
                    usd_per_run=rest.usd_per_run,
                    share_of_runs=1 - float(mixes.owned_share[number]),
                    price_source=rest.price_source,
                    price_date=rest.price_date,
                ),
            )
        )
    return found


def _at_end(candidates: Candidates, mixes: Mixes, number: int, end: Floats) -> float:
    """What it comes to at one end of the interval, with the same machines owned."""
    base, rest = int(mixes.base[number]), int(mixes.rest[number])
    speeds = (float(end[candidates.row[base]]), float(end[candidates.row[rest]]))
    return repriced_usd(candidates, base, rest, float(mixes.owned[number]), speeds)


def best_choice(
    candidates: Candidates, ranking: Ranking, mixes: Mixes
) -> tuple[Choice | None, tuple[int, ...]]:
    """The cheapest run that meets the goal, in the plainest setting that is hardly worse, and its rows."""
    mixed = mixes.cheapest(mixes.mixed & mixes.in_time & mixes.in_budget)
    pure = ranking.winner
    usd = candidates.costs.usd_per_run
    # a setting may be plainer for a little more, but not for more than other machines would cost
    if mixed is not None and (pure is None or mixes.usd_per_run[mixed] < usd[pure]):
        other_usd = cheapest_other_usd(candidates, ranking, None)
        plain = plainest_mix(candidates, ranking, mixes, mixed, other_usd)
        (winner,) = mixed_choices(candidates, ranking, plain, [0])
        return winner, (int(plain.base[0]), int(plain.rest[0]))
    if pure is None:
        return None, ()
    other_usd = cheapest_other_usd(candidates, ranking, pure)
    if mixed is not None:
        mix = plainest_mix(candidates, ranking, mixes, mixed)
        other_usd = min(other_usd, float(mix.usd_per_run[0]))
    row = plainest(candidates, ranking, pure, other_usd)
    (winner,) = choices(candidates, ranking, [row])
    return winner, (row,)
