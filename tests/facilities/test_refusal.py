"""A refused room says how many machines fit and what would make all fit; following the advice makes them fit."""

import pytest

from gpuyard.catalog.facility import pdus
from gpuyard.errors import GpuyardError
from gpuyard.facilities.design import design_facility
from gpuyard.facilities.refusal import count_housable, design_or_advise, find_changes
from gpuyard.hardware.clusters import read_cluster
from gpuyard.specs.site import Site


def _site(circuit: dict[str, object], **keys: object) -> Site:
    return Site.model_validate(
        {"name": "Room", "kind": "room", "feeds": 2, "circuits": [circuit], **keys}
    )


US_208 = {"voltage": "208 V", "amps": "30 A", "phases": 3, "receptacle": "nema-l21-30r", "count": 4}
RED = {"phases": 3, "receptacle": "iec-60309-60a-3p-n-e-6h"}
RED_32 = {"phases": 3, "receptacle": "iec-60309-32a-3p-n-e-6h"}


@pytest.mark.parametrize(
    ("country", "circuit", "line_amps"),
    [
        ("US", {"voltage": "415 V", "amps": "60 A", **RED}, 48),
        ("US", {"voltage": "415 V", "amps": "30 A", **RED_32}, 24),
        ("DE", {"voltage": "400 V", "amps": "32 A", **RED_32}, 32),
        ("DE", {"voltage": "400 V", "amps": "63 A", **RED}, 63),
    ],
)
def test_four_dgx_h100_fit_on_strong_circuits(
    country: str, circuit: dict[str, object], line_amps: float
) -> None:
    site = _site(circuit, country=country, rack={"power": "25 kW"})
    design = design_facility(read_cluster("4xdgx-h100"), site)
    assert design.pdu_choice.pdus[0].usable_line_amps == line_amps
    model = design.pdu_choice.model
    assert model is not None and model.region in {None, design.rules.region}


def test_the_maker_of_a_pdu_may_allow_less_than_its_plug() -> None:
    circuit = {"voltage": "400 V", "amps": "63 A", **RED}
    site = _site(circuit, country="DE", pdu="lenovo-1u-18-48a-wye-ce", rack={"power": "15 kW"})
    design = design_facility(read_cluster("2xdgx-h100"), site)
    assert design.pdu_choice.pdus[0].usable_line_amps == 48


def test_estimated_units_say_so() -> None:
    unit = pdus().get("estimate-400v-63a-0u")
    assert unit.outlets_basis == "estimate" and "estimate" in unit.name


def test_refusal_counts_machines_and_names_the_changes() -> None:
    with pytest.raises(GpuyardError) as refusal:
        design_or_advise(read_cluster("4xdgx-h100"), _site(US_208))
    message = str(refusal.value)
    assert "house none of the 4" in message
    assert "415 V and 60 A" in message
    assert "15 kW, not 10 kW" in message


def test_changes_are_what_is_missing_and_no_more() -> None:
    cluster = read_cluster("8xsupermicro-4029gp-trt")
    roomy = {"voltage": "208 V", "amps": "60 A", "phases": 3, "receptacle": "iec-60309-60a-3p-e-9h"}
    site = _site({**roomy, "count": 2}, rack={"power": "17 kW", "count": 1}, cooling_power="40 kW")
    assert count_housable(cluster, site) == 4
    (racks, circuits) = find_changes(cluster, site)
    assert "2 racks, not 1" in racks
    assert "2 circuits of 208 V" in circuits
    more = _site({**roomy, "count": 4}, rack={"power": "17 kW", "count": 2}, cooling_power="40 kW")
    assert design_facility(cluster, more).room.floor.racks == 2


def test_one_machine_is_not_counted() -> None:
    with pytest.raises(GpuyardError) as refusal:
        design_or_advise(read_cluster("dgx-h100"), _site(US_208))
    assert "it would fit with" in str(refusal.value)
    assert "of the 1" not in str(refusal.value)
