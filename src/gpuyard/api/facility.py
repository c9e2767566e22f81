"""Design the room for a cluster: power, racks, cords, cooling, switches, cables, and parts."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.api.inputs import apply_power_cap, read_cluster
from gpuyard.api.parameters import name_parameters
from gpuyard.api.result import Result, Row, wrap
from gpuyard.catalog.specfiles import read_site
from gpuyard.draw.racks import draw_racks_svg
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.facilities.bill_of_materials import format_bill_csv, list_bill_items
from gpuyard.facilities.design import FacilityDesign
from gpuyard.facilities.refusal import can_house, design_or_advise
from gpuyard.hardware.clusters import resolve_machine
from gpuyard.predictor.power import PowerCap, list_caps
from gpuyard.report.answer import Answer, Bullets, Part, Sentence
from gpuyard.report.answers.facility.room import room_answer, room_page
from gpuyard.report.html import render_page

if TYPE_CHECKING:
    from gpuyard.specs import Cluster
    from gpuyard.specs.site import Site


class Room(Result[Row]):
    """A designed room. Its rows are the racks."""

    fits = True

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
        return render_page(self.page_answer())

    def page_answer(self) -> Answer:
        """Return the whole design with its drawings, as the page shows it."""
        return replace(room_page(self._design), document=self.answer.document)


class RefusedRoom(Result[Row]):
    """A site that cannot house the cluster; `reasons` says what it lacks, and with which changes all would fit."""

    fits = False

    def __init__(self, refusal: str) -> None:
        first, *rest = (line.strip() for line in name_parameters(refusal).split("\n"))
        parts: list[Part] = [Sentence(first, "bad"), *([Bullets(rest)] if rest else [])]
        super().__init__(
            Answer(parts, {"fits": False, "reasons": rest or [first]}, verb="facility")
        )


def facility(
    cluster: "str | Path | Cluster",
    *,
    site: "str | Path | Site | None" = None,
    country: str | None = None,
    power_cap: str | float | None = None,
) -> Room | RefusedRoom:
    """Design the room for a cluster file or a short form like "4xdgx-h100", in a site with its limits.

    If the site cannot house it, `fits` is false and `reasons` says why. `power_cap` limits the power of each GPU, like
    "300 W".
    """
    try:
        return design_room(cluster, site=site, country=country, power_cap=power_cap)
    except UserMistake:
        raise
    except GpuyardError as refusal:
        if site is None:
            raise
        return RefusedRoom(str(refusal))


def design_room(
    cluster: "str | Path | Cluster",
    *,
    site: "str | Path | Site | None" = None,
    country: str | None = None,
    power_cap: str | float | None = None,
) -> Room:
    """Design the room, or raise GpuyardError with what the site lacks.

    Without a power cap, the error names one with which all machines fit, and what it costs.
    """
    from gpuyard.catalog.electricity import find_place_code

    spec = apply_power_cap(read_cluster(cluster), power_cap)
    site_spec = read_site(Path(site)) if isinstance(site, str | Path) else site
    place = None if country is None else find_place_code(country)
    try:
        return Room(design_or_advise(spec, site_spec, place), spec.note)
    except GpuyardError as error:
        advice = _find_fitting_cap(spec, site_spec) if site_spec is not None else ""
        if isinstance(error, UserMistake) or not advice:
            raise
        raise GpuyardError(f"{error}\n  {advice}") from None


def _find_fitting_cap(cluster: "Cluster", site: "Site") -> str:
    """Return a sentence about the highest power cap with which all machines fit; empty if there is none."""
    if cluster.power_cap is not None:
        return ""
    gpu, _ = resolve_machine(cluster)
    caps = list_caps(gpu.id)  # from high to low: the first that fits is the best

    def fits(cap: PowerCap) -> bool:
        return can_house(cluster.model_copy(update={"power_cap": cap.watts}), site)

    first, last = 0, len(caps) - 1
    if not caps or not fits(caps[last]):
        return ""
    while first < last:
        middle = (first + last) // 2
        first, last = (first, middle) if fits(caps[middle]) else (middle + 1, last)
    best = caps[first]
    fit = (
        "it fits and loses" if cluster.nodes == 1 else f"all {cluster.nodes} machines fit and lose"
    )
    return (
        f"with {best.watts:g} W per GPU, {fit} {1 - best.speed:.0%} of the GPUs' speed "
        f"({1 - best.high:.0%} to {1 - best.low:.0%}): add --power-cap {best.watts:g}W"
    )
