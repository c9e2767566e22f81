"""Design the room for a cluster: power, racks, cords, cooling, switches, cables, and parts."""

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import read_cluster
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog.specfiles import read_site
from gpuyard.draw.racks import draw_racks_svg
from gpuyard.facilities.bill_of_materials import format_bill_csv, list_bill_items
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.refusal import design_or_advise
from gpuyard.report.answers.facility.room import room_answer, room_page
from gpuyard.report.html import render_page

if TYPE_CHECKING:
    from gpuyard.specs import Cluster
    from gpuyard.specs.site import Site


class Room(Result[Row]):
    """A designed room. Its rows are the racks."""

    def __init__(self, design: FacilityDesign, note: str = "") -> None:
        answer = room_answer(design, note)
        super().__init__(
            answer, wrap(answer.document["racks"]), draw=lambda: draw_racks_svg(design)
        )
        self._design = design

    def bill_csv(self) -> str:
        """Return the bill of materials as CSV."""
        return format_bill_csv(list_bill_items(self._design))

    def page(self) -> str:
        """Return the whole design as an HTML page."""
        return render_page(room_page(self._design))


def facility(
    cluster: "str | Path | Cluster",
    *,
    site: "str | Path | Site | None" = None,
    country: str | None = None,
) -> Room:
    """Design the room for a cluster file or a short form like "4xdgx-h100", in a site with its limits."""
    from gpuyard.catalog.electricity import find_place_code

    spec = read_cluster(cluster)
    site_spec = read_site(Path(site)) if isinstance(site, str | Path) else site
    place = None if country is None else find_place_code(country)
    return Room(design_or_advise(spec, site_spec, place), spec.note)
