"""Tests of rack and plug drawings: each is a complete SVG file, and equal designs give equal bytes."""

from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuyard.catalog.facility import plugs
from gpuyard.catalog.specfiles import read_site
from gpuyard.draw.plugs import draw_plug_lines, draw_plug_svg, draw_plugs_svg
from gpuyard.draw.racks import draw_racks_svg
from gpuyard.facilities.bill_of_materials import format_bill_csv, list_bill_items
from gpuyard.facilities.design import FacilityDesign, design_facility
from gpuyard.hardware.clusters import read_cluster

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"


def parse(drawing: str) -> ElementTree.Element:
    return ElementTree.fromstring(drawing)  # noqa: S314 - our own text


@pytest.fixture(scope="module")
def design() -> FacilityDesign:
    return design_facility(
        read_cluster(str(EXAMPLES / "rack.cluster.yaml")),
        read_site(EXAMPLES / "machine-room.site.yaml"),
    )


@pytest.mark.parametrize("name", plugs().ids())
def test_every_plug_has_a_face(name: str) -> None:
    plug = plugs().get(name)
    root = parse(draw_plug_svg(plug))
    assert root.tag.endswith("svg")
    contacts = {"2P+E": 3, "2P+N+E": 4, "3P+E": 4, "3P+N+E": 5}[plug.poles]
    drawn = sum(len(line[1:-1].replace(" ", "")) for line in draw_plug_lines(plug))
    assert drawn >= contacts, "a face may have two earth clips"


def test_the_sheet_names_every_plug() -> None:
    sheet = draw_plugs_svg(list(plugs()))
    parse(sheet)
    for plug in plugs():
        assert plug.name in sheet
    assert sheet == draw_plugs_svg(list(plugs()))


def test_rack_units_are_numbered_on_both_posts(design: FacilityDesign) -> None:
    root = parse(draw_racks_svg(design))
    assert [text.text for text in root.iter("{http://www.w3.org/2000/svg}text")].count("21") == 2


def test_a_rack_shows_its_devices_and_cords(design: FacilityDesign) -> None:
    drawing = draw_racks_svg(design)
    parse(drawing)
    assert drawing.count("server 4, 4 U") == 2, "front and rear"
    assert drawing.count("<path") == len(list(design.cords))
    assert "feed B: 1 × APC AP8966" in drawing
    assert drawing == draw_racks_svg(design)


def test_the_bill_has_all_cords_and_marks_estimates(design: FacilityDesign) -> None:
    items = list_bill_items(design)
    assert sum(i.quantity for i in items if i.part.startswith("power cord")) == 24
    (pdu,) = (i for i in items if i.id == "apc-ap8966")
    assert pdu.quantity == 2
    assert "estimate" in pdu.note
    lines = format_bill_csv(items).splitlines()
    assert lines[0].startswith("quantity,part,id,unit_price_usd,price_date")
    assert len(lines) == len(items) + 1
    for item in items:
        assert (item.unit_price_usd is None) == (item.price_date == ""), "no price without a date"
