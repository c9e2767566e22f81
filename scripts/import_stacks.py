"""Two published sets of tables with one machine under many software stacks, in the columns of `import_published.py`.

They are OneFlow's DLPerf on four machines with 8 V100 each, and NVIDIA's DeepLearningExamples on DGX-1 and DGX-2.
"""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from gpuyard.catalog.published_rows import MAX_SUPERLINEAR

Row = dict[str, object]
Cells = dict[str, str]


class Stack(NamedTuple):
    """The software that one folder of a repository trains with."""

    name: str
    framework: str
    strategy: str
    half_gradients: bool  # whether mixed precision also uses 16-bit gradients


# the scripts of each folder show which library exchanges gradients; apex at level O2 and models cast to
# float16 have 16-bit gradients; apex at level O1, graph rewrites, and autocast don't
_DLPERF = {
    "MindSpore/": Stack("MindSpore", "mindspore", "ddp", False),
    "MxNet/": Stack("MXNet", "horovod", "horovod", True),
    "NVIDIADeepLearningExamples/MxNet/": Stack("NVIDIA MXNet", "horovod", "horovod", True),
    "NVIDIADeepLearningExamples/PyTorch/": Stack("NVIDIA PyTorch", "apex", "ddp", True),
    "NVIDIADeepLearningExamples/TensorFlow/": Stack(
        "NVIDIA TensorFlow", "horovod", "horovod", False
    ),
    "OneFlow/": Stack("OneFlow", "oneflow", "ddp", False),
    "PaddlePaddle/": Stack("Paddle", "paddle", "ddp", False),
    "PyTorch/": Stack("PyTorch", "pytorch-ddp", "ddp", False),
    "TensorFlow/": Stack("TensorFlow 2", "tf-distribute", "ddp", False),
    "reports/": Stack("reports", "", "ddp", False),
}
# loader processes per machine, which PyTorch's example divides among its GPUs, in the order of the README's
# tables; NVIDIA's scripts start every process with -j8
_LOADERS = (8, 48)
_NVIDIA_LOADERS = 8
_BATCH = re.compile(r"batch[ _]size ?= ?(\d+)", re.IGNORECASE)


def convert_dlperf(rows: list[Cells]) -> Iterator[Row]:
    yield from skip_wrong_baselines(list(_build_dlperf_rows(rows)))


def _build_dlperf_rows(rows: list[Cells]) -> Iterator[Row]:
    started: Counter[tuple[str, ...]] = Counter()
    finals = {(r["file"], r["batch_per_gpu"]) for r in rows if "All Results" not in r["section"]}
    for row in rows:
        file, section = row["file"], row["section"]
        stack = next(s for prefix, s in _DLPERF.items() if file.startswith(prefix))
        match = _BATCH.search(section)
        batch = row["batch_per_gpu"] or (match[1] if match else "")
        nodes, count = int(row["nodes"]), int(row["gpus_per_node"])
        gpus = count if count > 8 else nodes * count  # some tables count the GPUs of all nodes
        model = "bert-base" if "bert" in file.lower() else "resnet50"
        half = "FP16" in section or "AMP" in section or (model == "resnet50" and batch == "256")
        skip = ""
        if "nsight" in file:
            skip = "InsightFace: how its classes are spread over GPUs is another parallelism"
        elif "extract_" in section:
            skip = "an example of what a script prints"
        elif "All Results" in section and (file, batch) in finals:
            skip = "one of seven runs, whose median is in another row"
        elif not batch:
            skip = "no batch is stated"
        # the same batch on one GPU again starts a run with another setup
        key = (file, section, batch)
        started[key] += gpus == 1 and not skip
        title = section.split(" > ")[-1]
        folder = "/".join(file.split("/")[:-1])
        # NVIDIA's ResNet-50 in PyTorch trains at apex O1 or with autocast, its BERT at O2
        halved = stack.half_gradients and (stack.framework, model) != ("apex", "resnet50")
        yield {
            "source": f"DLPerf {stack.name}",
            "framework": stack.framework,
            "series": f"{folder} {title}" + (f" ({started[key]})" if started[key] > 1 else ""),
            "model": model,
            "gpu": "v100-sxm2-16gb",
            "topology": "nvlink-hybrid-cube-mesh",
            "peer": 1,
            "nodes": nodes,
            "gpus": gpus,
            "batch": batch,
            "precision": "fp16" if half else "fp32",
            "gradient_bits": 16 if half and halved else 32,
            "strategy": stack.strategy,
            "network": "rdma 100 1" if nodes > 1 else "",
            "input_workers": _count_input_workers(file, gpus // nodes, started[key]),
            "samples_per_second": row["throughput"],
            "skip": skip,
        }


def _count_input_workers(file: str, gpus: int, run: int) -> int | str:
    """Return the loader processes per GPU if the scripts or tables state them."""
    if file.startswith("PyTorch/"):
        return -(-_LOADERS[run - 1] // gpus)
    return _NVIDIA_LOADERS if "DeepLearningExamples/PyTorch/resnet50" in file else ""


def skip_wrong_baselines(rows: list[Row]) -> Iterator[Row]:
    """Skip each series whose GPUs are faster together than the baseline that predicts them.

    Such a baseline waited for input, comes from another machine, or is a misprint. Lambda's table flags these rows itself.
    """
    series: dict[tuple[object, ...], list[Row]] = {}
    for row in rows:
        if not row["skip"]:
            key = (row["series"], row["model"], row["precision"], row["batch"])
            series.setdefault(key, []).append(row)
    for members in series.values():
        rates = [float(str(r["samples_per_second"])) / int(str(r["gpus"])) for r in members]
        fewest = min(int(str(r["gpus"])) for r in members)
        baseline = max(
            rate for rate, r in zip(rates, members, strict=True) if int(str(r["gpus"])) == fewest
        )
        if max(rates) > MAX_SUPERLINEAR * baseline:
            for row in members:
                row["skip"] = "several GPUs are faster each than the figure that they start from"
    yield from rows


_DLE = {
    "MxNet": Stack("MXNet", "horovod", "horovod", True),
    "PyTorch": Stack("PyTorch", "apex", "ddp", False),
    "TensorFlow": Stack("TensorFlow", "horovod", "horovod", False),
    "TensorFlow2": Stack("TensorFlow 2", "horovod", "horovod", False),
}
# part of the file name → model, and published units per sample
_DLE_MODELS = {
    "RN50v1.5": ("resnet50", 1.0), "/resnet50v1.5": ("resnet50", 1.0),
    "/resnext101": ("resnext101-32x4d", 1.0), "/se-resnext101": ("se-resnext101-32x4d", 1.0),
    "PyTorch/Detection/SSD": ("ssd", 1.0), "MaskRCNN": ("mask-rcnn", 1.0),
    "biobert": ("bert-base", 1.0), "LanguageModeling/BERT": ("bert-large", 1.0),
    "ELECTRA": ("electra-base", 1.0), "Transformer-XL": ("transformer-xl-base", 192.0),
    "GNMT": ("gnmt", 60.0), "Translation/Transformer": ("transformer-big", 1.0),
    "Jasper": ("jasper", 1.0), "QuartzNet": ("quartznet", 1.0),
}  # fmt: skip
# trained with apex at O2 or with weights cast to float16; TensorFlow's BERT compresses Horovod's messages
_DLE_HALF = ("PyTorch/LanguageModeling/BERT", "PyTorch/Translation", "TensorFlow/LanguageModeling/BERT",
             "PyTorch/LanguageModeling/Transformer-XL")  # fmt: skip
_NUMBER = re.compile(r"(\d[\d, ]*(?:\.\d+)?)\s*([Mk]?)")


def convert_nvidia_examples(rows: list[Cells]) -> Iterator[Row]:
    tables: dict[tuple[str, str], list[Cells]] = {}
    for row in rows:
        key = (row["table"], row["row"])
        tables.setdefault(key, []).append(row)
    converted: list[Row] = []
    for cells in tables.values():
        by_name = {cell["column"]: cell["value"] for cell in cells}
        converted += [
            _build_nvidia_row(cells[0], by_name, precision) for precision in ("fp32", "fp16")
        ]
    yield from skip_wrong_baselines(converted)


def _build_nvidia_row(about: Cells, cells: Cells, precision: str) -> Row:
    file, section = about["file"], about["section"]
    stack = _DLE.get(file.split("/")[0])
    entry = next((entry for part, entry in _DLE_MODELS.items() if part in file), None)
    model, per_sample = entry or ("", 1.0)
    machine = "DGX-2" if "DGX-2" in section + cells.get("DGX System", "") else "DGX-1"
    memory = "32" if machine == "DGX-2" or "32" in section.partition("V100")[2][:6] else "16"
    per_node = 16 if machine == "DGX-2" else 8
    nodes_cell = next((v for k, v in cells.items() if "odes" in k), "")
    gpus_cell = next((v for k, v in cells.items() if k in ("GPUs", "Number of GPUs")), "")
    nodes = int(nodes_cell or -(-int(gpus_cell) // per_node))
    gpus = int(gpus_cell or nodes * per_node)
    batch, accumulate = _parse_batch(about, cells, precision)
    rate = _parse_rate(cells, precision)
    skip = ""
    if stack is None or entry is None:
        skip = "a model whose parameters the tables here do not have"
    elif "Large model" in section:
        skip = "how many tokens a segment has is not stated"
    elif rate is None:
        skip = "no throughput is stated"
    elif batch is None:
        skip = "no batch is stated"
    variant = [cells[k] for k in ("Sequence Length", "Sequence length", "XLA") if k in cells]
    folder = "/".join(file.split("/")[:-1])
    half = precision == "fp16" and (
        (stack is not None and stack.half_gradients) or any(part in file for part in _DLE_HALF)
    )
    return {
        "source": f"NVIDIA examples {stack.name if stack else ''} {machine}",
        "framework": stack.framework if stack else "",
        "series": " ".join([folder, f"table {about['table']}", *variant]),
        "model": model,
        "gpu": "v100-sxm3-32gb" if machine == "DGX-2" else f"v100-sxm2-{memory}gb",
        "topology": "nvswitch" if machine == "DGX-2" else "nvlink-hybrid-cube-mesh",
        "peer": 1,
        "nodes": nodes,
        "gpus": gpus,
        "batch": f"{batch or 0:g}",
        "accumulate": accumulate,
        "precision": precision,
        "gradient_bits": 16 if half else 32,
        "strategy": stack.strategy if stack else "ddp",
        # the built-in ports of these machines
        "network": f"rdma 100 {8 if machine == 'DGX-2' else 4}" if nodes > 1 else "",
        "samples_per_second": f"{(rate or 0) / per_sample:.6g}",
        "skip": skip,
    }  # fmt: skip


def _parse_batch(about: Cells, cells: Cells, precision: str) -> tuple[float | None, int]:
    """Return the batch per pass and GPU, and the passes per step."""
    name, text = next(
        ((k, v) for k, v in cells.items() if re.match(r"batch size", k, re.IGNORECASE)), ("", "")
    )
    half = precision == "fp16"
    if not text:  # MXNet's command line: "-b 192 --dtype float16"
        dtype = "float16" if half else "float32"
        match = re.search(rf"-b (\d+) --dtype {dtype}", about["preceding_text_tail"])
        return (float(match[1]), 1) if match else (None, 1)
    numbers = _parse_numbers(text)
    if not numbers:
        return None, 1
    # "mixed precision, FP32" and "10240/5120" list half precision first, all others FP32
    mixed_first = "mixed precision, FP32" in name or re.fullmatch(r"\d+/\d+", text) is not None
    first = half == mixed_first
    batch = numbers[0 if first else -1]
    text = next((v for k, v in cells.items() if "ccumulation" in k), "1")
    passes = _parse_numbers(text)[0 if first else -1]
    if name.startswith("Batch size / GPU (FP32 and FP16)") and batch >= 1024:
        batch /= passes  # this table gives the batch of all passes
    return batch, int(passes)


def _parse_numbers(text: str) -> list[float]:
    if re.fullmatch(r"\d{1,3}(,\d{3})+", text):
        return [float(text.replace(",", ""))]
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", re.sub(r"FP\d+", "", text))]


def _parse_rate(cells: Cells, precision: str) -> float | None:
    label = "mixed" if precision == "fp16" else "fp32"
    for name, text in cells.items():
        low = name.lower()
        is_rate = ("throughput" in low or "img/s" in low) and label in low
        if not is_rate or "speedup" in low or "speed-up" in low or "scaling" in low:
            continue
        match = _NUMBER.match(text.strip())
        if match is None:
            return None
        value = float(match[1].replace(",", "").replace(" ", ""))
        return value * {"M": 1e6, "k": 1e3}.get(match[2], 1.0)
    return None
