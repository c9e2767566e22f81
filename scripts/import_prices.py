"""Write src/gpuyard/catalog/data/prices.csv from price lists, so that nobody types a price.

    python scripts/import_prices.py cloud_prices_aws_gpu.csv cloud_prices_lambda.csv \\
        scripts/price_lists/{coreweave,aws_capacity_blocks,oci,azure}.csv \\
        cloud_prices_gpu_min.csv --output src/gpuyard/catalog/data/prices.csv

    python scripts/import_prices.py cloud_prices_aws_history.csv cloud_prices_gpu_min.csv --past \\
        --output src/gpuyard/catalog/data/past_prices.csv

With --past, what clouds have retired is kept and all that they still offer is left out. Each list starts with a line `# source: ...`. Three shapes are known: one cloud a file, whose cloud and
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

NOT_FOR_TRAINING = re.compile(r"inferentia|virtex|qualcomm|alveo|u30|tpu-v[23]", re.IGNORECASE)
# PyTorch has no ROCm build for them
UNSUPPORTED = ("Radeon Pro V520", "Radeon MI25")
# cores or chips in a slice's name → chips, for slices of one host
TPU_SLICES = {
    "tpu-v4-8": ("tpu-v4", 4),
    "tpu-v5litepod-1": ("tpu-v5e", 1),
    "tpu-v5litepod-4": ("tpu-v5e", 4),
    "tpu-v5litepod-8": ("tpu-v5e", 8),
    "tpu-v5p-8": ("tpu-v5p", 4),
    "tpu-v6e-1": ("tpu-v6e", 1),
    "tpu-v6e-4": ("tpu-v6e", 4),
    "tpu-v6e-8": ("tpu-v6e", 8),
}

_AZURE = "github.com/MicrosoftDocs/azure-docs articles/virtual-machines/sizes/migration-guides"
_RETIRED_SIZES = (
    "github.com/MicrosoftDocs/azure-compute-docs articles/virtual-machines/sizes/retirement/"
    "retired-sizes-list.md @0bdc5d34"
)
# (cloud, instance) as patterns -> the day on which the cloud stopped it, and where that is said
RETIRED: list[tuple[str, str, str, str]] = [
    ("azure", r"Standard_NC(6|12|24r?)(_Promo)?", "2023-09-06", f"{_AZURE}/nc-series-retirement.md"),
    ("azure", r"Standard_NV(6|12|24)(_Promo)?", "2023-09-06", f"{_AZURE}/nv-series-retirement.md"),
    ("azure", r"Standard_NC(6|12|24)r?s_v3", "2025-09-30", _RETIRED_SIZES),
    ("azure", r"Standard_NV(12|24|48)s_v3", "2026-09-30", _RETIRED_SIZES),
    ("azure", r"Standard_NV\d+as_v4", "2026-09-30", _RETIRED_SIZES),
]  # fmt: skip
CAPACITY_BLOCKS = re.compile(r"p5e\..*|u-p6e-.*|trn2\..*")

SLICES = {
    "Standard_NV4as_v4": "an eighth of a GPU",
    "Standard_NV8as_v4": "a quarter of a GPU",
    "Standard_NV16as_v4": "half a GPU",
}

HOSTS = Path(__file__).parent / "price_lists" / "gcp_hosts.csv"

WRONG_COUNTS = {("azure", "Standard_ND96isr_H100_v5"): 8}

# (cloud, instance, GPU name) as patterns that must match in full -> row of the GPU table. The first
# that matches counts.
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
    ("*", ".*", "MI355X", "mi355x"),
    ("*", ".*", "GB200", "gb200"),
    ("*", ".*", "GB300", "gb300"),
    ("aws", ".*", "T4g", "t4"),
    ("aws", ".*", "Trainium", "trainium-1"),
    ("aws", ".*", "Trainium2", "trainium-2"),
    ("*", ".*", "GAUDI2", "gaudi-2"),
    ("*", ".*", "RTX3060", "rtx-3060"),
    ("*", ".*", "RTX4060", "rtx-4060"),
    ("*", ".*", "RTX4070", "rtx-4070"),
    ("*", ".*", "RTX5070", "rtx-5070"),
    ("*", ".*", "RTX2000-Ada", "rtx-2000-ada"),
    ("*", ".*", "RTX4000-Ada", "rtx-4000-ada"),
    ("*", ".*", "RTX5880-Ada", "rtx-5880-ada"),
    ("*", ".*", "RTX ?PRO ?4000", "rtx-pro-4000-blackwell"),
    ("*", ".*", "RTX ?PRO ?4500(-SE)?", "rtx-pro-4500-blackwell"),
    ("*", ".*", "RTX ?PRO ?5000", "rtx-pro-5000-blackwell"),
    ("paperspace", ".*", "M4000", "quadro-m4000"),
    ("paperspace", ".*", "P4000", "quadro-p4000"),
    # brokers: the instance names the cloud behind it, or the board
    ("primeintellect", "(datacrunch|nebius)__.*", "H100", "h100-sxm5-80gb"),
    ("primeintellect", "datacrunch__.*", "A100-80GB", "a100-sxm4-80gb"),
    ("primeintellect", "datacrunch__.*", "A100", "a100-sxm4-40gb"),
    ("primeintellect", "datacrunch__.*", "V100", "v100-sxm2-16gb"),
    ("primeintellect", "lambdalabs__8x.*", "A100", "a100-sxm4-40gb"),
    ("primeintellect", "lambdalabs__8x.*", "A100-80GB", "a100-sxm4-80gb"),
    ("primeintellect", "lambdalabs__.*", "H100", "h100-sxm5-80gb"),
    ("primeintellect", "lambdalabs__8x.*", "V100", "v100-sxm2-16gb"),
    ("shadeform", "lambdalabs_A100x8", "A100", "a100-sxm4-40gb"),
    ("shadeform|vast", ".*sxm.*", "A100", "a100-sxm4-40gb"),
    ("vast|cudo", ".*pcie.*", "A100", "a100-pcie-40gb"),
]  # fmt: skip

# Names that may mean several GPUs: the least of them, and the row says so.
LEAST_RULES: list[tuple[str, str]] = [
    ("V100", "v100-pcie-16gb"),
    ("V100-32GB", "v100-pcie-32gb"),
    ("A100", "a100-pcie-40gb"),
    ("A100-80GB", "a100-pcie-80gb"),
    ("H100", "h100-pcie-80gb"),
    ("RTX6000", "quadro-rtx-6000"),
]


class Left(Counter[str]):
    """How many rows were left out, by reason."""


def gpu_of(cloud: str, instance: str, gpu_name: str) -> tuple[str | None, str]:
    """The row of the GPU table that the cloud means, and what had to be supposed for that."""
    for clouds, instances, names, gpu in GPU_RULES:
        if (
            (clouds == "*" or re.fullmatch(clouds, cloud))
            and re.fullmatch(instances, instance, re.IGNORECASE)
            and re.fullmatch(names, gpu_name, re.IGNORECASE)
        ):
            return gpu, ""
    for name, gpu in LEAST_RULES:
        if name == gpu_name:
            return gpu, f"which {name} is not said: taken as {gpu}, the least of them"
    return None, ""


def retired(cloud: str, instance: str) -> tuple[str, str] | None:
    """Since when the cloud has not offered it, and who says so."""
    for one, instances, date, source in RETIRED:
        if cloud == one and re.fullmatch(instances, instance):
            return date, source
    return None


def host_of(gpu_name: str, count: float) -> dict[str, str]:
    """What Google's machines cost around GPUs that are priced alone."""
    text = HOSTS.read_text(encoding="utf-8").partition("\n")[2]
    for row in csv.DictReader(io.StringIO(text)):
        if (row["gpu"], float(row["count"])) == (gpu_name, count):
            return row
    raise UserMistake(f"{HOSTS}: no host for {count:g} × {gpu_name}")


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


def prices_of(path: Path, left: Left, *, past: bool) -> Iterator[Price]:
    """The prices of one list, without what can't be compared."""
    source_line, rows = read_list(path)
    source = source_line.partition(";")[0].partition(", file")[0]
    for row in rows:
        if "cloud" in row:
            gone = retired(row["cloud"], row["instance"])
            if past != (gone is not None):
                left["still offered" if past else "retired by the cloud"] += 1
                continue
            for price in price_of(row, row["cloud"], row["file_date"], source, left):
                yield _as_past(price, *gone) if gone else price
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
    if reason := left_out_because(row, cloud):
        left[reason] += 1
        return
    price = Price(
        id=f"{cloud}/{row['instance'] or row['gpu']}",
        cloud=cloud,
        instance=row["instance"] or row["gpu"],
        region=row.get("region") or None,
        gpu=None,
        gpu_name=row["gpu"],
        gpus=int(_number(row, "count") or 0),
        vcpus=_number(row, "vcpus"),
        memory_gib=_number(row, "mem_gib"),
        usd_per_hour=_number(row, "price_usd_h", "min_price") or 0.0,
        spot_usd_per_hour=_number(row, "spot_usd_h", "min_spot", "min_spot_usd_h") or None,
        source=source,
        date=datetime.date.fromisoformat(date),
    )
    if price.gpu_name in TPU_SLICES:
        gpu, chips = TPU_SLICES[price.gpu_name]
        yield price.model_copy(update={"gpu": gpu, "gpus": chips})
        return
    named, supposed = gpu_of(cloud, row["instance"], price.gpu_name)
    notes = [supposed] if supposed else []
    if cloud == "gcp" and not row["instance"]:
        price = with_host(price)
    else:
        notes += _notes(row, price)
    usd, spot = price.usd_per_hour, price.spot_usd_per_hour
    yield price.model_copy(
        update={
            "gpu": named,
            "gpus": WRONG_COUNTS.get((cloud, price.instance), price.gpus),
            "usd_per_hour": round(usd, 5),
            # Lists without a spot market repeat the on-demand price or say 0.
            "spot_usd_per_hour": round(spot, 5) if spot and spot < usd else None,
            "note": "; ".join([*notes, price.note] if price.note else notes),
        }
    )


def left_out_because(row: dict[str, str], cloud: str) -> str:
    """Nothing where the row is a price that can be compared."""
    gpu_name, count = row["gpu"], _number(row, "count") or 0.0
    sliced = "MIG" in gpu_name or row["instance"] in SLICES or count != int(count) or count < 1
    reasons = {
        "no GPU": not gpu_name,
        "an accelerator that is not for training": NOT_FOR_TRAINING.search(gpu_name),
        "a GPU that PyTorch does not run on": gpu_name in UNSUPPORTED,
        "a slice of several hosts": gpu_name.startswith("tpu-") and gpu_name not in TPU_SLICES,
        "a slice of a GPU": sliced,
        "no on-demand price, only spot": not _number(row, "price_usd_h", "min_price"),
        "the floor of an auction, not a price": cloud == "mithril",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def with_host(price: Price) -> Price:
    """Google prices GPUs alone: the machine around them is added."""
    host = host_of(price.gpu_name, price.gpus)
    spot = price.spot_usd_per_hour
    both = spot + float(host["spot_usd_h"]) if spot and host["spot_usd_h"] else None
    return price.model_copy(
        update={
            "id": f"gcp/{price.gpu_name}x{price.gpus}",
            "instance": host["instance"],
            "vcpus": float(host["vcpus"]),
            "memory_gib": float(host["mem_gib"]),
            "usd_per_hour": price.usd_per_hour + float(host["price_usd_h"]),
            "spot_usd_per_hour": both,
            "note": f"GPUs and host added up; host: {host['source']}",
        }
    )


def _notes(row: dict[str, str], price: Price) -> Iterator[str]:
    if price.cloud == "aws" and CAPACITY_BLOCKS.fullmatch(price.instance):
        yield "sold as Capacity Block, booked ahead for one day to half a year"
    if correct := WRONG_COUNTS.get((price.cloud, price.instance)):
        yield f"the list says {price.gpus} GPUs; it has {correct}"
    most = _number(row, "max_price")
    if row.get("n_regions", "1") != "1" and most is not None and most != price.usd_per_hour:
        yield f"lowest of {row['n_regions']} regions, highest {most:g}"


def _as_past(price: Price, since: str, source: str) -> Price:
    note = f"{price.cloud} stopped offering it on {since} ({source})"
    return price.model_copy(
        update={
            "id": f"{price.id}@{price.date}",
            "note": "; ".join(part for part in (note, price.note) if part),
        }
    )


def _number(row: dict[str, str], *columns: str) -> float | None:
    return next((float(row[column]) for column in columns if row.get(column)), None)


def collect(paths: list[Path], left: Left, *, past: bool) -> list[Price]:
    """All prices by id; of two with one id the first file's counts, and in a file the cheaper."""
    kept: dict[str, Price] = {}
    for path in paths:
        before = set(kept)
        for price in prices_of(path, left, past=past):
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
    parser.add_argument("--past", action="store_true", help="keep what clouds have retired")
    options = parser.parse_args()
    left = Left()
    try:
        prices = collect(options.lists, left, past=options.past)
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
