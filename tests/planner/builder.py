"""Small plans: a workload whose speed is known, and a few offers with round prices."""

from typing import Any

from gpuyard.catalog import models
from gpuyard.planner.candidates import Candidates
from gpuyard.planner.search import search
from gpuyard.specs import Workload
from gpuyard.specs.plan import Plan

SAMPLES_PER_SECOND = 1000.0
RUN_SAMPLES = 36_000_000  # ten hours on one GPU of SAMPLES_PER_SECOND


def workload(**changes: Any) -> Workload:
    """One V100 does 1,000 samples per second at any batch, so a run on one takes ten hours."""
    return Workload.model_validate(
        {
            "name": "known",
            "model": "resnet50",
            "precision": "fp16",
            "batch_per_gpu": 64,
            "epochs": 1,
            "dataset": {"samples": RUN_SAMPLES},
            "measured": [
                {"gpu": "v100-sxm2-16gb", "batch_per_gpu": b, "samples_per_second": 1000}
                for b in (32, 64, 128)
            ],
            **changes,
        }
    )


def offer(name: str, **changes: Any) -> dict[str, Any]:
    """One machine with one V100."""
    return {"name": name, "gpu": "v100-sxm2-16gb", "gpus": 1, **changes}


def plan(*offers: dict[str, Any], **changes: Any) -> Plan:
    """Only the given offers, at one batch and without remedies, unless changed."""
    search_changes = changes.pop("search", {})
    return Plan.model_validate(
        {
            "name": "small",
            "workload": workload(),
            "runs_per_month": 10,
            "horizon": "3 years",
            "offers": list(offers),
            "renting": {"start": "0 s", "data": "0 B", "results": "0 B"},
            **changes,
            "search": {
                "offers": [o["name"] for o in offers] or None,
                "batch": [64],
                "remedies": ["none"],
                **search_changes,
            },
        }
    )


def candidates(spec: Plan) -> Candidates:
    assert isinstance(spec.workload, Workload)
    return search(spec, spec.workload, models().get("resnet50"))
