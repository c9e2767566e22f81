"""What the site can't house is not recommended, and the answer says what it lacks."""

from pathlib import Path
from typing import Any

import pytest

from gpuyard.catalog import models
from gpuyard.catalog.specfiles import read_site
from gpuyard.planner.costs import premises_of
from gpuyard.planner.result import PlanResult
from gpuyard.planner.search import plan_result, search
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


def found(
    *offers: dict[str, Any], site: Site | None, ways: tuple[str, ...] = ("buy",), **changes: Any
) -> PlanResult:
    asked = plan(*offers, search={"ways": list(ways), "nodes": [1]}, **changes)
    known = workload()
    premises = premises_of(asked, site)
    return plan_result(search(asked, known, models().get("resnet50"), None, premises), known)


def test_what_the_site_refuses_is_not_recommended() -> None:
    free = found(large(), small(), site=None)
    assert free.winner is not None and free.winner.offer == "large"
    assert (free.site, free.refused) == (None, ())
    here = found(large(), small(), site=read_site(OFFICE))
    assert here.winner is not None and here.winner.offer == "small"
    assert here.site == "Office with 20 A circuits"
    (refused,) = here.refused
    assert refused.offer == "large" and refused.would_win
    assert "draws 27.1 A at its peak" in refused.why and "carries 16.0 A" in refused.why
    assert "Try a site" not in refused.why
    assert all(choice.offer == "small" for choice in here.front)
    assert any("can't house it" in left.reason and left.candidates for left in here.left_out)


def test_no_more_of_them_than_the_site_can_house() -> None:
    # the runs want three machines, and the office has two circuits
    here = found(small(), site=read_site(OFFICE), runs_per_month=250)
    assert here.winner is None
    assert any("can't house that many" in left.reason for left in here.left_out)
    (refused,) = here.refused
    assert refused.why.startswith("3 are too many: the design needs 3 circuits")


def test_a_mix_owns_as_many_as_the_site_can_house() -> None:
    ways = ("buy", "on-demand", "hybrid")
    cloud = offer("cloud", gpu="rtx-5090", rent="$3/h")
    free = found(small(), cloud, site=None, ways=ways, runs_per_month=600)
    assert free.winner is not None and free.winner.clusters > 2
    here = found(small(), cloud, site=read_site(OFFICE), ways=ways, runs_per_month=600)
    assert here.winner is not None and here.winner.way == "hybrid"
    assert (here.winner.offer, here.winner.clusters) == ("small", 2)
    assert here.refused[0].would_win


@pytest.mark.parametrize("way", ["colocate", "on-demand"])
def test_what_stands_elsewhere_is_not_checked(way: str) -> None:
    elsewhere = found(large(rent="$2/h"), site=read_site(OFFICE), ways=(way,))
    assert elsewhere.winner is not None and elsewhere.refused == ()


def test_a_colocation_is_checked_for_what_is_colocated() -> None:
    shared = Site.model_validate(
        read_site(OFFICE).model_dump(exclude_defaults=True, exclude={"circuits"})
        | {
            "name": "shared",
            "kind": "colocation",
            "circuits": [{"voltage": "120 V", "amps": "20 A", "receptacle": "nema-5-20r"}],
        }
    )
    assert found(large(), site=shared, ways=("buy",)).refused == ()
    assert found(large(), site=shared, ways=("colocate",)).winner is None
