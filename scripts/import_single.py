"""Convert published throughputs of one GPU to the package's data.

python scripts/import_single.py DIRECTORY    # writes single_gpu.csv into the package
"""

import csv
import sys
from pathlib import Path

DATA = Path(__file__).parents[1] / "src/gpuyard/catalog/data/published"
TIMM = "timm benchmark table"
TORCHVISION = "ryujaehun pytorch-gpu-benchmark"
COLUMNS = (
    "source", "series", "model", "gpu", "batch", "precision", "channels_last", "samples_per_second", "skip",
)  # fmt: skip
_PUBLISHERS = {
    TIMM: "timm",
    TORCHVISION: "ryujaehun",
    "mli transformers-benchmarks": "mli",
    "HF Trainer benchmark (stas00)": "stas00",
}
_PRECISIONS = {
    "AMP fp16": "fp16",
    "fp16 (model.half, pure)": "fp16",
    "fp32": "fp32",
    "TF32": "tf32",
    "bf16 AMP": "bf16",
    "fp32 (tf32 off)": "fp32",
    "bf16 AMP + tf32": "bf16",
}
# models that the catalog profiles itself
_CATALOG = {
    "vgg16": "vgg16",
    "resnet18": "resnet18",
    "resnet50": "resnet50",
    "resnet101": "resnet101",
    "resnet152": "resnet152",
    "vit_base_patch16_224": "vit-b-16",
    "vit_large_patch16_224": "vit-l-16",
    "bert-large-uncased": "bert-large-512",
    "gpt2-medium": "gpt2-medium",
}
_GPUS = {
    "RTX 3090": "rtx-3090",
    "RTX 3090 Ti": "rtx-3090-ti",
    "TITAN Xp": "titan-xp",
    "TITAN RTX": "titan-rtx",
    "TITAN V": "titan-v",
    "GTX 1080 Ti": "gtx-1080-ti",
}


def read_release(folder: Path) -> list[dict[str, str]]:
    with (folder / "single-gpu" / "single_release.csv").open(encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def resolve_model(row: dict[str, str]) -> str:
    """Return the id of a row's profile: the catalog's, or one by library and name."""
    if row["model"] in _CATALOG:
        return _CATALOG[row["model"]]
    library = {TIMM: "timm-", TORCHVISION: "torchvision-"}.get(row["source"], "")
    return library + row["model"]


def main(folder: Path) -> None:
    rows = [convert(row) for row in read_release(folder) if row["samples_per_s"]]
    with (DATA / "single_gpu.csv").open("w", encoding="utf-8", newline="") as lines:
        writer = csv.DictWriter(lines, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print(f"{len(rows)} rows, {sum(bool(row['skip']) for row in rows)} of them skipped")


def convert(row: dict[str, str]) -> dict[str, str]:
    precision = row["precision"]
    skip = ""
    if row["model"].startswith("t5"):
        skip = "the lengths of its sequences are not stated"
    elif "model.half" in precision:
        skip = "weights and updates in fp16, not autocast"
    return {
        "source": _PUBLISHERS[row["source"]],
        "series": Path(row["repo_path_commit"].partition("@")[0]).stem.replace(",", ""),
        "model": resolve_model(row),
        "gpu": _GPUS[row["gpu"]],
        "batch": row["batch"],
        "precision": _PRECISIONS[precision],
        "channels_last": "1" if row["channels_last"] == "y" else "",
        "samples_per_second": row["samples_per_s"],
        "skip": skip,
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
