"""Published training measurements, each row as a workload on a cluster with its anchor.

The anchor of a row is the smallest system in its series, which is one GPU if one GPU was published.
`scripts/import_published.py` writes the data files. `sources.toml` next to them describes each table: its source, the
facts that were added, and the facts that are unknown.
"""

import csv
import datetime
import functools
import re
import tomllib
from collections import Counter
from importlib import resources
from typing import Any, Literal, cast, get_args

from gpuyard.catalog.models import LayerProfile, ModelProfile, models
from gpuyard.catalog.published_rows import (
    AllReduceRow,
    Anchor,
    CollectiveRow,
    PublishedFigure,
    PublishedMachines,
    PublishedRow,
    PublishedSource,
    PublishedStrategy,
    PublishedTable,
    SingleGpuRow,
)
from gpuyard.catalog.tables import FactTable
from gpuyard.errors import UnknownName
from gpuyard.specs import Network, Precision, Topology

# models whose samples differ in size (image scales, object counts, utterance lengths), so that workers wait for each other
VARIABLE_INPUTS = frozenset({"mask-rcnn", "yolov3", "deepspeech2", "tacotron2"})
# tables to which all constants, intervals, and probabilities of software stacks are fitted
TRAINING_TABLES = (
    "tf_benchmarks_2017",
    "pollux_t4",
    "lambda",
    "mlperf",
    "horovod",
    "dlperf",
    "nvidia_examples",
)
# tables that also size intervals and probabilities of software stacks, but to which no constant is fitted
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
# tables that are excluded from every fit, for a blind test of predictions
HELD_OUT_TABLES = (
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
# throughputs of one GPU only
SINGLE_GPU_TABLE = "single_gpu"
_PYTORCH_TABLES = ("lambda", "pollux_t4", "csc", "pytorch_ddp", SINGLE_GPU_TABLE)
_COMPILED = re.compile(r"\bwith ?(xla|Graph Kernel Fusion)", re.IGNORECASE)
_TOKENS = re.compile(r"table \d+ (128|512)$")
LAB_TABLE = "lab"  # gpuyard's own sweeps over emulated links; no constant is fitted to it


@functools.cache
def published_sources() -> dict[str, PublishedSource]:
    tables = tomllib.loads(_read_data("sources.toml"))
    return {name: PublishedSource(table=name, **fields) for name, fields in tables.items()}


def list_tables() -> list[str]:
    """List all tables by name."""
    return [*TRAINING_TABLES, *SIZING_TABLES, *HELD_OUT_TABLES, LAB_TABLE]


@functools.cache
def published_table(table: str) -> PublishedTable:
    """Return a table with its predictable rows. Raise UnknownName, which suggests the closest name."""
    if table not in list_tables():
        raise UnknownName("published table", table, list_tables())
    skipped: Counter[str] = Counter()
    series: dict[tuple[str, ...], list[dict[str, str]]] = {}
    for cells in _read_rows(f"{table}.csv"):
        if cells.get("skip"):
            skipped[cells["skip"]] += 1
            continue
        key = (cells["series"], cells["model"], cells["precision"], cells["strategy"])
        series.setdefault(key, []).append(cells)
    rows: list[PublishedRow] = []
    anchors = 0
    for members in series.values():
        series_rows, series_anchors, without_anchor = _parse_series(table, members)
        rows += series_rows
        anchors += series_anchors
        if without_anchor:
            skipped["no smaller system with this batch to predict it from"] += without_anchor
    source = published_sources()[table]
    return PublishedTable(source, tuple(rows), anchors, tuple(skipped.most_common()))


def _parse_series(table: str, members: list[dict[str, str]]) -> tuple[list[PublishedRow], int, int]:
    """Return the rows with an anchor, the number of anchors, and the number of rows without one."""
    min_gpus = min(int(cells["gpus"]) for cells in members)
    anchors = [_parse_anchor(cells) for cells in members if int(cells["gpus"]) == min_gpus]
    rows: list[PublishedRow] = []
    without_anchor = 0
    for cells in members:
        if int(cells["gpus"]) == min_gpus:
            continue
        batch = float(cells["batch"])
        step_seconds = [a.step_seconds for a in anchors if a.batch_per_gpu == batch]
        if step_seconds:  # averaged, because some sweeps were run twice
            rate = min_gpus * batch * len(step_seconds) / sum(step_seconds)
            passes = max(a.accumulate for a in anchors if a.batch_per_gpu == batch)
            anchor = Anchor(anchors[0].nodes, min_gpus, batch, rate, passes)
        elif table.startswith("mlperf"):  # the batch per GPU shrinks as the system grows
            anchor = min(anchors, key=lambda a: abs(a.batch_per_gpu - batch))
        else:
            without_anchor += 1
            continue
        rows.append(_parse_row(table, cells, anchor))
    return rows, len(anchors), without_anchor


def _parse_anchor(cells: dict[str, str]) -> Anchor:
    rate = float(cells["samples_per_second"])
    passes = int(cells.get("accumulate") or 1)
    return Anchor(int(cells["nodes"]), int(cells["gpus"]), float(cells["batch"]), rate, passes)


def _parse_row(table: str, cells: dict[str, str], anchor: Anchor) -> PublishedRow:
    return PublishedRow(
        table=table,
        source=cells.get("source") or "our lab",
        series=cells["series"],
        model=cells["model"],
        machines=_parse_machines(
            cells["gpu"], cells["topology"], cells["peer"], cells.get("network", "")
        ),
        nodes=int(cells["nodes"]),
        gpus=int(cells["gpus"]),
        batch_per_gpu=float(cells["batch"]),
        precision=_parse_choice(Precision, cells["precision"]),
        gradient_bits=int(cells["gradient_bits"]),
        strategy=_parse_choice(PublishedStrategy, cells["strategy"]),
        samples_per_second=float(cells["samples_per_second"]),
        anchor=anchor,
        framework=cells.get("framework", ""),
        accumulate=int(cells.get("accumulate") or 1),
        input_workers=int(cells["input_workers"]) if cells.get("input_workers") else None,
    )


@functools.cache
def _parse_machines(gpu: str, topology: str, peer: str, network: str) -> PublishedMachines:
    return PublishedMachines(
        gpu, _parse_choice(Topology, topology), peer == "1", _parse_network(network)
    )


def _parse_network(text: str) -> Network | None:
    """Parse `tcp 50 1 5 16`: protocol, Gbit/s per port, ports per machine, Gbit/s per flow, flows (default 1)."""
    if not text:
        return None
    protocol, rate, rails, *flow = text.split()
    keys = {"rate": f"{rate} Gbit/s", "rails": rails, "protocol": protocol}
    if flow:
        keys |= {"per_flow": f"{flow[0]} Gbit/s", "flows": (*flow, "1")[1]}
    return Network.model_validate(keys)


@functools.cache
def single_gpu_rows() -> tuple[SingleGpuRow, ...]:
    """Return every published throughput of one GPU whose model is profiled, except those held out.

    Rows in 16 bits are left out unless they ran in PyTorch, because other frameworks choose the layout of their tensors
    and fuse operations, and the tables don't state it.
    """
    tables = [t for t in TRAINING_TABLES if t != "horovod"]  # its one-GPU figures are TensorFlow's
    rows = (
        _parse_single(table, cells)
        for table in (*tables, *SIZING_TABLES, SINGLE_GPU_TABLE)
        for cells in _read_rows(f"{table}.csv")
        if cells.get("gpus", "1") == "1" and not cells.get("skip") and cells["gpu"]
    )
    return tuple(row for row in rows if row is not None)


def _parse_single(table: str, cells: dict[str, str]) -> SingleGpuRow | None:
    model, source = _resolve_sequence(table, cells), cells["source"]
    if model not in models() and model not in _compute_models():
        return None
    in_pytorch = table in _PYTORCH_TABLES or "PyTorch" in source
    if cells["precision"] in ("fp16", "bf16") and not in_pytorch:
        return None
    return SingleGpuRow(
        publisher=source if source.startswith("User") else source.split()[0],
        stack=source,
        table=table,
        series=cells["series"],
        model=model,
        gpu=cells["gpu"],
        batch_per_gpu=float(cells["batch"]),
        precision=_parse_choice(Precision, cells["precision"]),
        samples_per_second=float(cells["samples_per_second"]),
        channels_last=cells.get("channels_last") == "1",
        compiled=_COMPILED.search(cells["series"]) is not None,
    )


def _resolve_sequence(table: str, cells: dict[str, str]) -> str:
    """Return the model's id with its sequence length, if BERT was pre-trained with other ones than the catalog's."""
    model = cells["model"]
    if model not in ("bert-base", "bert-large"):
        return model
    if table in ("dlperf", "paddle") or "biobert" in cells["series"]:
        return f"{model}-128"
    tokens = _TOKENS.search(cells["series"]) if table == "nvidia_examples" else None
    return f"{model}-{tokens[1]}" if tokens else model


@functools.cache
def _compute_models() -> dict[str, dict[str, str]]:
    return {cells["id"]: cells for cells in _read_rows("compute_models.csv")}


@functools.cache
def compute_profile(model: str) -> ModelProfile:
    """Return the catalog's profile, or one of a published model with only what the step of a single GPU needs."""
    if model in models():
        return models().get(model)
    if model not in _compute_models():
        raise UnknownName("published model", model, [*models().ids(), *_compute_models()])
    cells = dict(_compute_models()[model])
    count, parameters = int(cells.pop("layers")), int(cells["parameters"])
    layer = LayerProfile(name="layer", parameters=max(1, parameters // count), forward_flops=0)
    return ModelProfile.model_validate(
        cells
        | {
            "source": "scripts/profile_published.py",
            "date": published_sources()[SINGLE_GPU_TABLE].date,
            "name": model,
            "layers": (layer,) * count,
            "activation_bytes_autocast": 0,
            "largest_activation_bytes": 0,
            "largest_activation_bytes_autocast": 0,
            "input_bytes": 0,
        }
    )


@functools.cache
def published_figures() -> FactTable[PublishedFigure]:
    """Return the rows of Lambda's, MLPerf's, and TensorFlow's tables."""
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
                precision=_parse_choice(Precision, cells["precision"]),
                samples_per_second=float(cells["samples_per_second"]),
                note=cells.get("skip") or "",
            )
            for table in ("lambda", "mlperf", "tf_benchmarks_2017")
            for number, cells in enumerate(_read_rows(f"{table}.csv"), 1)
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
        for cells in _read_rows("allreduce.csv")
    )


@functools.cache
def collective_rows() -> tuple[CollectiveRow, ...]:
    """Return the bus bandwidths of public threads whose hardware is known."""
    return tuple(
        CollectiveRow(
            thread=cells["thread"],
            gpu=cells["gpu"],
            topology=cast("Topology", cells["topology"]),
            machine_gpus=int(cells["machine_gpus"]),
            peer_to_peer=cells["peer_to_peer"] == "yes",
            nodes=int(cells["nodes"]),
            gpus=int(cells["gpus"]),
            network=_parse_ports(cells["network"]),
            op=cast("Literal['all_reduce', 'all_gather', 'reduce_scatter']", cells["op"]),
            nvls=cells["nvls"] != "off",
            size_bytes=float(cells["size_bytes"]),
            bytes_per_second=1e9 * float(cells["bus_gb_per_second"]),
        )
        for cells in _read_rows("collectives.csv")
        if not cells["skip"]
    )


def skipped_collectives() -> Counter[str]:
    """Count the other rows by reason."""
    return Counter(cells["skip"] for cells in _read_rows("collectives.csv") if cells["skip"])


def _parse_ports(text: str) -> Network | None:
    """Parse e.g. "4xinfiniband-hdr"."""
    rails, _, link = text.partition("x")
    return Network(link=link, rails=int(rails)) if link else None


@functools.cache
def published_profile(model: str) -> ModelProfile:
    """Return the catalog's profile, or a light one with the parameters spread evenly over the layers."""
    if model in models():
        return models().get(model)
    light = {cells["id"]: cells for cells in _read_rows("light_models.csv")}
    if model not in light:
        raise UnknownName("published model", model, [*models().ids(), *light])
    cells = light[model]
    embedding, count = int(cells["embedding_parameters"]), int(cells["layers"])
    parameters = int(cells["parameters"])
    layer_parameters = (parameters - embedding) // count
    layers = [
        LayerProfile(name=f"layer {i}", parameters=layer_parameters, forward_flops=1)
        for i in range(count, 0, -1)
    ]
    if embedding:  # the first layer gets its gradient last
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


def _parse_choice(kind: Any, text: str) -> Any:
    """Return the text. Raise ValueError if it is not a value of the Literal, because the data file is broken."""
    if text not in get_args(kind):
        raise ValueError(f"{text!r} is not one of {get_args(kind)}")
    return text


def _read_rows(file_name: str) -> list[dict[str, str]]:
    lines = _read_data(file_name).splitlines()
    defaults: dict[str, str] = {}
    if lines[0].startswith("# every row: "):
        pairs = lines.pop(0).removeprefix("# every row: ").split(", ")
        defaults = {name: value for name, _, value in (pair.partition("=") for pair in pairs)}
    return [defaults | cells for cells in csv.DictReader(lines)]


def _read_data(file_name: str) -> str:
    folder = resources.files(__package__) / "data" / "published"
    return (folder / file_name).read_text(encoding="utf-8")
