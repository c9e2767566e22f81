"""Read a table of published large-model runs: shape, layout, cluster, and result of each row.

The columns are documented in `docs/large-models-method.md`. Tables are written by people, so cells are read
tolerantly; a row that lacks what a prediction needs is skipped with the reason.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import isnan
from pathlib import Path

from pydantic import ValidationError

from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.short_names import find_stated_gpu
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.cluster import describe_cluster, find_peak_flops, find_sixteen_bit_peak
from gpuyard.predictor.large.effects import attention_is_older
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.row_hardware import parse_cluster
from gpuyard.predictor.large.row_layout import parse_layout
from gpuyard.predictor.large.row_metric import Metric, parse_metric
from gpuyard.predictor.large.row_numbers import read_integer, read_number
from gpuyard.predictor.large.row_shape import parse_shape
from gpuyard.predictor.large.row_software import (
    MEGATRON,
    overlaps_tensor,
    parse_compiled,
)
from gpuyard.specs import Cluster
from gpuyard.specs.transformer import TransformerShape
from gpuyard.version import DOCUMENTATION

REQUIRED = ("model", "layers", "hidden", "heads", "seq", "gpu", "gpus", "metric", "value")
_HBM2E = 2.4e12  # bytes per second of H100s with 96 GB
_MAX_ROWS = 100_000
_MAX_GPUS = 10**6
_MAX_BYTES = 64 * 2**20


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be predicted, and why."""

    row: int
    reason: str


@dataclass(frozen=True)
class PublishedRow:
    """One published run."""

    row: int  # line number of the table, without its header
    source: str
    model: str
    shape: TransformerShape
    layout: Layout
    expert_tensor: int
    cluster: Cluster
    gpu: str
    precision: str
    lora: str  # "", "lora", or "qlora"
    pure: bool  # weights and optimizer states in 16 bits without fp32 copies
    metric: Metric
    value: float  # NaN: ran out of memory
    quality: str
    framework: str
    micro_known: bool = True  # whether the table states the micro-batch
    global_known: bool = True
    attention: str = ""  # the kernel as the table names it, like "flash2" or "no flash"
    compiled: bool | None = None  # whether PyTorch's operations were fused; None: not stated
    lean: bool = False  # an optimizer that saves memory: 8-bit moments, applied in backward
    padded: bool = False  # sequences of different lengths, so that some tokens are padding
    overlapped: bool = False  # tensor-parallel exchanges run beside the matrices
    variant: str = ""  # a slower part with the same name, like " 500 W"
    stated_gb: float | None = None  # memory in the GPU's name, which may differ from the catalog's

    @property
    def memory_bytes(self) -> float:
        """The memory of one GPU."""
        catalog_bytes = gpus().get(self.gpu).memory_bytes
        return max(catalog_bytes, self.stated_gb * 2**30) if self.stated_gb else catalog_bytes

    @property
    def flash(self) -> bool:
        """True if attention is one fused kernel."""
        return "no flash" not in self.attention

    @property
    def memory_bytes_per_second(self) -> float:
        """The memory bandwidth of one GPU; an H100 with HBM2e has less than the catalog's."""
        rate = gpus().get(self.gpu).memory_bytes_per_second
        return min(rate, _HBM2E) if "hbm2e" in self.variant else rate

    @property
    def eager(self) -> bool:
        """True if layers are written in PyTorch instead of Megatron-LM's fused ones."""
        own_layers = re.search(r"nanotron|colossal|deepspeed|alpa", self.framework, re.IGNORECASE)
        return self.layout.family == "pytorch" or own_layers is not None

    @property
    def sequence_parallel(self) -> bool:
        """True if tensor groups also divide norms and residuals, as Megatron-LM does since it recomputes selectively."""
        if re.search(r"deepspeed|neox|alpa", self.framework, re.IGNORECASE):
            return False
        return self.flash or self.layout.recompute == "selective"

    @property
    def deepspeed(self) -> bool:
        """True if DeepSpeed keeps the states of PyTorch's layers."""
        return self.layout.family == "pytorch" and "deepspeed" in self.framework.lower()

    @property
    def eager_share(self) -> float:
        """The share of layers' work in separate PyTorch operations; a half if the table does not say."""
        if not self.eager or MEGATRON.search(self.framework):
            return 0.0
        return 0.5 if self.compiled is None else 1.0 - self.compiled

    @property
    def older_attention(self) -> bool:
        """True if attention ran in a kernel for the previous GPU generation."""
        pytorch = self.layout.family == "pytorch" or "nanotron" in self.framework
        return attention_is_older(gpus().get(self.gpu), pytorch=pytorch, name=self.attention)

    @property
    def has_speed(self) -> bool:
        """False if the row measured memory, or ran out of it."""
        return self.metric.quantity not in ("memory", "oom") and not isnan(self.value)

    @property
    def batch_known(self) -> bool:
        return self.micro_known and self.global_known

    @property
    def gpus(self) -> int:
        return self.layout.gpus

    @property
    def tokens_per_step(self) -> float:
        return float(self.layout.global_batch * self.shape.sequence)

    def tokens_per_second_per_gpu(self) -> float | None:
        """Return the published result in the unit of predictions, or None for another kind of metric."""
        metric = self.metric
        gpu_count = 1 if metric.per_gpu else self.gpus
        rate = self.value * (metric.scale or 1.0)
        match metric.quantity:
            case "tokens":
                return rate / gpu_count
            case "samples":
                return rate * self.shape.sequence / gpu_count
            case "steps":
                return rate * self.tokens_per_step / self.gpus
            case "step time":
                return self.tokens_per_step / rate / self.gpus
            case "flops" | "mfu":
                return self._achieved_flops() / self._papers_flops()
        return None

    def _achieved_flops(self) -> float:
        """Return the model's FLOP/s per GPU; a figure above the peak of one GPU is that of all."""
        gpu, metric = gpus().get(self.gpu), self.metric
        wide = find_sixteen_bit_peak(gpu)
        if metric.quantity == "mfu":
            achieved = wide * self.value * (metric.scale or (0.01 if self.value > 1 else 1.0))
        else:
            achieved = self.value * (metric.scale or 1.0)
            total = achieved > max(wide, find_peak_flops(gpu, self.precision))
            if metric.per_gpu is False or (metric.per_gpu is None and total):
                achieved /= self.gpus
        again = metric.hardware and self.layout.recompute == "full"
        return achieved / (4 / 3 if again else 1.0)

    def _papers_flops(self) -> float:
        """Return FLOPs per token as most papers count them: attention as if it were not causal."""
        columns = describe_model(self.shape)
        full = 2.0 if self.shape.causal else 1.0
        return float(3 * (2 * columns.active_parameters + full * columns.attention_flops))


def read_rows(path: Path) -> tuple[list[PublishedRow], list[Skipped]]:
    """Read a table; rows that cannot be predicted are returned with their reasons."""
    try:
        size = path.stat().st_size
    except OSError as problem:
        raise UserMistake(f"cannot read {path}: {problem.strerror}") from None
    if size > _MAX_BYTES:
        raise UserMistake(f"{path} is larger than {_MAX_BYTES // 2**20} MiB")
    rows, skipped = [], []
    for number, cells in enumerate(_read_cells(path), start=1):
        if number > _MAX_ROWS:
            raise UserMistake(f"{path} has more than {_MAX_ROWS:,} rows")
        try:
            rows.append(parse_row(number, cells))
        except ValidationError as problem:
            error = problem.errors(include_url=False)[0]
            where = ".".join(map(str, error["loc"]))
            message = error["msg"].removeprefix("Value error, ")
            skipped.append(Skipped(number, f"{where}: {message}" if where else message))
        except (UserMistake, ValueError, LookupError, ArithmeticError) as problem:
            skipped.append(Skipped(number, str(problem) or type(problem).__name__))
    return rows, skipped


def _read_cells(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            reader.fieldnames = [name.strip().lower() for name in reader.fieldnames or ()]
            missing = [name for name in REQUIRED if name not in reader.fieldnames]
            if missing:
                raise UserMistake(
                    f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
                    f"all columns: {DOCUMENTATION}/large-models-method.html#a-table-of-runs"
                )
            for cells in reader:
                yield {name: (value or "").strip() for name, value in cells.items() if name}
    except (csv.Error, OSError) as problem:
        raise UserMistake(f"{path} cannot be read as a CSV table: {problem}") from None


def parse_row(number: int, cells: Mapping[str, str]) -> PublishedRow:
    """Return the row, or raise an error that says what is missing."""
    notes = cells.get("notes", "")
    gpu = find_stated_gpu(cells["gpu"])
    count = _count_gpus(cells)
    metric, value = _parse_result(cells["metric"], cells["value"])
    shape = parse_shape(cells, notes)
    cluster = parse_cluster(gpu, count, cells)
    layout = parse_layout(cells, notes, count, shape, -(-count // cluster.nodes))
    quality = re.search(r"quality=([ABC])", notes)
    etp = re.search(r"\bETP=(\d+)", notes)
    dense_framework = "nemo" in cells.get("framework", "").lower()
    precision = cells.get("precision", "")
    _check_cluster(cluster, _parse_precision(precision, gpu))
    describe_model(shape)  # refuses too many parameters
    lora = re.search(r"\b(q?lora|adapter)\b", notes + " " + cells["model"], re.IGNORECASE)
    return PublishedRow(
        row=number,
        source=cells.get("source", "") or "table",
        model=cells["model"],
        shape=shape,
        layout=layout,
        expert_tensor=int(etp[1])
        if etp
        else (layout.tensor if shape.experts and dense_framework else 1),
        cluster=cluster,
        gpu=gpu.id,
        precision=_parse_precision(precision, gpu),
        attention=cells.get("attention", "").lower(),
        lean="low-memory optimizer" in notes and not lora,
        padded="unpacked" in notes or "step: baseline" in notes,
        overlapped=overlaps_tensor(f"{cells.get('framework', '')} {notes}"),
        compiled=parse_compiled(f"{cells.get('framework', '')} {notes}"),
        lora=_describe_tuning(lora[1].lower(), precision) if lora else "",
        pure=any(word in precision.lower() for word in ("pure", "true")),
        metric=metric,
        value=value,
        quality=quality[1] if quality else "B",
        framework=cells.get("framework", ""),
        micro_known=bool(read_integer(cells, "micro_batch", 0)),
        global_known=bool(read_integer(cells, "global_batch", 0)),
        stated_gb=float(size[1])
        if (size := re.search(r"(\d+) ?gb\b", cells["gpu"].lower()))
        else None,
        variant=_parse_variant(cells["gpu"].lower()),
    )


@lru_cache(maxsize=4096)
def _check_cluster(cluster: Cluster, precision: str) -> None:
    """Raise UserMistake if the GPU lacks the precision, or if no such machine exists."""
    try:
        describe_cluster(cluster, precision)
    except UserMistake as mistake:
        raise UserMistake(str(mistake).partition("; use --")[0]) from None


def _count_gpus(cells: Mapping[str, str]) -> int:
    """Return the number of GPUs: 64, or machines × GPUs as in 8x8."""
    product = re.fullmatch(r"(\d{1,6})\s*[x×*]\s*(\d{1,6})", cells["gpus"])
    count = int(product[1]) * int(product[2]) if product else read_integer(cells, "gpus")
    if not 1 <= count <= _MAX_GPUS:
        raise UserMistake(f"gpus must be 1 to {_MAX_GPUS:,}")
    return count


def _parse_result(name: str, text: str) -> tuple[Metric, float]:
    """Return what was measured, and its value; NaN: the run was out of memory."""
    value_metric = parse_metric(text)
    metric = parse_metric(name)
    out_of_memory = "oom" in (m.quantity for m in (metric, value_metric) if m is not None)
    if out_of_memory:
        return metric or Metric("oom"), float("nan")
    if metric is None:
        raise UserMistake(
            f"metric {name[:60]!r} is not a throughput, a step time, or a memory that gpuyard knows"
        )
    value = read_number(text)
    if not value:
        raise UserMistake(f"value {text[:60]!r} is not a number above 0")
    if metric.quantity == "mfu" and "%" in text:
        value /= 100
        metric = replace(metric, scale=1.0)
    return metric, value


def _parse_variant(name: str) -> str:
    """Return the limits that a GPU's name states, like " 500 W" or " 500 W hbm2e"."""
    watts = re.search(r"(\d+)w\b", name)
    memory = " hbm2e" if "h100" in name and "hbm2e" in name else ""
    return (f" {watts[1]} W" if watts else "") + memory


def _describe_tuning(method: str, precision: str) -> str:
    """Return "qlora" if the frozen weights have 4 bits, otherwise "lora"; other adapters count as LoRA."""
    return "qlora" if method == "qlora" or "nf4" in precision else "lora"


def _parse_precision(text: str, gpu: Gpu) -> str:
    name = text.lower()
    if "nvfp4" in name or "fp4" in name:
        return "nvfp4"
    if "mxfp8" in name or "fp8-mx" in name:
        return "mxfp8"
    if "fp8" in name or "float8" in name:
        return "fp8"
    if "fp16" in name or "half" in name or (gpu.bf16_tflops is None and "fp32" not in name):
        return "fp16"
    return "fp32" if name.startswith("fp32") else "tf32" if "tf32" in name else "bf16"
