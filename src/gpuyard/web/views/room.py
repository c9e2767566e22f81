"""Room: racks, fabric, power by phase, plugs, and the bill of materials for a cluster."""

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gpuyard.catalog.hardware import machines
from gpuyard.web.inputs import MAX_PASTED, check_cluster, parse_pasted_site
from gpuyard.web.page import Computed, is_fragment, render, render_json
from gpuyard.web.work_limit import heavy

if TYPE_CHECKING:
    from gpuyard.api.facility import Room

router = APIRouter()
_DEFAULT = "default"
_MAX_SLIDER_NODES = 64
"""Larger rooms take seconds; a few are designed at a time."""


class RoomQuery(BaseModel):
    """The parameters of the view."""

    machine: Annotated[str, Field(max_length=80, description="catalog machine")] = "dgx-h100"
    nodes: Annotated[int, Field(ge=1, le=1024)] = 4
    network: Annotated[str, Field(max_length=8, pattern=r"^(default|[0-9]*)$")] = _DEFAULT
    country: Annotated[str, Field(max_length=60)] = ""
    site: Annotated[str, Field(max_length=MAX_PASTED, description="site spec")] = ""


def design_room(query: RoomQuery) -> "tuple[Room, Computed]":
    """Return the room as `gpuyard facility` designs it."""
    from gpuyard.api.facility import design_room as design_in_site

    network = "" if query.network in ("", _DEFAULT) else f"@{query.network}G"
    cluster = check_cluster(f"{query.nodes}x{query.machine}{network}")
    site, country = parse_pasted_site(query.site), query.country.strip() or None
    words = ["facility", cluster]
    words += ["--site", "pasted.site.yaml"] if site else []
    words += ["--country", country] if country else []
    notes = ("Every value has its source in the catalog. A licensed electrician decides.",)

    def design() -> "Room":
        return design_in_site(cluster, site=site, country=country)

    is_large = query.nodes > _MAX_SLIDER_NODES
    room = heavy.run(("room", *query.model_dump().values()), design) if is_large else design()
    return room, Computed(words, notes, "docs/facility.md")


def _list_racks(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the racks with their cords."""
    return [
        {**rack, "cords": [cord for cord in document["cords"] if cord["rack"] == rack["number"]]}
        for rack in document["racks"]
    ]


@router.get("/room", include_in_schema=False)
def show_room(request: Request, query: Annotated[RoomQuery, Query()]) -> Response:
    room, computed = design_room(query)
    answer = room.page_answer()
    return render(
        request,
        "room_result.html.jinja" if is_fragment(request) else "room.html.jinja",
        view="room",
        title=answer.title,
        answer=answer,
        computed=computed,
        query=query,
        racks=_list_racks(room.to_dict()),
        address="/room",
        machines=list(machines().ids()),
        bill_url=f"/room/bill.csv?{urlencode(query.model_dump())}",
    )


@router.get("/room.json", summary="Racks, power, network, and bill of materials of a cluster")
def get_room(query: Annotated[RoomQuery, Query()]) -> Response:
    """Return what `gpuyard facility --json` prints."""
    return render_json(design_room(query)[0].answer.document)


@router.get("/room/bill.csv", summary="Bill of materials", response_class=Response)
def get_bill(query: Annotated[RoomQuery, Query()]) -> Response:
    """Return the bill of materials as CSV."""
    headers = {"Content-Disposition": 'attachment; filename="bill-of-materials.csv"'}
    return Response(design_room(query)[0].bill_csv(), media_type="text/csv", headers=headers)
