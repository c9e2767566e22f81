"""Data in a cloud: kept over the horizon, taken out after each run, by hand."""

import pytest

from gpuyard.catalog import models
from gpuyard.planner.offers import estimate_cloud_data
from gpuyard.planner.recommendation import build_result
from tests.planner.builder import candidates, offer, plan, workload


def total(way: str, **renting: str) -> float:
    spec = plan(
        offer("a", rent="$3/h", buy="$7200"),
        renting={"start": "0 s", **renting},
        prices={"reserved_1_year": "40%"},
        search={"ways": [way]},
    )
    result = build_result(candidates(spec), workload())
    assert result.winner is not None
    return result.winner.total_usd


def test_by_hand() -> None:
    # 2 TB for 36 months at the list price of $0.023; 360 runs × 20 GB, 100 GB a month free, at $0.09
    nothing = total("on-demand", data="0 B", results="0 B")
    kept = total("on-demand", data="2 TB", results="0 B")
    assert kept - nothing == pytest.approx(2000 * 36 * 0.023)
    moved = total("on-demand", data="0 B", results="20 GB")
    assert moved - nothing == pytest.approx((360 * 20 - 36 * 100) * 0.09)
    own = total("on-demand", data="2 TB", storage="$0.01", results="20 GB", egress="$0.05")
    assert own - nothing == pytest.approx(2000 * 36 * 0.01 + 360 * 20 * 0.05)


def test_reserved_has_it_too_and_bought_does_not() -> None:
    nothing = total("reserved-1-year", data="0 B", results="0 B")
    assert total("reserved-1-year", data="2 TB", results="0 B") - nothing == pytest.approx(1656)
    assert total("buy", data="2 TB") == total("buy", data="0 B")


def test_without_sizes_they_follow_from_the_workload() -> None:
    profile = models().get("resnet50")
    trained = workload(dataset={"samples": 1000, "bytes_per_sample": "110 kB"})
    data = estimate_cloud_data(plan(renting={}), trained, profile.parameters, profile.input_bytes)
    assert data.stored_gb == pytest.approx(0.11)
    assert data.out_gb_per_run == pytest.approx(12 * profile.parameters / 1e9)
    plain = estimate_cloud_data(
        plan(renting={}),
        workload(dataset={"samples": 1000}),
        profile.parameters,
        profile.input_bytes,
    )
    assert plain.stored_gb == pytest.approx(profile.input_bytes * 1000 / 1e9)
