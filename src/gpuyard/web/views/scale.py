"""Scale: move GPUs, batch, network, precision, remedy, and layout; throughput, memory, step, and choke follow at once."""

import math
import re
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

from gpuyard.api.inputs import PRECISIONS
from gpuyard.catalog.hardware import gpus, machines
from gpuyard.catalog.models import models
from gpuyard.catalog.transformers import transformers
from gpuyard.specs.parallel import Recompute
from gpuyard.web.auth import Identity
from gpuyard.web.inputs import MAX_PASTED, check_cluster, choose_workload, private_data
from gpuyard.web.page import Computed, format_options, render_answer, render_json
from gpuyard.web.work_limit import heavy

if TYPE_CHECKING:
    from gpuyard.api.result import Result

router = APIRouter()
_DEFAULT = "default"
_STRATEGIES = ("", "ddp", "dataparallel", "horovod", "parameter-server", "fsdp", "megatron", "auto")
_COMPRESSIONS = ("", "fp16", "bf16", "powersgd:1", "powersgd:2", "powersgd:4")
_MACHINES = (1, 2, 4, 8, 16, 32, 64, 128)
_PER_MACHINE = (1, 2, 4, 8, 16)
_NETWORKS = (1, 10, 25, 50, 100, 200, 400, 800)
_PORTS = (1, 2, 4, 8)
_MIN_RDMA = 25
"""The slowest RoCE link of the catalog, in Gbit/s."""
_BATCHES = (_DEFAULT, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_FOUNDING: tuple[tuple[str, dict[str, Any]], ...] = (
    ("Digits, linear, 4 × GTX 1080 Ti", {"workload": "spoken-digits-linear", "gpu": "gtx-1080-ti", "machines": 1, "per_machine": 4, "strategy": "dataparallel"}),
    ("Digits, conv, the same", {"workload": "spoken-digits-conv", "gpu": "gtx-1080-ti", "machines": 1, "per_machine": 4, "strategy": "dataparallel"}),
    ("ResNet-50, Apollo 6500", {"workload": "resnet50", "cluster": "4xhpe-apollo-6500-gen10", "strategy": "horovod"}),
    ("1 against 10 Gbit/s", {"workload": "resnet50", "cluster": "10x1xgtx-1080-ti@1G", "compare": "10x1xgtx-1080-ti@10G", "strategy": "horovod"}),
)  # fmt: skip
"""The founding comparisons; docs/founding.md has their published figures."""


class ScaleQuery(BaseModel):
    """The parameters of the view."""

    workload: Annotated[str, Field(max_length=80, description="catalog model")] = "resnet50"
    spec: Annotated[
        str, Field(max_length=MAX_PASTED, description="workload spec or config.json instead")
    ] = ""
    gpu: Annotated[str, Field(max_length=60)] = "a100-sxm4-80gb"
    machines: Annotated[int, Field(ge=1, le=1024)] = 2
    per_machine: Annotated[int, Field(ge=1, le=16)] = 8
    network: Annotated[int, Field(ge=1, le=3200, description="Gbit/s of a port")] = 100
    ports: Annotated[int, Field(ge=1, le=64, description="network ports of a machine")] = 1
    protocol: Annotated[
        Literal["tcp", "rdma"], Field(description=f"rdma is used from {_MIN_RDMA} Gbit/s on")
    ] = "tcp"
    cluster: Annotated[str, Field(max_length=80, description="short form instead")] = ""
    compare: Annotated[str, Field(max_length=80, description="second cluster")] = ""
    batch: Annotated[str, Field(max_length=40, pattern=r"^(default|[0-9,.\- ]*)$")] = _DEFAULT
    precision: Annotated[str, Field(max_length=10)] = ""
    strategy: Annotated[str, Field(max_length=20)] = ""
    compress: Annotated[str, Field(max_length=20)] = ""
    accumulate: Annotated[int, Field(ge=1, le=1024)] = 1
    local_sgd: Annotated[int, Field(ge=1, le=1024)] = 1
    hierarchical: bool = False
    layout: Annotated[str, Field(max_length=80)] = ""
    micro_batch: Annotated[str, Field(max_length=5, pattern=r"^[0-9]*$")] = ""
    global_batch: Annotated[str, Field(max_length=7, pattern=r"^[0-9]*$")] = ""
    sequence: Annotated[str, Field(max_length=7, pattern=r"^[0-9]*$")] = ""
    recompute: Annotated[str, Field(max_length=20)] = ""

    @property
    def clusters(self) -> list[str]:
        """The clusters to predict, as the command line writes them."""
        is_rdma = self.protocol == "rdma" and self.network >= _MIN_RDMA
        port = f"roce-{self.network}g" if is_rdma else f"{self.network}G"
        # with the number of ports, because a rate alone may mean the ports that such a machine usually has
        network = "" if self.machines == 1 else f"@{self.ports}x{port}"
        short = f"{self.machines}x{self.per_machine}x{self.gpu}{network}"
        first = check_cluster(self.cluster) if self.cluster.strip() else check_cluster(short)
        return [first, *([check_cluster(self.compare)] if self.compare.strip() else [])]

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from the defaults of `gpuyard predict`."""
        values: dict[str, Any] = {
            "batch": "" if self.batch == _DEFAULT else self.batch.strip(),
            "precision": self.precision,
            "strategy": self.strategy,
            "compress": self.compress,
            "accumulate": self.accumulate if self.accumulate > 1 else None,
            "local_sgd": self.local_sgd if self.local_sgd > 1 else None,
            "hierarchical": self.hierarchical or None,
            "layout": self.layout.strip(),
            "micro_batch": int(self.micro_batch or 0),
            "global_batch": int(self.global_batch or 0),
            "sequence": int(self.sequence or 0),
            "recompute": self.recompute,
        }
        return {name: value for name, value in values.items() if value}


def predict_view(query: ScaleQuery, identity: Identity) -> "tuple[Result[Any], Computed]":
    """Return the prediction as `gpuyard predict` gives it."""
    from gpuyard.api.predict import predict

    workload = choose_workload(query.workload, query.spec)
    clusters, options = query.clusters, query.options

    def compute() -> "Result[Any]":
        private = private_data(identity.is_own)
        return predict(workload, on=clusters, chart=True, **options, **private)

    if any(map(_is_large, clusters)):
        result = heavy.run(("scale", identity.is_own, query.model_dump_json()), compute)
    else:
        result = compute()
    words = ["predict", query.workload if isinstance(workload, str) else "pasted.workload.yaml"]
    for cluster in clusters:
        words += ["--on", cluster]
    words += format_options(options)
    notes = (
        "Add --why for the reasons and remedies of one configuration. The intervals hold 90% of published measurements.",
    )
    return result, Computed(words, notes, "docs/predict.md")


def _is_large(cluster: str) -> bool:
    """Return whether a cluster has more GPUs than the sliders allow; a few of these are predicted at a time."""
    return math.prod(map(int, re.findall(r"(\d{1,9})x", cluster))) > _MACHINES[-1] * 8


def _group_workloads() -> list[tuple[str, str, list[str]]]:
    """Return the kind, the title, and the names of workloads: only some can be divided among GPUs, and some must be."""
    whole, divided = models().ids(), transformers().ids()
    groups = (
        ("copies", "A copy on each GPU", [name for name in whole if name not in divided]),
        ("either", "Copies or divided", [name for name in whole if name in divided]),
        ("large", "Large models", [name for name in divided if name not in whole]),
    )
    return [group for group in groups if group[2]]


@cache
def _choices() -> dict[str, Any]:
    return {
        "address": "/scale",
        "workloads": _group_workloads(),
        "gpus": list(gpus().ids()),
        "machine_names": list(machines().ids()),
        "machine_counts": _MACHINES,
        "gpu_counts": _PER_MACHINE,
        "networks": _NETWORKS,
        "ports": _PORTS,
        "protocols": [("tcp", "TCP"), ("rdma", f"RDMA (RoCE, from {_MIN_RDMA} Gbit/s)")],
        "batches": _BATCHES,
        "precisions": ("", *PRECISIONS),
        "strategies": _STRATEGIES,
        "compressions": _COMPRESSIONS,
        "recomputes": ("", *get_args(Recompute)),
        "founding": [(label, f"/scale?{urlencode(values)}") for label, values in _FOUNDING],
    }


@router.get("/scale", include_in_schema=False)
def show_scale(request: Request, query: Annotated[ScaleQuery, Query()]) -> Response:
    result, computed = predict_view(query, request.state.identity)
    return render_answer(
        request,
        "scale.html.jinja",
        result.answer,
        computed,
        view="scale",
        query=query,
        **_choices(),
    )


@router.get("/scale.json", summary="Throughput, efficiency, memory, and choke of a workload")
def get_scale(request: Request, query: Annotated[ScaleQuery, Query()]) -> Response:
    """Return what `gpuyard predict --json` prints."""
    return render_json(predict_view(query, request.state.identity)[0].answer.document)
