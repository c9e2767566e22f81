"""From rows of the candidates' table to choices that can be read."""

from collections.abc import Sequence

import numpy as np

from gpuyard.planner.candidates import Candidates
from gpuyard.planner.ranking import Ranking
from gpuyard.planner.result import Choice


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
        host, r = offer.host, row[i]
        gpus = int(predicted.gpus[r])
        efficiency = float(predicted.scaling_efficiency[r])
        line = candidates.lines[host.gpu.id]
        found.append(
            Choice(
                offer=host.id,
                name=host.name,
                way=offer.way,
                gpu=host.gpu.id,
                gpus_per_node=host.gpus,
                nodes=int(predicted.nodes[r]),
                gpus=gpus,
                network=offer.network_words,
                batch_per_gpu=int(predicted.batch_per_gpu[r]),
                remedy=candidates.grid.remedies[predicted.remedy[r]],
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
                price_source=host.price_source,
                price_date=host.price_date.isoformat() if host.price_date else None,
                price_is_estimate=host.estimate,
                compute_basis=f"{line.basis}: {line.source}",
                in_time=bool(ranking.in_time[number]),
                in_budget=bool(ranking.in_budget[number]),
                broken_rules=tuple(rule.reason for rule in ranking.rules if rule.breaks[number]),
            )
        )
    return found
