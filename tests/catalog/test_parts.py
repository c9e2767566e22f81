"""Parts add up: an estimate of a known product is its price."""

import pytest

from gpuyard.catalog import gpus, links
from gpuyard.catalog.prices import (
    build_ids,
    chassis,
    fits_chassis,
    format_build_id,
    gpu_prices,
    ports,
)


def test_every_price_is_of_a_known_gpu_and_every_port_of_a_known_link() -> None:
    assert all(price.id in gpus() for price in gpu_prices())
    assert all(port.id in links() for port in ports())


@pytest.mark.parametrize(
    ("box", "count", "gpu_usd", "usd"),
    [
        ("workstation-2", 4, 1000, 8000),  # the founding project's machine, four RTX 2080 Ti
        ("workstation-4", 4, 1000, 12472),  # Lambda Quad, four RTX 2080 Ti
        ("server-pcie", 8, 1000, 28389),  # Lambda Blade, eight RTX 2080 Ti
        ("server-sxm2", 8, 10000, 109008),  # Lambda Hyperplane, eight V100
    ],
)
def test_founding_machines_are_in_the_range(
    box: str, count: int, gpu_usd: float, usd: float
) -> None:
    """GPUs are at the price of that year."""
    parts = chassis().get(box)
    assert parts.usd_low <= usd - count * gpu_usd <= parts.usd_high


def test_a_new_gpu_gets_no_machine_of_an_old_one() -> None:
    def boxes(gpu: str) -> set[str]:
        return {box.id for box in chassis() if fits_chassis(gpus().get(gpu), box)}

    assert boxes("b300-sxm") == {"server-sxm6"}
    assert boxes("h100-sxm5-80gb") == boxes("mi300x") == {"server-sxm5"}
    assert boxes("v100-sxm2-32gb") == {"server-sxm2"}
    assert chassis().get("server-sxm6").usd > 2 * chassis().get("server-sxm2").usd
    assert chassis().get("server-sxm6").date.year >= 2026


def test_prices_are_ranges_with_dates_and_sources() -> None:
    for price in (*gpu_prices(), *chassis()):
        assert price.usd_low <= price.usd <= price.usd_high
        assert price.usd_low < price.usd_high or price.basis == "launch", price.id
        assert price.source and price.date


def test_gpus_with_evidence_have_market_prices() -> None:
    rtx = gpu_prices().get("rtx-5090")
    assert rtx.basis == "street" and rtx.usd > 3000 and rtx.usd_high >= 3699
    large, small = gpu_prices().get("a100-sxm4-80gb"), gpu_prices().get("a100-sxm4-40gb")
    assert 10_000 <= large.usd <= 15_000
    assert small.usd < large.usd and small.basis == "estimate"


def test_a_price_says_whether_it_is_of_the_launch_and_of_which_day() -> None:
    old = gpu_prices().get("rtx-3080")
    assert (old.usd, old.basis, old.date.isoformat()) == (699, "launch", "2020-09-01")
    assert gpu_prices().get("h100-sxm5-80gb").basis == "street"
    for price in gpu_prices():
        if price.basis == "launch":
            assert abs(price.date.year - gpus().get(price.id).released) <= 1, price.id


def test_gpus_go_only_where_they_fit() -> None:
    sxm, pcie = chassis().get("server-sxm5"), chassis().get("server-pcie")
    h100 = gpus().get("h100-sxm5-80gb")
    assert fits_chassis(h100, sxm) and not fits_chassis(h100, pcie)
    assert fits_chassis(gpus().get("rtx-4090"), pcie) and not fits_chassis(
        gpus().get("rtx-4090"), sxm
    )
    assert not any(
        fits_chassis(gpus().get(name), sxm) for name in ("gh200-96gb", "tpu-v5e", "trainium-2")
    )
    assert format_build_id(h100, 8, sxm) == "server-sxm5/8x-h100-sxm5-80gb"
    assert format_build_id(h100, 8, sxm) in build_ids()
