"""Write src/gpuyard/catalog/data/prices.csv from price lists, so that nobody types a price.

    python scripts/import_prices.py cloud_prices_aws_gpu.csv cloud_prices_lambda.csv \\
        cloud_prices_gpu_min.csv --output src/gpuyard/catalog/data/prices.csv

    python scripts/import_prices.py cloud_prices_aws_history.csv \\
        --output src/gpuyard/catalog/data/past_prices.csv

Each list starts with a line `# source: ...`. Three shapes are known: one cloud a file, whose cloud and
date stand in that line; many clouds with the lowest price over their regions; and snapshots of one cloud
with a date in each row, whose ids end in that date. Where two files price the same instance the first
file given wins. What was left out is counted on standard error.
"""

import argparse
import csv
import datetime
import io
import re
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from gpuyard.catalog import Price, gpus
from gpuyard.errors import GpuyardError, UserMistake

ONE_CLOUD = {"instance", "gpu", "count", "vcpus", "mem_gib", "price_usd_h"}
ONE_CLOUD_OPTIONAL = {"region", "spot_usd_h"}
MANY_CLOUDS = {
    "cloud", "file_date", "instance", "gpu", "count", "vcpus", "mem_gib",
    "min_price", "max_price", "min_spot", "n_regions",
}  # fmt: skip

SNAPSHOTS = {
    "snapshot_date", "instance", "gpu", "count", "vcpus", "mem_gib", "price_usd_h", "min_spot_usd_h",
}  # fmt: skip

NOT_A_GPU = re.compile(r"tpu|inferentia|trainium|virtex|qualcomm|gaudi|alveo|u30", re.IGNORECASE)

SLICES = {
    "Standard_NV4as_v4": "an eighth of a GPU",
    "Standard_NV8as_v4": "a quarter of a GPU",
    "Standard_NV16as_v4": "half a GPU",
}

WRONG_COUNTS = {("azure", "Standard_ND96isr_H100_v5"): 8}

# (cloud, instance, GPU name) as patterns that must match in full -> row of the GPU table. The first
# that matches counts; a name that may mean several variants is left unmatched on purpose.
GPU_RULES: list[tuple[str, str, str, str]] = [
    ("*", ".*", "K80", "k80"),
    ("*", ".*", "M60", "m60"),
    ("*", ".*", "P4", "p4"),
    ("*", ".*", "P100", "p100-pcie-16gb"),
    ("azure", "Standard_NC.*_v3", "V100", "v100-pcie-16gb"),
    ("gcp|oci|lambda", ".*", "V100", "v100-sxm2-16gb"),
    ("aws", r"p3\..*", "V100", "v100-sxm2-16gb"),
    ("aws|azure", ".*", "V100-32GB", "v100-sxm2-32gb"),
    ("*", ".*", "T4", "t4"),
    ("lambda", ".*", "RTX6000", "quadro-rtx-6000"),
    ("nebius", ".*", "RTX6000", "rtx-pro-6000-blackwell"),
    ("*", ".*", "RTX ?3070", "rtx-3070"),
    ("*", ".*", "RTX3090", "rtx-3090"),
    ("*", ".*", "RTX4090", "rtx-4090"),
    ("*", ".*", "RTX5090", "rtx-5090"),
    ("*", ".*", "(RTX-?)?A4000", "rtx-a4000"),
    ("*", ".*", "RTXA4500", "rtx-a4500"),
    ("*", ".*", "(RTX-?)?A5000", "rtx-a5000"),
    ("*", ".*", "(RTX-?)?A6000", "rtx-a6000"),
    ("*", ".*", "RTX6000-?Ada", "rtx-6000-ada"),
    ("*", ".*", "RTX[ -]?PRO[ -]?(Server )?6000(-?W[SK]|-CC| 96GB)?", "rtx-pro-6000-blackwell"),
    ("*", ".*", "A10", "a10"),
    ("*", ".*", "A10G", "a10g"),
    ("*", ".*", "A16", "a16"),
    ("*", ".*", "A30", "a30"),
    ("*", ".*", "A40", "a40"),
    ("*", ".*", "L4", "l4"),
    ("*", ".*", "L40", "l40"),
    ("*", ".*", "L40S", "l40s"),
    ("aws|gcp|azure|oci", ".*", "A100", "a100-sxm4-40gb"),
    ("lambda", "gpu_(8x_a100|1x_a100_sxm4)", "A100", "a100-sxm4-40gb"),
    ("lambda", "gpu_[124]x_a100", "A100", "a100-pcie-40gb"),
    ("azure", "Standard_NC.*", "A100-80GB", "a100-pcie-80gb"),
    ("aws|gcp|azure|oci|lambda|verda", ".*", "A100-80GB", "a100-sxm4-80gb"),
    ("*", ".*", "A100-80GB-SXM", "a100-sxm4-80gb"),
    ("*", ".*sxm.*", "A100-80GB", "a100-sxm4-80gb"),
    ("runpod", ".*", "A100-80GB", "a100-pcie-80gb"),
    ("*", ".*", "A100-80G-PCIe(-NVLink)?", "a100-pcie-80gb"),
    ("azure", "Standard_NC.*", "H100", "h100-nvl-94gb"),
    ("lambda", ".*_pcie", "H100", "h100-pcie-80gb"),
    ("runpod|scaleway", ".*", "H100", "h100-pcie-80gb"),
    ("aws|gcp|azure|oci|lambda|do|nebius|verda", ".*", "H100", "h100-sxm5-80gb"),
    ("*", ".*nvl.*", "H100", "h100-nvl-94gb"),
    ("*", ".*sxm.*", "H100", "h100-sxm5-80gb"),
    ("*", ".*", "H100-(SXM|MEGA|NVLINK|80G-SXM5)", "h100-sxm5-80gb"),
    ("*", ".*", "H100-80G-PCIe(-NVLink)?", "h100-pcie-80gb"),
    ("*", ".*", "H100-NVL", "h100-nvl-94gb"),
    ("*", ".*", "H200(-SXM)?", "h200-sxm5-141gb"),
    ("*", ".*", "GH200", "gh200-96gb"),
    ("*", ".*", "B200", "b200-sxm"),
    ("*", ".*", "B300", "b300-sxm"),
    ("*", ".*", "MI300X", "mi300x"),
]  # fmt: skip


class Left(Counter[str]):
    """How many rows were left out, by reason."""


def gpu_of(cloud: str, instance: str, gpu_name: str) -> str | None:
    """The row of the GPU table that the cloud means, where it says so without doubt."""
    for clouds, instances, names, gpu in GPU_RULES:
        if (
            (clouds == "*" or re.fullmatch(clouds, cloud))
            and re.fullmatch(instances, instance, re.IGNORECASE)
            and re.fullmatch(names, gpu_name, re.IGNORECASE)
        ):
            return gpu
    return None


def read_list(path: Path) -> tuple[str, list[dict[str, str]]]:
    """The line that names the source, and the rows; unknown or missing columns are a mistake."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    if not first.startswith("# source: "):
        raise UserMistake(f"{path}: the first line must name the source, as `# source: ...`")
    reader = csv.DictReader(io.StringIO(rest))
    columns = set(reader.fieldnames or ())
    wanted = ONE_CLOUD
    if "cloud" in columns:
        wanted = MANY_CLOUDS
    elif "snapshot_date" in columns:
        wanted = SNAPSHOTS
    optional = ONE_CLOUD_OPTIONAL if wanted is ONE_CLOUD else set()
    if unknown := columns - wanted - optional:
        raise UserMistake(f"{path}: unknown column {', '.join(sorted(unknown))}")
    if missing := wanted - columns:
        raise UserMistake(f"{path}: column {', '.join(sorted(missing))} is missing")
    return first.removeprefix("# source: "), list(reader)


def prices_of(path: Path, left: Left) -> Iterator[Price]:
    """The prices of one list, without what can't be compared."""
    source_line, rows = read_list(path)
    source = source_line.partition(";")[0].partition(", file")[0]
    for row in rows:
        if "cloud" in row:
            yield from price_of(row, row["cloud"], row["file_date"], source, left)
            continue
        cloud = re.search(r"catalogs/v\d+/(\w+)[/.]", source_line)
        if snapshot := row.get("snapshot_date"):
            if cloud is None:
                raise UserMistake(f"{path}: the source line must name the cloud's path")
            for price in price_of(row, cloud[1], snapshot, source_line.partition(":")[0], left):
                yield price.model_copy(update={"id": f"{price.id}@{snapshot}"})
        else:
            date = re.search(r"last updated (\d{4}-\d\d-\d\d)", source_line)
            if cloud is None or date is None:
                raise UserMistake(f"{path}: the source line must name the cloud's path and a date")
            yield from price_of(row, cloud[1], date[1], source, left)


def price_of(
    row: dict[str, str], cloud: str, date: str, source: str, left: Left
) -> Iterator[Price]:
    """One row as a price, or nothing and a reason."""
    instance, gpu_name = row["instance"], row["gpu"]
    usd, spot = (
        _number(row, "price_usd_h", "min_price"),
        _number(row, "spot_usd_h", "min_spot", "min_spot_usd_h"),
    )
    count, most = _number(row, "count") or 0.0, _number(row, "max_price")
    reason = ""
    if not gpu_name:
        reason = "no GPU"
    elif NOT_A_GPU.search(gpu_name):
        reason = "an accelerator that is not a GPU"
    elif "MIG" in gpu_name or instance in SLICES or count != int(count) or count < 1:
        reason = "a slice of a GPU"
    elif not usd:
        reason = "no on-demand price, only spot"
    elif cloud == "mithril":
        reason = "the floor of an auction, not a price"
    if reason:
        left[reason] += 1
        return
    notes = []
    if cloud == "gcp" and not instance:
        instance = f"{gpu_name}x{int(count)}"
        notes.append("GPU only, host priced separately")
    if correct := WRONG_COUNTS.get((cloud, instance)):
        notes.append(f"the list says {int(count)} GPUs; it has {correct}")
        count = correct
    if row.get("n_regions", "1") != "1" and most is not None and most != usd:
        notes.append(f"lowest of {row['n_regions']} regions, highest {most:g}")
    yield Price(
        id=f"{cloud}/{instance}",
        cloud=cloud,
        instance=instance,
        region=row.get("region") or None,
        gpu=gpu_of(cloud, instance, gpu_name),
        gpu_name=gpu_name,
        gpus=int(count),
        vcpus=_number(row, "vcpus"),
        memory_gib=_number(row, "mem_gib"),
        usd_per_hour=round(usd or 0.0, 5),
        # Lists without a spot market repeat the on-demand price or say 0.
        spot_usd_per_hour=spot if spot and usd and spot < usd else None,
        source=source,
        date=datetime.date.fromisoformat(date),
        note="; ".join(notes),
    )


def _number(row: dict[str, str], *columns: str) -> float | None:
    return next((float(row[column]) for column in columns if row.get(column)), None)


def collect(paths: list[Path], left: Left) -> list[Price]:
    """All prices by id; of two with one id the first file's counts, and in a file the cheaper."""
    kept: dict[str, Price] = {}
    for path in paths:
        before = set(kept)
        for price in prices_of(path, left):
            other = kept.get(price.id)
            if other is not None:
                left["in an earlier file" if price.id in before else "twice in one file"] += 1
                if price.id in before or price.usd_per_hour >= other.usd_per_hour:
                    continue
            kept[price.id] = price
    for price in kept.values():
        if price.gpu is not None:
            gpus().get(price.gpu)
    return [kept[name] for name in sorted(kept)]


def write(prices: list[Price], output: Path) -> None:
    columns = list(Price.model_fields)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for price in prices:
        cells = price.model_dump(mode="json")
        writer.writerow({name: _cell(cells[name]) for name in columns})
    output.write_text(text.getvalue(), encoding="utf-8")


def _cell(value: object) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("lists", nargs="+", type=Path, help="price lists, the most exact first")
    parser.add_argument("--output", type=Path, required=True, help="the catalog's data file")
    options = parser.parse_args()
    left = Left()
    try:
        prices = collect(options.lists, left)
        write(prices, options.output)
    except (GpuyardError, OSError, ValueError) as error:
        print(f"import_prices: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 1)
    print(f"{len(prices)} prices written to {options.output}", file=sys.stderr)
    for reason, count in sorted(left.items()):
        print(f"  left out {count}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
