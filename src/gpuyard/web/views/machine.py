"""Machine: how the GPUs of a machine are connected, the bandwidth between them, and the best and worst placements."""

from typing import TYPE_CHECKING, Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gpuyard.catalog.hardware import gpus, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware import PRESETS
from gpuyard.web.inputs import MAX_PASTED, check_cluster, check_length
from gpuyard.web.page import Computed, render_answer, render_json

if TYPE_CHECKING:
    from gpuyard.api.result import Result

router = APIRouter()
_DEFAULT = "default"


class MachineQuery(BaseModel):
    """The parameters of the view."""

    machine: Annotated[str, Field(max_length=80, description="catalog machine")] = "dgx-a100"
    preset: Annotated[str, Field(max_length=40, description="topology instead")] = ""
    gpu: Annotated[str, Field(max_length=60)] = ""
    gpus: Annotated[str, Field(max_length=8, pattern=r"^(default|[0-9]*)$")] = _DEFAULT
    matrix: Annotated[
        str, Field(max_length=MAX_PASTED, description="output of nvidia-smi topo -m instead")
    ] = ""


def draw_machine(query: MachineQuery) -> "tuple[Result[Any], Computed]":
    """Return the drawing and the figures as `gpuyard topo` gives them."""
    from gpuyard.api.topology import topology

    gpu = query.gpu or None
    if query.matrix.strip():
        check_length(query.matrix)
        result = topology(text=query.matrix.replace("\r\n", "\n"), gpu=gpu)
        words = ["topo", "--from", "topology.txt"]
    elif query.preset:
        count = None if query.gpus in ("", _DEFAULT) else int(query.gpus)
        result = topology(query.preset, gpu=gpu, gpus=count)
        words = ["topo", "--preset", query.preset]
        words += ["--gpus", str(count)] if count else []
    else:
        name = check_cluster(query.machine)
        if gpu is not None:
            raise UserMistake(
                "a machine has its own GPUs; choose a GPU with a topology or a pasted matrix"
            )
        result = topology(on=name)
        words = ["topo", "--on", name]
    words += ["--gpu", gpu] if gpu else []
    notes = (
        "The numbers between two GPUs are the bandwidth of the narrowest link on their path; a placement is rated by the "
        "all-reduce over its ring.",
    )
    return result, Computed(words, notes, "docs/topology.md")


@router.get("/machine", include_in_schema=False)
def show_machine(request: Request, query: Annotated[MachineQuery, Query()]) -> Response:
    result, computed = draw_machine(query)
    return render_answer(
        request,
        "machine.html.jinja",
        result.answer,
        computed,
        view="machine",
        query=query,
        address="/machine",
        machines=list(machines().ids()),
        presets=list(PRESETS),
        gpus=list(gpus().ids()),
    )


@router.get("/machine.json", summary="Topology, bandwidth, and placements of a machine")
def get_machine(query: Annotated[MachineQuery, Query()]) -> Response:
    """Return what `gpuyard topo --json` prints."""
    return render_json(draw_machine(query)[0].answer.document)
