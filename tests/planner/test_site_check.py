"""Machines that the site cannot house are not recommended, and the answer explains why."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import read_site
from gpuyard.planner.costs import create_premises
from gpuyard.planner.recommendation import build_result
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import search
from gpuyard.specs.site import Site
from tests.planner.builder import offer, plan, workload

OFFICE = Path(__file__).parents[2] / "examples" / "office.site.yaml"


def large(**changes: Any) -> dict[str, Any]:
    """Four cards of 575 W: 27 A at 120 V. It says less, so that only the room's design can refuse it."""
    return offer(
        "large", **{"gpu": "rtx-5090", "gpus": 4, "buy": "$4000", "power": "1 kW"} | changes
    )


def small(**changes: Any) -> dict[str, Any]:
    return offer("small", **{"gpu": "rtx-5090", "buy": "$6000", "power": "1 kW"} | changes)


def solve(
    *offers: dict[str, Any], site: Site | None, ways: tuple[str, ...] = ("buy",), **changes: Any
) -> PlanResult:
    spec = plan(*offers, search={"ways": list(ways), "nodes": [1]}, **changes)
    trained = workload()
    premises = create_premises(spec, site)
    return build_result(search(spec, trained, models().get("resnet50"), None, premises), trained)


def test_refused_machines_are_not_recommended() -> None:
    free = solve(large(), small(), site=None)
    assert free.winner is not None and free.winner.offer == "large"
    assert (free.site, free.refused) == (None, ())
    here = solve(large(), small(), site=read_site(OFFICE))
    assert here.winner is not None and here.winner.offer == "small"
    assert here.site == "Office with 20 A circuits"
    (refusal,) = here.refused
    assert refusal.offer == "large" and refusal.would_win
    assert "draws 27.1 A at its peak" in refusal.why and "carries 16.0 A" in refusal.why
    assert "Try a site" not in refusal.why
    assert all(choice.offer == "small" for choice in here.front)
    assert any("cannot house it" in e.reason and e.candidates for e in here.left_out)


def test_the_site_limits_the_number_of_machines() -> None:
    # the runs want three machines, and the office has two circuits
    here = solve(small(), site=read_site(OFFICE), runs_per_month=250)
    assert here.winner is None
    assert any("cannot house that many" in e.reason for e in here.left_out)
    (refusal,) = here.refused
    assert refusal.why.startswith("3 are too many: the design needs 3 circuits")


def test_a_mix_owns_as_many_as_the_site_can_house() -> None:
    ways = ("buy", "on-demand", "hybrid")
    cloud = offer("cloud", gpu="rtx-5090", rent="$3/h")
    free = solve(small(), cloud, site=None, ways=ways, runs_per_month=600)
    assert free.winner is not None and free.winner.clusters > 2
    here = solve(small(), cloud, site=read_site(OFFICE), ways=ways, runs_per_month=600)
    assert here.winner is not None and here.winner.way == "hybrid"
    assert (here.winner.offer, here.winner.clusters) == ("small", 2)
    assert here.refused[0].would_win


@pytest.mark.parametrize("way", ["colocate", "on-demand"])
def test_machines_elsewhere_are_not_checked(way: str) -> None:
    elsewhere = solve(large(rent="$2/h"), site=read_site(OFFICE), ways=(way,))
    assert elsewhere.winner is not None and elsewhere.refused == ()


def test_only_colocated_machines_are_checked_against_a_colocation() -> None:
    shared = Site.model_validate(
        read_site(OFFICE).model_dump(exclude_defaults=True, exclude={"circuits"})
        | {
            "name": "shared",
            "kind": "colocation",
            "circuits": [{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}],
        }
    )
    assert solve(large(), site=shared, ways=("buy",)).refused == ()
    assert solve(large(), site=shared, ways=("colocate",)).winner is None
