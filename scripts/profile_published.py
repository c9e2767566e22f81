"""Profile the models of published single-GPU figures that the catalog lacks.

    python scripts/profile_published.py DIRECTORY    # writes compute_models.csv into the package

DIRECTORY holds the published tables. Needs timm and torchvision, which implement the published image models. All models
are on torch's meta device. A profile here has only what a single GPU's step needs, without the gradients of each layer.
"""

import csv
import io
import sys
from pathlib import Path

import timm  # type: ignore[import-not-found]
import torch
import torchvision  # type: ignore[import-not-found]
from torch import nn

from gpuyard.files import write_text
from gpuyard.workloads.profiling import count_step, trained_layers
from gpuyard.workloads.task import Task
from gpuyard.workloads.zoo.bert import BASE, LARGE, find_spans
from gpuyard.workloads.zoo.images import classify_images
from import_single import TIMM, TORCHVISION, read_release, resolve_model

OUTPUT = Path(__file__).parents[1] / "src/gpuyard/catalog/data/published/compute_models.csv"
COLUMNS = (
    "id",
    "sample",
    "parameters",
    "layers",
    "forward_flops",
    "cudnn_flops",
    "activation_bytes",
)
SAMPLES = 2  # batch normalization refuses one
# BERT at the sequence lengths of pre-training; the span head stands for the masked-word head, which reads few tokens
SEQUENCES = {
    f"bert-{size}-{tokens}": (config, tokens)
    for size, config in (("base", BASE), ("large", LARGE))
    for tokens in (128, 512)
}


def main(folder: Path) -> None:
    tasks: dict[str, Task] = {}
    with torch.device("meta"):
        for id, (config, tokens) in SEQUENCES.items():
            tasks[id] = find_spans(config, tokens)
        for row in read_release(folder):
            id = resolve_model(row)
            if row["source"] in (TIMM, TORCHVISION) and id.startswith(("timm-", "torchvision-")):
                tasks.setdefault(id, create_image_task(row))
    rows = []
    for id, task in sorted(tasks.items()):
        print(id, file=sys.stderr)
        with torch.device("meta"):
            rows.append(measure(id, task))
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_text(OUTPUT, text.getvalue())
    print(f"{len(rows)} models written")


def measure(id: str, task: Task) -> dict[str, object]:
    """Count one training step; what does not grow with the batch is too small to be separated."""
    task.model.train()
    step = count_step(task, SAMPLES)
    return {
        "id": id,
        "sample": task.sample,
        "parameters": sum(parameter.numel() for parameter in task.model.parameters()),
        "layers": len(trained_layers(task.model)),
        "forward_flops": sum(step.flops.values()) // SAMPLES,
        "cudnn_flops": step.cudnn_flops // SAMPLES,
        "activation_bytes": sum(step.saved) // SAMPLES,
    }


def create_image_task(row: dict[str, str]) -> Task:
    size, name = int(row["input"].split("x")[0]), row["model"]
    model: nn.Module
    if row["source"] == TIMM:
        model = timm.create_model(name)
    else:
        model = torchvision.models.get_model(name, weights=None)
    return classify_images(model, size)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
