"""The table of links."""

import datetime

import pytest

from gpuyard.catalog import links
from gpuyard.errors import UnknownName

NAMES = """
pcie-3-x16 pcie-3-x8 pcie-4-x16 pcie-4-x8 pcie-5-x16 pcie-5-x8 pcie-6-x16 nvlink-1 nvlink-2 nvlink-3
nvlink-4 nvlink-5 qpi-9.6 upi-10.4 upi-16 upi-20 infinity-fabric-2 infinity-fabric-3 ethernet-1g
ethernet-10g ethernet-25g ethernet-40g ethernet-50g ethernet-100g ethernet-200g ethernet-400g
ethernet-800g infiniband-fdr infiniband-edr infiniband-hdr infiniband-ndr infiniband-xdr
"""


def test_the_names_that_other_files_use_exist() -> None:
    assert set(NAMES.split()) <= set(links().ids())


def test_no_link_is_faster_than_its_wire() -> None:
    for link in links():
        assert link.effective_gb_per_second <= link.raw_gb_per_second, link.id


def test_every_row_names_its_source_and_the_basis_of_its_rate() -> None:
    for link in links():
        assert link.source.strip()
        assert datetime.date(2010, 1, 1) <= link.date <= datetime.date(2027, 1, 1), link.id
        if link.basis == "assumed":
            assert link.note, link.id


@pytest.mark.parametrize(
    ("name", "gigabits"),
    [
        ("ethernet-1g", 1),
        ("ethernet-10g", 10),
        ("ethernet-100g", 100),
        ("infiniband-edr", 100),
        ("infiniband-hdr", 200),
        ("infiniband-ndr", 400),
    ],
)
def test_rates_are_bytes_of_one_direction(name: str, gigabits: float) -> None:
    assert links().get(name).raw_bytes_per_second == gigabits * 1e9 / 8


def test_ethernet_speaks_tcp_and_infiniband_rdma() -> None:
    for link in links():
        if link.id.startswith("ethernet-"):
            assert link.protocol == "tcp", link.id
        if link.kind == "infiniband":
            assert link.protocol == "rdma", link.id


def test_fewer_lanes_are_never_faster() -> None:
    for generation in (3, 4, 5, 6):
        whole = links().get(f"pcie-{generation}-x16").effective_bytes_per_second
        half = links().get(f"pcie-{generation}-x8").effective_bytes_per_second
        assert half == pytest.approx(whole / 2)


def test_quantities_come_in_si_units() -> None:
    link = links().get("pcie-3-x16")
    assert link.effective_bytes_per_second == 12e9
    assert link.latency_seconds == pytest.approx(1e-6)


def test_an_unknown_name_brings_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'infiniband-edr'"):
        links().get("infiniband-ed")
