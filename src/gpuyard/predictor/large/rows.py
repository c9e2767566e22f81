"""Read a table of published large-model runs: shape, layout, cluster, and result of each row.

The columns are documented in `docs/large-models.md`. Tables are written by people, so cells are read
tolerantly; a row that lacks what a prediction needs is skipped with the reason.
"""

import csv
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from gpuyard.catalog import Gpu, gpus, machines
from gpuyard.errors import UserMistake
from gpuyard.hardware.presets import choose_topology
from gpuyard.predictor.large.layout import Layout, Recompute
from gpuyard.predictor.large.model import describe_model
from gpuyard.specs import Cluster, MachineSpec, Network
from gpuyard.specs.transformer import TransformerShape

REQUIRED = ("model", "layers", "hidden", "heads", "seq", "gpu", "gpus", "metric", "value")
_MAX_ROWS = 100_000
_MAX_BYTES = 64 * 2**20
_MAX_NUMBER = 10**12


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
    flash: bool
    lora: str  # "", "lora", or "qlora"
    pure: bool  # weights and optimizer states in 16 bits without fp32 copies
    metric: str
    value: float  # NaN: ran out of memory
    quality: str
    framework: str
    batch_known: bool = True
    variant: str = ""  # a slower part with the same name, like " 500 W"
    stated_gb: float | None = None  # memory in the GPU's name, which may differ from the catalog's

    @property
    def memory_bytes(self) -> float:
        """The memory of one GPU."""
        known = gpus().get(self.gpu).memory_bytes
        return max(known, self.stated_gb * 2**30) if self.stated_gb else known

    @property
    def gpus(self) -> int:
        return self.layout.gpus

    @property
    def tokens_per_step(self) -> float:
        return float(self.layout.global_batch * self.shape.sequence)

    def tokens_per_second_per_gpu(self) -> float | None:  # noqa: PLR0911, one per metric
        """Return the published result in the unit of predictions, or None for another kind of metric."""
        metric, value = self.metric, self.value
        if metric == "tokens/s/gpu":
            return value
        if metric.startswith("tokens/s"):
            return value / self.gpus
        if metric == "samples/s":
            return value * self.shape.sequence / self.gpus
        if metric in ("step_time_s", "step_time_ms"):
            seconds = value / (1000 if metric.endswith("ms") else 1)
            return self.tokens_per_step / seconds / self.gpus
        flops = self._papers_flops()
        if metric in ("model_tflops/gpu", "hw_tflops/gpu"):
            hardware = metric.startswith("hw")
            again = 4 / 3 if hardware and self.layout.recompute == "full" else 1.0
            return value * 1e12 / (flops * again)
        if metric == "mfu_percent":
            peak = gpus().get(self.gpu).peak_flops("bf16") or gpus().get(self.gpu).peak_flops(
                "fp16"
            )
            return value / 100 * peak / flops if peak else None
        return None

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
        except (UserMistake, ValueError, LookupError, ArithmeticError) as problem:
            text = str(problem).splitlines() or [type(problem).__name__]
            reason = text[2].strip() if len(text) > 2 and "validation error" in text[0] else text[0]
            skipped.append(Skipped(number, reason))
    return rows, skipped


def _read_cells(path: Path) -> Iterator[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(line for line in file if not line.startswith("#"))
            missing = [name for name in REQUIRED if name not in (reader.fieldnames or ())]
            if missing:
                raise UserMistake(
                    f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}; "
                    "docs/large-models.md lists all columns"
                )
            for cells in reader:
                yield {name: (value or "").strip() for name, value in cells.items() if name}
    except (UnicodeDecodeError, csv.Error, OSError) as problem:
        raise UserMistake(f"{path} cannot be read as a CSV table: {problem}") from None


def parse_row(number: int, cells: Mapping[str, str]) -> PublishedRow:
    """Return the row, or raise an error that says what is missing."""
    notes = cells.get("notes", "")
    gpu = find_gpu(cells["gpu"])
    count = _integer(cells, "gpus")
    shape = parse_shape(cells, notes)
    layout = _parse_layout(cells, notes, count, shape)
    cluster = parse_cluster(gpu, count, cells)
    value = cells["value"]
    out_of_memory = value.upper() == "OOM" or cells["metric"].lower() == "oom"
    quality = re.search(r"quality=([ABC])", notes)
    etp = re.search(r"\bETP=(\d+)", notes)
    dense_framework = "nemo" in cells.get("framework", "").lower()
    precision = cells.get("precision", "")
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
        flash="no flash" not in cells.get("attention", "").lower(),
        lora=_tuning(lora[1].lower(), precision) if lora else "",
        pure=any(word in precision.lower() for word in ("pure", "true")),
        metric=cells["metric"],
        value=float("nan") if out_of_memory else float(value.replace(",", "")),
        quality=quality[1] if quality else "B",
        framework=cells.get("framework", ""),
        batch_known=bool(cells.get("micro_batch")) and bool(cells.get("global_batch")),
        stated_gb=float(size[1])
        if (size := re.search(r"(\d+) ?gb\b", cells["gpu"].lower()))
        else None,
        variant=f" {watts[1]} W" if (watts := re.search(r"(\d+)w\b", cells["gpu"].lower())) else "",
    )


def _tuning(method: str, precision: str) -> str:
    """Return "qlora" if the frozen weights have 4 bits, otherwise "lora"; other adapters count as LoRA."""
    return "qlora" if method == "qlora" or "nf4" in precision else "lora"


def _integer(cells: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = cells.get(name, "")
    match = re.search(r"\d[\d,]*", text)
    if match is None or (default is not None and text.startswith(">")):
        if default is None:
            raise UserMistake(f"{name} is missing")
        return default
    number = int(match[0].replace(",", "")[:30])
    if number > _MAX_NUMBER:
        raise UserMistake(f"{name} is larger than {_MAX_NUMBER:,}")
    return number


def find_gpu(text: str) -> Gpu:
    """Return the catalog's GPU for a name as publishers write it: h100-sxm-80gb, A100 80GB."""
    plain = re.sub(r"\(.*?\)", "", text.lower()).strip()
    plain = re.sub(r"^nvidia |^amd (instinct )?", "", plain)
    name = re.sub(r"[\s_/]+", "-", plain)
    if name in gpus():
        return gpus().get(name)
    name = {"a800": "a100", "h800": "h100"}.get(name.split("-")[0], name.split("-")[0]) + (
        "-" + "-".join(name.split("-")[1:]) if "-" in name else ""
    )
    words = [
        word for word in re.split(r"-", name) if word and not re.fullmatch(r"\d+w|hbm\d\w*", word)
    ]

    if not words:
        raise UserMistake(f"GPU {text[:80]!r} is not in the catalog")

    def matches(gpu_id: str) -> int:
        parts = gpu_id.split("-")
        if parts[0] != words[0] and "-".join(parts[:2]) != "-".join(words[:2]):
            return -1
        return sum(any(part.startswith(word) for part in parts) for word in words)

    order = ("sxm", "")
    ranked = sorted(
        gpus().ids(), key=lambda i: (-matches(i), *(0 if o in i else 1 for o in order), -len(i))
    )
    if matches(ranked[0]) < 1:
        raise UserMistake(f"GPU {text[:80]!r} is not in the catalog")
    return gpus().get(ranked[0])


def parse_shape(cells: Mapping[str, str], notes: str) -> TransformerShape:
    """Return the shape; whether it is gated and tied follows from the number of parameters, if that is given."""
    numbers = {key: int(value) for key, value in re.findall(r"\b([a-z_]+)=(\d+)", notes)}
    hidden, heads, layers = (_integer(cells, name) for name in ("hidden", "heads", "layers"))
    experts = numbers.get("experts", 0)
    expert_ffn = numbers.get("moe_ffn") or numbers.get("expert_ffn")
    kv = cells.get("kv_heads", "")
    mla = kv.upper() == "MLA" or "MLA" in notes
    values: dict[str, object] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocabulary": _integer(cells, "vocab", 50_257),
        "sequence": _integer(cells, "seq"),
    }
    if "head_dim" in numbers and not mla:
        values["head_size"] = numbers["head_dim"]
    if mla:
        values |= {
            "attention": "mla", "head_size": numbers.get("qk_nope", 128),
            "query_rank": numbers.get("q_lora_rank", 1536), "kv_rank": numbers.get("kv_lora_rank", 512),
            "rope_head_size": 64, "value_head_size": 128,
        }  # fmt: skip
    else:
        values["kv_heads"] = _integer(cells, "kv_heads", heads)
    if window := re.search(r"sliding window (\d+)", notes):
        values |= {"attention": "sliding-window", "window": int(window[1])}
        if "alternating" in notes:
            values["full_attention_every"] = 2
    if experts:
        dense = re.search(r"first (\d+) layers? dense", notes)
        values |= {
            "experts": experts, "active_experts": numbers.get("topk", numbers.get("active", 1)),
            "shared_experts": numbers.get("shared", 0),
            "dense_layers": int(dense[1]) if dense else numbers.get("dense_layers", 0),
        }  # fmt: skip
        if expert_ffn:
            values["expert_ffn"] = expert_ffn
    if re.match(r"bert|vit", cells["model"].lower()):
        values["causal"] = False
    given = re.search(r"[\d.]+", cells.get("params_b", ""))
    ffn = _integer(cells, "ffn", 0) or expert_ffn
    old = re.match(
        r"gpt|bert|opt|bloom|megatron|turing|falcon|phi-1|stablelm", cells["model"].lower()
    )
    guesses = [(not old or bool(experts), False)]
    if given and not experts:
        guesses = [(gated, tied) for gated in (not old, bool(old)) for tied in (False, True)]
    candidates = [
        TransformerShape.model_validate(
            {**values, "ffn": ffn or 4 * hidden, "gated": gated, "tied_embeddings": tied}
        )
        for gated, tied in guesses
    ]
    if not given:
        return candidates[0]
    target = float(given[0]) * 1e9
    return min(candidates, key=lambda shape: abs(float(describe_model(shape).parameters) - target))


_PYTORCH = re.compile(
    r"torch|fsdp|litgpt|accelerate|lightning|composer|foundry|trl|axolotl", re.IGNORECASE
)
_RECOMPUTE = (
    ("full", "full"),
    ("selective", "selective"),
    ("norm, act", "selective"),
    ("on (recipe", "full"),
)


def _parse_layout(
    cells: Mapping[str, str], notes: str, count: int, shape: TransformerShape
) -> Layout:
    tensor, pipeline, context = (_integer(cells, name, 1) for name in ("tp", "pp", "cp"))
    kind = cells.get("dp_or_fsdp", "").lower()
    stage = re.search(r"\d", cells.get("zero_stage", ""))
    fsdp = kind.startswith(("fsdp", "hsdp"))
    zero = int(stage[0]) if stage else (3 if fsdp else 0)
    model_parallel = tensor * pipeline * context
    if count % model_parallel:
        raise UserMistake(f"tp × pp × cp = {model_parallel} does not divide {count} GPUs")
    data = count // model_parallel
    micro = _integer(cells, "micro_batch", 1)
    batch = _integer(cells, "global_batch", micro * data)
    if "PP microbatches" in notes or (
        pipeline > 1 and micro * data == batch and micro % pipeline == 0 and fsdp
    ):
        micro = max(1, micro // pipeline)
    micro = min(micro, max(1, batch // data))
    shard = re.search(r"\d+", kind) if fsdp else None
    text = cells.get("recompute", "").lower()
    recompute: Recompute = next((kind for word, kind in _RECOMPUTE if word in text), "none")  # type: ignore[misc]
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=_integer(cells, "vp", 1),
        context=context,
        expert=_integer(cells, "ep", 1) if shape.experts else 1,
        data=data,
        zero=zero if data * context > 1 else 0,
        shard=min(data * context, int(shard[0]) * context) if shard and data > 1 else None,
        micro_batch=micro,
        global_batch=max(batch, data),
        recompute=recompute,
        family="pytorch"
        if zero >= 3 or _PYTORCH.search(cells.get("framework", ""))
        else "megatron",
    )


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


_GENERATION_PORTS = {
    "Volta": 100,
    "Ampere": 200,
    "Hopper": 400,
    "Blackwell": 400,
    "Blackwell Ultra": 800,
}
_LINK_GBITS = {"fdr": 56, "edr": 100, "hdr": 200, "ndr": 400, "xdr": 800}


def parse_cluster(gpu: Gpu, count: int, cells: Mapping[str, str]) -> Cluster:
    """Return the cluster of a row; a network that is not stated is what such machines usually have."""
    text = cells.get("interconnect", "")
    per_node = min(_integer(cells, "gpus_per_node", min(count, 8)), count)
    if "NVL72" in text or gpu.id.startswith("gb"):
        per_node = 64 if count > 72 and count % 64 == 0 else min(count, 72)
    nodes = max(1, -(-count // per_node))
    if per_node > 72:
        raise UserMistake(f"a machine with {per_node} GPUs is not supported")
    topology = choose_topology(gpu, per_node)
    rate = f"{_port_rate(gpu, text, per_node) / 1.25e8:.6g} Gbit/s"
    network = Network.model_validate({"rate": rate, "protocol": _protocol(text)})
    return Cluster(
        name=f"{nodes} × {per_node} × {gpu.name}",
        nodes=nodes,
        machine=MachineSpec(gpu=gpu.id, gpus=per_node, topology=topology),
        network=network if nodes > 1 else None,
    )


def _protocol(text: str) -> str:
    tcp = re.search(r"\btcp\b|ethernet", text, re.IGNORECASE) and not re.search(
        "roce|rdma|tcpx", text, re.IGNORECASE
    )
    return "tcp" if tcp else "rdma"


def _port_rate(gpu: Gpu, text: str, per_node: int) -> float:  # noqa: PLR0911, one per notation
    """Return the bytes per second of all network ports of one machine."""
    scale_out = "; ".join(
        part for part in text.split(";") if not re.match(r"\s*NVLink[\d ]*(in node)?\s*$", part)
    )
    if match := re.search(r"(\d+) ?[x×] ?(\d+(?:\.\d+)?) ?(GB|Gb|G\b)", scale_out):
        rate = float(match[1]) * float(match[2])
        return rate * (1e9 if match[3] == "GB" else 1.25e8)
    if match := re.search(
        r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s|G) (?:CX-\d )?(?:a|per) GPU", scale_out
    ):
        return float(match[1]) * 1.25e8 * per_node
    if match := re.search(
        r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s|G) (?:a|per) (?:node|machine)", scale_out
    ):
        return float(match[1]) * 1.25e8
    if match := re.search(r"(\d[\d.]*) ?Tb(?:/?s|ps|it/s)", scale_out):
        return float(match[1]) * 1.25e11
    if match := re.search(r"(?:(\d+) ?[x×]? ?)?\b(fdr|edr|hdr|ndr|xdr)", scale_out, re.IGNORECASE):
        ports = (
            int(match[1])
            if match[1] and int(match[1]) <= 16
            else (per_node if gpu.released >= 2020 else 1)
        )
        return ports * _LINK_GBITS[match[2].lower()] * 1.25e8
    if match := re.search(r"(\d[\d.]*) ?(?:Gb/?s|Gbps|Gbit/s)", scale_out):
        return float(match[1]) * 1.25e8
    return _usual_rate(gpu, per_node)


def _usual_rate(gpu: Gpu, per_node: int) -> float:
    """Return the rate of the ports that machines with this GPU usually have."""
    for machine in machines():
        if machine.gpu == gpu.id and machine.nics and machine.gpus >= per_node:
            ports = machine.nics * per_node / machine.gpus
            from gpuyard.catalog import links

            if machine.nic_link:
                return links().get(machine.nic_link).raw_bytes_per_second * ports
    gbits = _GENERATION_PORTS.get(gpu.architecture, 100)
    ports = per_node if gpu.nvswitch_gpus else 1
    return gbits * 1.25e8 * ports
