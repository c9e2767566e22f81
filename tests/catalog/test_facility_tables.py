"""The catalog tables for the design of rooms."""

import csv
import datetime
import subprocess
import sys
from pathlib import Path

import pytest

from gpuyard.catalog import machines
from gpuyard.catalog.facility import facility_costs, pdus, plugs, plugs_mate, servers

ROOT = Path(__file__).parents[2]


def test_mating_is_symmetric() -> None:
    for plug in plugs():
        for other in plug.mates:
            assert plugs_mate(other, plug.id), f"{plug.id} and {other}"
            assert plugs().get(other).gender != plug.gender


@pytest.mark.parametrize(
    ("plug", "socket", "mates"),
    [
        ("c14", "c13", True),
        ("c14", "c15", True),
        ("c16", "c13", False),
        ("c20", "c13", False),
        ("nema-5-15p", "nema-5-20r", True),
        ("nema-5-20p", "nema-5-15r", False),
        ("nema-l15-30p", "nema-l21-30r", False),
        ("iec-60309-60a-3p-e-9h-plug", "iec-60309-60a-3p-n-e-6h", False),
    ],
)
def test_which_plugs_mate(plug: str, socket: str, mates: bool) -> None:
    assert plugs_mate(plug, socket) is mates


def test_ratings_differ_by_region() -> None:
    assert (plugs().get("c13").amps("iec"), plugs().get("c13").amps("north-america")) == (10, 15)
    assert (plugs().get("c19").amps("iec"), plugs().get("c19").amps("north-america")) == (16, 20)
    assert plugs().get("nema-l6-30r").amps("iec") == 30, (
        "a NEMA rating applies if there is no other"
    )
    issue = {"5-15", "5-20", "l6-20", "l6-30", "l14-30", "l15-30", "l21-30"}
    assert {f"nema-{name}r" for name in issue} <= set(plugs().ids())


def test_every_pdu_has_outlets_and_a_known_inlet() -> None:
    assert len(pdus()) > 200
    for pdu in pdus():
        assert pdu.inlet is None or plugs().get(pdu.inlet).gender == "plug", pdu.id
        assert pdu.c13 + pdu.c15 + pdu.c19 + pdu.c39 or pdu.other_outlets, pdu.id


def test_the_ap8966_says_that_its_outlets_are_an_estimate() -> None:
    row = pdus().get("apc-ap8966")
    assert row.outlets_basis == "estimate"
    assert "not found" in row.note
    assert plugs().get(row.inlet or "").amps("north-america") == 60


def test_servers_agree_with_the_machines_of_the_same_name() -> None:
    for server in servers():
        assert server.supplies_minimum <= server.supplies_needed <= server.supplies
        assert server.basis == "listed" or "estimate" in server.note, server.id
        if server.id in machines():
            machine = machines().get(server.id)
            assert machine.rack_units in {None, server.rack_units}, server.id
            assert machine.max_watts in {None, server.max_watts}, server.id
        if server.max_watts is not None:
            assert server.supplies_needed * server.supply_watts >= 0.9 * server.max_watts, server.id


def test_every_row_has_a_date() -> None:
    for table in (plugs(), pdus(), servers(), facility_costs()):
        for row in table:
            assert datetime.date(2010, 1, 1) <= row.date <= datetime.date(2027, 1, 1), row.id


def test_the_import_keeps_rows_that_netbox_lacks(tmp_path: Path) -> None:
    """The script is run on a copy of the checkout's layout, so that nothing here changes."""
    script = tmp_path / "scripts" / "import_pdus.py"
    script.parent.mkdir()
    script.write_text((ROOT / "scripts" / "import_pdus.py").read_text())
    target = tmp_path / "src" / "gpuyard" / "catalog" / "data"
    target.mkdir(parents=True)
    source = tmp_path / "netbox.csv"
    source.write_text(
        "# source\n"
        "manufacturer,model,part_number,u_height,inlet_types,inlet_max_w,n_c13,n_c15,n_c19,n_c39,other_outlets\n"
        "APC,AP8886,AP8886,0,iec-60309-3p-n-e-9h,,30,0,12,,\n"
        "APC,SMT1000I,SMT1000I,0,iec-60320-c14,700,8,0,0,,\n"
        "APC,AP7723,AP7723,1,iec-60320-c20;iec-60320-c20,;,8,0,1,,\n"
    )
    subprocess.run([sys.executable, str(script), str(source)], check=True, capture_output=True)
    lines = (target / "pdus.csv").read_text().splitlines()
    kinds = {row["id"]: row["kind"] for row in csv.DictReader(lines)}
    assert kinds == {
        "apc-ap7723": "ats",
        "apc-ap8886": "pdu",
        "apc-ap8966": "pdu",
        "apc-apdu11450me": "pdu",
        "apc-smt1000i": "ups",
        "estimate-400v-63a-0u": "pdu",
        "lenovo-1u-12-32a-wye": "pdu",
        "lenovo-1u-18-48a-wye-ce": "pdu",
        "lenovo-1u-18-48a-wye-etl": "pdu",
    }
    assert "iec-60309-32a-3p-n-e-6h-plug" in (target / "pdus.csv").read_text()
