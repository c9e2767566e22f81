"""Profile every built-in model and write the catalog's `models.csv` and `model_layers.csv`.

    python scripts/profile_models.py            # writes both files
    python scripts/profile_models.py --check    # exits 1 if a file is outdated

All models are on torch's meta device, so even the largest needs no memory and all of them take seconds.
"""

import argparse
import csv
import datetime
import importlib
import io
import sys
from collections.abc import Iterable
from pathlib import Path

import torch

from gpuyard.catalog.models import ModelProfile
from gpuyard.files import write_text
from gpuyard.workloads.profiling import profile_task
from gpuyard.workloads.zoo import MODELS

DATA = Path(__file__).parents[1] / "src" / "gpuyard" / "catalog" / "data"

# full name, description of the architecture, and its publication date
DESCRIPTIONS = {
    "alexnet": ("AlexNet", "https://arxiv.org/abs/1404.5997", "2014-04-23"),
    "vgg16": ("VGG-16", "https://arxiv.org/abs/1409.1556", "2014-09-04"),
    "resnet18": ("ResNet-18", "https://arxiv.org/abs/1512.03385", "2015-12-10"),
    "resnet18-cifar": (
        "ResNet-18 for CIFAR-10",
        "https://arxiv.org/abs/1512.03385",
        "2015-12-10",
    ),
    "resnet50": ("ResNet-50 v1.5", "https://arxiv.org/abs/1512.03385", "2015-12-10"),
    "resnet101": ("ResNet-101 v1.5", "https://arxiv.org/abs/1512.03385", "2015-12-10"),
    "resnet152": ("ResNet-152 v1.5", "https://arxiv.org/abs/1512.03385", "2015-12-10"),
    "inception-v3": (
        "Inception-v3 with its auxiliary classifier",
        "https://arxiv.org/abs/1512.00567",
        "2015-12-02",
    ),
    "bert-base": (
        "BERT base fine-tuned on SQuAD (span head in place of the pooler)",
        "https://arxiv.org/abs/1810.04805",
        "2018-10-11",
    ),
    "bert-large": (
        "BERT large fine-tuned on SQuAD (span head in place of the pooler)",
        "https://arxiv.org/abs/1810.04805",
        "2018-10-11",
    ),
    "gnmt": ("GNMT v2 of 4 + 4 layers", "https://arxiv.org/abs/1609.08144", "2016-09-26"),
    "ssd": ("SSD300 on ResNet-50", "https://arxiv.org/abs/1512.02325", "2015-12-08"),
    "gpt2": ("GPT-2 small", "https://github.com/openai/gpt-2", "2019-02-14"),
    "gpt2-medium": ("GPT-2 medium", "https://github.com/openai/gpt-2", "2019-02-14"),
    "gpt2-large": ("GPT-2 large", "https://github.com/openai/gpt-2", "2019-02-14"),
    "gpt2-xl": ("GPT-2 XL", "https://github.com/openai/gpt-2", "2019-02-14"),
    "vit-b-16": ("ViT-B/16", "https://arxiv.org/abs/2010.11929", "2020-10-22"),
    "vit-l-16": ("ViT-L/16", "https://arxiv.org/abs/2010.11929", "2020-10-22"),
    "transformer-small": (
        "Transformer of 4 layers over bytes",
        "src/gpuyard/workloads/zoo/byte_transformer.py",
        "2026-11-16",
    ),
    "spoken-digits-linear": (
        "Spoken digits, linear layers",
        "src/gpuyard/workloads/spoken_digits.py",
        "2026-11-15",
    ),
    "spoken-digits-conv": (
        "Spoken digits, convolutions over time",
        "src/gpuyard/workloads/spoken_digits.py",
        "2026-11-15",
    ),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="write nothing")
    check: bool = parser.parse_args().check
    profiles = [profile_model(id) for id in MODELS]
    stale = []
    for name, text in (
        ("models.csv", format_models_csv(profiles)),
        ("model_layers.csv", format_layers_csv(profiles)),
    ):
        path = DATA / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                write_text(path, text)
    for path in stale:
        print(f"{path} {'is outdated: run scripts/profile_models.py' if check else 'written'}")
    return 1 if check and stale else 0


def profile_model(id: str) -> ModelProfile:
    """Build one model on the meta device and profile it there."""
    module, factory = MODELS[id].split(":")
    name, described_in, date = DESCRIPTIONS[id]
    source = f"{described_in}, profiled by scripts/profile_models.py"
    with torch.device("meta"):
        task = getattr(importlib.import_module(module), factory)()
    measured = profile_task(task, id=id, name=name)
    published = datetime.date.fromisoformat(date)
    return measured.model_copy(update={"source": source, "date": published})


def format_models_csv(profiles: Iterable[ModelProfile]) -> str:
    """Format one row per model."""
    # all of them have parameters in fp32
    left_out = ("layers", "bytes_per_parameter")
    columns = [column for column in ModelProfile.model_fields if column not in left_out]
    rows = ([getattr(profile, column) for column in columns] for profile in profiles)
    return _format_csv(columns, rows)


def format_layers_csv(profiles: Iterable[ModelProfile]) -> str:
    """Format one row per layer, in the order in which gradients become ready."""
    rows = (
        [profile.id, position, layer.name, layer.parameters, layer.forward_flops]
        for profile in profiles
        for position, layer in enumerate(profile.layers)
    )
    return _format_csv(["model", "position", "layer", "parameters", "forward_flops"], rows)


def _format_csv(columns: list[str], rows: Iterable[list[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


if __name__ == "__main__":
    sys.exit(main())
