"""Published measurements of training, each row as a workload on a cluster, with its anchor: the smallest
system of its own series, which is one GPU wherever one GPU was published.

`scripts/import_published.py` writes the data files; `sources.toml` beside them says where each table
is from, what was added to it, and what nobody knows about it.
"""

import csv
import datetime
import functools
import tomllib
from collections import Counter
from importlib import resources
from typing import Any, get_args

from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.published_rows import (
    AllReduceRow,
    Anchor,
    Machines,
    PublishedFigure,
    PublishedRow,
    PublishedSource,
    PublishedStrategy,
    PublishedTable,
    SingleGpuRow,
)
from gpuyard.catalog.tables import FactTable
from gpuyard.errors import UnknownName
from gpuyard.specs import Network, Precision, Topology

# samples of these differ in size from step to step, so that workers wait for each other: images of
# several scales and numbers of objects, utterances of any length
VARIABLE_INPUTS = frozenset({"mask-rcnn", "yolov3", "deepspeech2", "tacotron2"})
# constants, intervals and how likely software stacks are: all is fitted to these
TRAINING_TABLES = (
    "tf_benchmarks_2017",
    "pollux_t4",
    "lambda",
    "mlperf",
    "horovod",
    "dlperf",
    "nvidia_examples",
)
# intervals and how likely stacks are is sized with these too; no constant is fitted to them
SIZING_TABLES = (
    "paddle",
    "csc",
    "azure",
    "mxnet",
    "mlperf_logs",
    "cscs",
    "hpcdiy",
    "pytorch_ddp",
    "users",
)
# in no fit, neither of constants nor of intervals nor of stacks: what these say of predictions is blind
JUDGE_TABLES = (
    "ray",
    "paik",
    "flagperf",
    "eks",
    "liaw",
    "kempner",
    "baskerville",
    "marenostrum",
    "hal",
    "nersc",
    "moyix",
    "rossum",
)
LAB_TABLE = "lab"  # our own sweeps over emulated links; no constant is fitted to it


@functools.cache
def published_sources() -> dict[str, PublishedSource]:
    tables = tomllib.loads(_text("sources.toml"))
    return {name: PublishedSource(table=name, **fields) for name, fields in tables.items()}


@functools.cache
def published(table: str) -> PublishedTable:
    """One training table; `UnknownName` with the closest one where there is none."""
    known = (*TRAINING_TABLES, *SIZING_TABLES, *JUDGE_TABLES, LAB_TABLE)
    if table not in known:
        raise UnknownName("published table", table, known)
    skipped: Counter[str] = Counter()
    series: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cells in _rows(f"{table}.csv"):
        if cells.get("skip"):
            skipped[cells["skip"]] += 1
            continue
        key = (cells["series"], cells["model"], cells["precision"], cells["strategy"])
        series.setdefault(key, []).append(cells)
    rows: list[PublishedRow] = []
    anchors = 0
    for members in series.values():
        found, used, alone = _predictable(table, members)
        rows += found
        anchors += used
        if alone:
            skipped["its batch has no smaller system to be predicted from"] += alone
    source = published_sources()[table]
    return PublishedTable(source, tuple(rows), anchors, tuple(skipped.most_common()))


def _predictable(table: str, members: list[dict[str, str]]) -> tuple[list[PublishedRow], int, int]:
    """The rows of a series that are larger than its anchors; how many anchors; how many can't be."""
    least = min(int(cells["gpus"]) for cells in members)
    smallest = [_anchor(cells) for cells in members if int(cells["gpus"]) == least]
    rows: list[PublishedRow] = []
    alone = 0
    for cells in members:
        if int(cells["gpus"]) == least:
            continue
        batch = float(cells["batch"])
        same = [a.step_seconds for a in smallest if a.batch_per_gpu == batch]
        if same:  # figures of one batch are averaged: sweeps were run twice
            rate = least * batch * len(same) / sum(same)
            passes = max(a.accumulate for a in smallest if a.batch_per_gpu == batch)
            anchor = Anchor(smallest[0].nodes, least, batch, rate, passes)
        elif table.startswith("mlperf"):  # the batch of a GPU shrinks as the system grows
            anchor = min(smallest, key=lambda a: abs(a.batch_per_gpu - batch))
        else:
            alone += 1
            continue
        rows.append(_row(table, cells, anchor))
    return rows, len(smallest), alone


def _anchor(cells: dict[str, str]) -> Anchor:
    rate = float(cells["samples_per_second"])
    passes = int(cells.get("accumulate") or 1)
    return Anchor(int(cells["nodes"]), int(cells["gpus"]), float(cells["batch"]), rate, passes)


def _row(table: str, cells: dict[str, str], anchor: Anchor) -> PublishedRow:
    return PublishedRow(
        table=table,
        source=cells.get("source") or "our lab",
        series=cells["series"],
        model=cells["model"],
        machines=_machines(
            cells["gpu"], cells["topology"], cells["peer"], cells.get("network", "")
        ),
        nodes=int(cells["nodes"]),
        gpus=int(cells["gpus"]),
        batch_per_gpu=float(cells["batch"]),
        precision=_one_of(Precision, cells["precision"]),
        gradient_bits=int(cells["gradient_bits"]),
        strategy=_one_of(PublishedStrategy, cells["strategy"]),
        samples_per_second=float(cells["samples_per_second"]),
        anchor=anchor,
        framework=cells.get("framework", ""),
        accumulate=int(cells.get("accumulate") or 1),
        input_workers=int(cells["input_workers"]) if cells.get("input_workers") else None,
    )


@functools.cache
def _machines(gpu: str, topology: str, peer: str, network: str) -> Machines:
    return Machines(gpu, _one_of(Topology, topology), peer == "1", _network(network))


def _network(text: str) -> Network | None:
    """`tcp 50 1 5 16`: protocol, Gbit/s of a port, ports a machine, Gbit/s that one flow gets, flows (one, if left out)."""
    if not text:
        return None
    protocol, rate, rails, *flow = text.split()
    described = {"rate": f"{rate} Gbit/s", "rails": rails, "protocol": protocol}
    if flow:
        described |= {"per_flow": f"{flow[0]} Gbit/s", "flows": (*flow, "1")[1]}
    return Network.model_validate(described)


@functools.cache
def single_gpu_rows() -> tuple[SingleGpuRow, ...]:
    """Every published throughput of one GPU whose model has a full profile."""
    return tuple(
        SingleGpuRow(
            table,
            cells["series"],
            cells["model"],
            cells["gpu"],
            float(cells["batch"]),
            _one_of(Precision, cells["precision"]),
            float(cells["samples_per_second"]),
        )
        for table in ("tf_benchmarks_2017", "pollux_t4", "lambda", "mlperf")
        for cells in _rows(f"{table}.csv")
        if cells["gpus"] == "1" and not cells.get("skip") and cells["model"] in models()
    )


@functools.cache
def published_figures() -> FactTable[PublishedFigure]:
    """Lambda's, MLPerf's and TensorFlow's figures row by row."""
    return FactTable(
        "published figure",
        (
            PublishedFigure(
                id=f"{table}-{number}",
                source=published_sources()[table].source,
                date=published_sources()[table].date,
                table=table,
                series=cells["series"],
                model=cells["model"],
                gpu=cells["gpu"] or None,
                nodes=int(cells["nodes"]),
                gpus=int(cells["gpus"]),
                batch_per_gpu=float(cells["batch"] or 0),
                precision=_one_of(Precision, cells["precision"]),
                samples_per_second=float(cells["samples_per_second"]),
                note=cells.get("skip") or "",
            )
            for table in ("lambda", "mlperf", "tf_benchmarks_2017")
            for number, cells in enumerate(_rows(f"{table}.csv"), 1)
            if float(cells["samples_per_second"] or 0)
        ),
    )


@functools.cache
def all_reduce_rows() -> tuple[AllReduceRow, ...]:
    return tuple(
        AllReduceRow(
            cells["series"],
            cells["gpu"] or None,
            int(cells["nodes"]),
            int(cells["gpus"]),
            float(cells["size_bytes"]),
            float(cells["seconds"]),
        )
        for cells in _rows("allreduce.csv")
    )


@functools.cache
def published_profile(model: str) -> ModelProfile:
    """The catalog's profile, or a light one: its parameters, spread evenly over its layers."""
    if model in models():
        return models().get(model)
    light = {cells["id"]: cells for cells in _rows("light_models.csv")}
    if model not in light:
        raise UnknownName("published model", model, [*models().ids(), *light])
    cells = light[model]
    embedding, count = int(cells["embedding_parameters"]), int(cells["layers"])
    parameters = int(cells["parameters"])
    each = (parameters - embedding) // count
    layers = [
        LayerProfile(name=f"layer {i}", parameters=each, forward_flops=1)
        for i in range(count, 0, -1)
    ]
    if embedding:  # what a model reads first gets its gradient last
        layers.append(LayerProfile(name="embedding", parameters=embedding, forward_flops=1))
    return ModelProfile(
        id=model,
        source=cells["source"],
        date=datetime.date.fromisoformat(cells["date"]),
        name=cells["name"],
        sample=cells["sample"],
        parameters=parameters,
        layers=tuple(layers),
        forward_flops=0,
        activation_bytes=0,
        activation_bytes_autocast=0,
        largest_activation_bytes=0,
        largest_activation_bytes_autocast=0,
        input_bytes=0,
    )


def _one_of(kind: Any, text: str) -> Any:
    """The text, if it is one of a Literal's values: a data file with another one is broken."""
    if text not in get_args(kind):
        raise ValueError(f"{text!r} is not one of {get_args(kind)}")
    return text


def _rows(file_name: str) -> list[dict[str, str]]:
    lines = _text(file_name).splitlines()
    every: dict[str, str] = {}
    if lines[0].startswith("# every row: "):
        pairs = lines.pop(0).removeprefix("# every row: ").split(", ")
        every = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    return [every | cells for cells in csv.DictReader(lines)]


def _text(file_name: str) -> str:
    folder = resources.files(__package__) / "data" / "published"
    return (folder / file_name).read_text(encoding="utf-8")
