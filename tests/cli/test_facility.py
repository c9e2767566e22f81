"""`gpuyard facility` and `gpuyard facility plugs` on the command line."""

import csv
import io
import json
from pathlib import Path

import pytest

from tests.conftest import Cli

ROOM = ("examples/rack.cluster.yaml", "--site", "examples/machine-room.site.yaml")


def test_bare_file_runs_design(cli: Cli) -> None:
    assert cli("facility", *ROOM).stdout == cli("facility", "design", *ROOM).stdout
    assert "17.3" in cli("facility", *ROOM).stdout


def test_json_has_the_fixed_shape(cli: Cli) -> None:
    document = json.loads(cli("facility", *ROOM, "--json").stdout)
    assert document["power"]["usable_va_per_circuit"] == pytest.approx(17_293, abs=1)
    (rack,) = document["racks"]
    assert [pdu["feed"] for pdu in rack["pdus"]] == ["A", "B"]
    for pdu in rack["pdus"]:
        assert max(pdu["line_amps"]) <= pdu["usable_line_amps"]
        for amps, usable in zip(pdu["bank_amps"], pdu["usable_bank_amps"], strict=True):
            assert amps <= usable + 1e-6
    assert {cord["plug"] for cord in document["cords"]} == {"c14", "c20"}
    assert document["network"]["switches"]["leaf"] == 1
    assert document["network"]["storage"]["ports"]["hosts"] == 4 + 2
    assert document["network"]["management"]["ports"]["hosts"] == 2 * 5 + 2
    assert [loss["full_speed"] for loss in rack["feed_losses"]] == [8, 8]
    assert [cost["way"] for cost in document["costs"]] == ["colocation", "on premises"]


def test_csv_svg_and_html_go_to_stdout_or_a_file(cli: Cli, tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(cli("facility", *ROOM, "--csv").stdout)))
    assert {"apc-ap8966", "supermicro-4029gp-trt"} <= {row["id"] for row in rows}
    assert cli("facility", *ROOM, "--svg").stdout.startswith("<svg")
    page, parts = tmp_path / "room.html", tmp_path / "parts.csv"
    tables = cli("facility", *ROOM, "--html", str(page), "--csv", str(parts)).stdout
    assert "PDU loads" in tables and "<html" not in tables
    text = page.read_text()
    assert parts.read_text().startswith("quantity,part")
    for heading in ("For the electrician", "For the colocation provider", "Bill of materials"):
        assert heading in text
    assert "<script" not in text


def test_site_that_is_too_small_exits_with_1(cli: Cli) -> None:
    done = cli("facility", "dgx-h100", "--site", "examples/office.site.yaml", status=1)
    assert "5.2 kW short" in done.stderr
    assert done.stdout == ""


def test_storage_reports_the_purpose_of_the_capacity(cli: Cli) -> None:
    storage = ("facility", "storage", "resnet50", "--on", "dgx-h100", "--batch", "400")
    output = " ".join(cli(*storage).stdout.split())
    assert "no dataset" in output
    assert "the dataset of" not in output
    stderr = cli(*storage, "--checkpoint-time", "0 s", status=2).stderr
    assert "--checkpoint-time" in stderr and "0 s" in stderr


def test_mistakes_name_the_key_and_the_closest_name(cli: Cli, tmp_path: Path) -> None:
    stderr = cli("facility", *ROOM, "--csv", "--json", status=2).stderr
    assert "--csv and --json" in stderr
    path = tmp_path / "bad.site.yaml"
    path.write_text(
        "name: x\nkind: room\nfeeds: 2\ncircuits:\n"
        "  - {voltage: 208, amps: 60 A, receptacle: nema-l6-30}\npdu: apc-ap896\n"
    )
    stderr = cli("facility", "dgx-h100", "--site", str(path), status=2).stderr
    assert "circuits[0].voltage: '208' has no unit" in stderr
    assert "no plug is called 'nema-l6-30'" in stderr
    assert "'apc-ap8965' or 'apc-ap8966'" in stderr
    path.write_text("name: x\nkind: room\ncircuits: []\n")
    stderr = cli("facility", "dgx-h100", "--site", str(path), status=2).stderr
    assert "circuits: must have at least 1 item" in stderr


def test_plugs_show_their_faces(cli: Cli) -> None:
    assert "NEMA L21-30 receptacle" in cli("facility", "plugs").stdout
    (plug,) = [json.loads(cli("facility", "plugs", "c13", "--json").stdout)]
    assert (plug["amps_iec"], plug["amps_north_america"]) == (10, 15)
    assert plug["svg"].startswith("<svg")
    assert cli("facility", "plugs", "--svg").stdout.startswith("<svg")
    assert cli("facility", "plugs", "--svg", "c13").stdout == plug["svg"]
    assert cli("facility", "plugs", "--html").stdout.count("<svg") == 44
