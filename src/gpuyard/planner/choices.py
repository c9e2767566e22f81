"""Turn rows of the candidates into readable choices, and choose the best one."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuyard.planner.candidates import Candidates
from gpuyard.planner.choice import Choice, RentedRest
from gpuyard.planner.goodput import estimate_run_goodput
from gpuyard.planner.mixes import Mixes, reprice_mix, simplify_mix
from gpuyard.planner.offers import BOUGHT, has_assumed_price
from gpuyard.planner.ranking import Ranking, find_simplest_setting, price_cheapest_other
from gpuyard.predictor.table import Floats
from gpuyard.specs import Network


def create_choices(candidates: Candidates, ranking: Ranking, rows: Sequence[int]) -> list[Choice]:
    """Create a choice for each row, with its time and its cost at both ends of their intervals."""
    numbers = np.array(rows, dtype=np.int64)
    predicted, costs = candidates.throughputs, candidates.costs
    prediction_rows = candidates.row[numbers]
    slow = candidates.price(numbers, predicted.low[prediction_rows])
    fast = candidates.price(numbers, predicted.high[prediction_rows])
    speeds = predicted.samples_per_second[prediction_rows]
    cheap = candidates.at_price_end("low").price(numbers, speeds)
    dear = candidates.at_price_end("high").price(numbers, speeds)
    choices = []
    for i, number in enumerate(numbers):
        offer = candidates.offers[candidates.offer[number]]
        server, r = offer.server, prediction_rows[i]
        gpus = int(predicted.gpus[r])
        efficiency = float(predicted.scaling_efficiency[r])
        precision = candidates.precision(int(number))
        basis, caveat = candidates.training.describe_speed(server.gpu.id, precision)
        network = offer.price_network(int(predicted.nodes[r]))
        layout = int(predicted.layout[r])
        seconds = float(costs.run_seconds[number])
        watts = int(predicted.nodes[r]) * server.load_watts
        choices.append(
            Choice(
                offer=server.id,
                name=server.name,
                way=offer.acquisition,
                gpu=server.gpu.id,
                gpus_per_node=server.gpus,
                nodes=int(predicted.nodes[r]),
                gpus=gpus,
                network=offer.network_label,
                batch_per_gpu=int(predicted.batch_per_gpu[r]),
                remedy=candidates.grid.remedies[predicted.remedy[r]],
                precision=precision,
                update_samples=int(predicted.update_samples[r]),
                samples_per_second=float(predicted.samples_per_second[r]),
                scaling_efficiency=efficiency,
                effective_gpus=gpus * efficiency,
                run_seconds=seconds,
                run_seconds_low=float(fast.run_seconds[i]),
                run_seconds_high=float(slow.run_seconds[i]),
                usd_per_run=float(costs.usd_per_run[number]),
                usd_per_run_low=combine_errors(
                    float(costs.usd_per_run[number]), fast.usd_per_run[i], cheap.usd_per_run[i]
                ),
                usd_per_run_high=combine_errors(
                    float(costs.usd_per_run[number]), slow.usd_per_run[i], dear.usd_per_run[i]
                ),
                total_usd=float(costs.total_usd[number]),
                clusters=int(costs.clusters[number]),
                utilization=float(costs.utilization[number]),
                watts=float(costs.watts[number]),
                price_source=server.price_source,
                price_date=server.price_date.isoformat() if server.price_date else None,
                price_dates=tuple(day.isoformat() for day in server.price_dates),
                price_is_estimate=server.estimate,
                machine_usd=offer.buy_usd if offer.acquisition in BOUGHT else None,
                machine_usd_range=offer.buy_usd_range if offer.acquisition in BOUGHT else None,
                price_is_assumed=has_assumed_price(candidates.plan, offer.acquisition),
                network_usd=(network.usd if network else 0.0) * int(costs.clusters[number]),
                network_price_source=network.source if network else "",
                network_is_assumed=offer.network_assumed,
                topology=server.topology,
                network_keys=None if offer.network is None else _format_network_keys(offer.network),
                goodput=estimate_run_goodput(
                    server.gpu,
                    gpus,
                    checkpoint_seconds=candidates.plan.spot.checkpoint,
                    restart_seconds=candidates.plan.spot.restart,
                ).share,
                compute_basis=basis,
                evidence_note=caveat,
                energy_kwh=watts * seconds / 3.6e6,
                tokens_per_second=(
                    float(predicted.samples_per_second[r]) * candidates.tokens_per_sample
                    if candidates.tokens_per_sample
                    else None
                ),
                layout=predicted.layouts[layout] if layout >= 0 else None,
                in_time=bool(ranking.in_time[number]),
                in_budget=bool(ranking.in_budget[number]),
                broken_rules=tuple(
                    rule.describe(int(candidates.offer[number]))
                    for rule in ranking.rules
                    if rule.breaks[number]
                ),
            )
        )
    return choices


def _format_network_keys(network: Network) -> dict[str, Any]:
    """Format a network as the keys of a cluster file, with units."""
    units = {"rate": (8e-9, "Gbit/s"), "per_flow": (8e-9, "Gbit/s"), "latency": (1e6, "us")}
    return {
        key: f"{value * units[key][0]:.9g} {units[key][1]}" if key in units else value
        for key, value in network.model_dump(exclude_defaults=True).items()
    }


def create_mixed_choices(
    candidates: Candidates, ranking: Ranking, mixes: Mixes, numbers: Sequence[int]
) -> list[Choice]:
    """Create a choice for each mix: the owned machines, with the rented ones as `rest`."""
    bases = create_choices(candidates, ranking, [int(mixes.base[n]) for n in numbers])
    rests = create_choices(candidates, ranking, [int(mixes.rest[n]) for n in numbers])
    choices = []
    for number, base, rest in zip(numbers, bases, rests, strict=True):
        low, high = _find_mix_interval(candidates, mixes, number)
        owned = int(mixes.owned[number])
        choices.append(
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
                utilization=float(mixes.utilization[number]),
                watts=base.watts / base.clusters * owned,
                in_time=bool(mixes.in_time[number]),
                in_budget=bool(mixes.in_budget[number]),
                # the solver already respects limits on the number of machines
                broken_rules=tuple(
                    rule.describe(int(candidates.offer[mixes.base[number]]))
                    for rule in ranking.rules
                    if not rule.depends_on_size and rule.breaks[mixes.base[number]]
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
    return choices


def combine_errors(value: float, *ends: float) -> float:
    """Return the end of an interval with several independent causes, from the end that each one has alone.

    Distances add as squares, on a logarithmic scale because prices and speeds vary by factors.
    """
    if value <= 0 or min(ends) <= 0:
        return float(min(ends) if min(ends) < value else max(ends))
    distance = math.hypot(*(math.log(end / value) for end in ends))
    return value * math.exp(math.copysign(distance, sum(ends) - len(ends) * value))


def _find_mix_interval(candidates: Candidates, mixes: Mixes, number: int) -> tuple[float, float]:
    """Return both ends of a mix's cost per run."""
    predicted, runs = candidates.throughputs, candidates.runs.total
    rates = predicted.samples_per_second
    fast, slow = (
        _price_mix_at(candidates, mixes, number, speeds) / runs
        for speeds in (predicted.high, predicted.low)
    )
    cheap = _price_mix_at(candidates.at_price_end("low"), mixes, number, rates) / runs
    dear = _price_mix_at(candidates.at_price_end("high"), mixes, number, rates) / runs
    usd = float(mixes.usd_per_run[number])
    return combine_errors(usd, fast, cheap), combine_errors(usd, slow, dear)


def _price_mix_at(candidates: Candidates, mixes: Mixes, number: int, rates: Floats) -> float:
    """Price a mix at other predicted rates, such as an end of the interval, with the same machines owned."""
    base, rest = int(mixes.base[number]), int(mixes.rest[number])
    speeds = (float(rates[candidates.row[base]]), float(rates[candidates.row[rest]]))
    return reprice_mix(candidates, base, rest, float(mixes.owned[number]), speeds)


def choose_best(
    candidates: Candidates, ranking: Ranking, mixes: Mixes
) -> tuple[Choice | None, tuple[int, ...]]:
    """Choose the cheapest run that meets the goal, in its simplest setting; also return its rows."""
    mixed = mixes.cheapest(mixes.mixed & mixes.in_time & mixes.in_budget)
    pure = ranking.winner
    usd = candidates.costs.usd_per_run
    # a simpler setting may cost a little more, but no more than other machines would
    if mixed is not None and (pure is None or mixes.usd_per_run[mixed] < usd[pure]):
        other_usd = price_cheapest_other(candidates, ranking, None)
        simple = simplify_mix(candidates, ranking, mixes, mixed, other_usd)
        (winner,) = create_mixed_choices(candidates, ranking, simple, [0])
        return winner, (int(simple.base[0]), int(simple.rest[0]))
    if pure is None:
        return None, ()
    other_usd = price_cheapest_other(candidates, ranking, pure)
    if mixed is not None:
        mix = simplify_mix(candidates, ranking, mixes, mixed)
        other_usd = min(other_usd, float(mix.usd_per_run[0]))
    row = find_simplest_setting(candidates, ranking, pure, other_usd)
    (winner,) = create_choices(candidates, ranking, [row])
    return winner, (row,)
