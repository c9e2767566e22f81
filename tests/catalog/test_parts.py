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
    ("box", "gpu", "count", "usd"),
    [
        ("workstation-2", "rtx-2080-ti", 4, 8000),  # the founding project's machine
        ("workstation-4", "rtx-2080-ti", 4, 12472),  # Lambda Quad
        ("server-pcie", "rtx-2080-ti", 8, 28389),  # Lambda Blade
        ("server-sxm", "v100-sxm2-32gb", 8, 109008),  # Lambda Hyperplane
    ],
)
def test_founding_machines_come_out_at_their_price(
    box: str, gpu: str, count: int, usd: float
) -> None:
    assert chassis().get(box).usd + count * gpu_prices().get(gpu).usd == usd


def test_a_price_says_whether_it_is_of_the_launch_and_of_which_day() -> None:
    old = gpu_prices().get("rtx-3080")
    assert (old.usd, old.basis, old.date.isoformat()) == (699, "launch", "2020-09-01")
    assert gpu_prices().get("h100-sxm5-80gb").basis == "street"
    for price in gpu_prices():
        if price.basis == "launch":
            assert abs(price.date.year - gpus().get(price.id).released) <= 1, price.id


def test_gpus_go_only_where_they_fit() -> None:
    sxm, pcie = chassis().get("server-sxm"), chassis().get("server-pcie")
    h100 = gpus().get("h100-sxm5-80gb")
    assert fits_chassis(h100, sxm) and not fits_chassis(h100, pcie)
    assert fits_chassis(gpus().get("rtx-4090"), pcie) and not fits_chassis(
        gpus().get("rtx-4090"), sxm
    )
    assert not any(
        fits_chassis(gpus().get(name), sxm) for name in ("gh200-96gb", "tpu-v5e", "trainium-2")
    )
    assert format_build_id(h100, 8, sxm) == "server-sxm/8x-h100-sxm5-80gb"
    assert format_build_id(h100, 8, sxm) in build_ids()
