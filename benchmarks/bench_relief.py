"""Measure the speed-up of the best remedy at equal loss: the linear model, 2 nodes at 1 Gbit/s, batch 50 per node.

Plain DDP and the remedies train the same samples in turn, in the same rank processes, on a temporary lab. Needs root and the
spoken digits (`gpuyard data fetch spoken-digits`), because a model learns nothing from the random clips that replace them.
The value 1 is the speed of plain DDP.
"""

import json
import os
import sys

from gpuyard import lab
from gpuyard.errors import GpuyardError
from gpuyard.measure.relief.plan import plan_relief
from gpuyard.measure.relief.run import run_relief
from gpuyard.run.places import LabNodes
from gpuyard.specs import Dataset, ExchangeOptions, Workload

NODES, BATCH, LINK, SAMPLES = 2, 50, "1Gbit", 3200
REMEDIES = (
    ExchangeOptions(compress="fp16", local_sgd=8),
    ExchangeOptions(compress="fp16", local_sgd=16),
)
WORKLOAD = Workload(
    name="spoken-digits-linear",
    model="spoken-digits-linear",
    dataset=Dataset(samples=2000, source="spoken-digits"),
)


def main() -> None:
    plan = lab.plan_lab(NODES, LINK, name=f"bench-relief-{os.getpid()}")
    with lab.temporary(plan) as temporary_lab:
        relief = plan_relief(
            WORKLOAD,
            NODES,
            BATCH,
            LabNodes(plan, temporary_lab),
            samples=SAMPLES,
            remedies=REMEDIES,
        )
        result = run_relief(relief)
    best = result.best
    print(
        json.dumps(
            {
                "name": "bench_relief",
                "value": round(result.speed_up(best), 3),
                "unit": "times plain DDP",
                "better": "higher",
                "remedy": best.remedy.label,
                "tolerance": result.tolerance,
                "samples": best.samples,
                "loss_first": result.plain.loss_first,
                "runs": [
                    {
                        "remedy": run.remedy.label,
                        "speed_up": round(result.speed_up(run), 3),
                        "loss": run.loss,
                        "equal_loss": result.equal_loss(run),
                        "learned_share": result.learned_share(run),
                    }
                    for run in result.runs
                ],
            }
        )
    )


if __name__ == "__main__":
    try:
        main()
    except GpuyardError as error:
        sys.exit(f"bench_relief: {error}")
