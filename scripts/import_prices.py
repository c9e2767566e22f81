"""Write src/gpuyard/catalog/data/prices.csv from price lists, so that no price is typed by hand.

    python scripts/import_prices.py cloud_prices_aws_gpu.csv cloud_prices_lambda.csv \\
        scripts/price_lists/{coreweave,aws_capacity_blocks,oci,azure}.csv \\
        cloud_prices_gpu_min.csv --output src/gpuyard/catalog/data/prices.csv

    python scripts/import_prices.py cloud_prices_aws_history.csv cloud_prices_gpu_min.csv --past \\
        --output src/gpuyard/catalog/data/past_prices.csv

With --past, the output contains only instances that clouds have retired. Each list starts with a line `# source: ...`. There
are three formats: one cloud, whose name and date are in the first line; many clouds with the lowest price over their regions;
and dated snapshots of one cloud, whose ids end with the date of their row. If two files price the same instance, the first
file wins. Skipped rows are counted on standard error.
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
# PyTorch has no ROCm build for these
UNSUPPORTED = ("Radeon Pro V520", "Radeon MI25")
# slice name, which counts cores or chips → chips, for slices on one host
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
# patterns of (cloud, instance) → retirement date and its source
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

# patterns of (cloud, instance, GPU name) that must match in full → GPU id; the first match wins
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
    # brokers: the instance name contains the cloud behind it or the board
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

# ambiguous names → the slowest GPU with that name; a note in the row says so
AMBIGUOUS_NAMES: list[tuple[str, str]] = [
    ("V100", "v100-pcie-16gb"),
    ("V100-32GB", "v100-pcie-32gb"),
    ("A100", "a100-pcie-40gb"),
    ("A100-80GB", "a100-pcie-80gb"),
    ("H100", "h100-pcie-80gb"),
    ("RTX6000", "quadro-rtx-6000"),
]


class SkippedRows(Counter[str]):
    """The number of skipped rows by reason."""


def identify_gpu(cloud: str, instance: str, gpu_name: str) -> tuple[str | None, str]:
    """Return the GPU id that the cloud's name refers to, and any assumption behind it."""
    for clouds, instances, names, gpu in GPU_RULES:
        if (
            (clouds == "*" or re.fullmatch(clouds, cloud))
            and re.fullmatch(instances, instance, re.IGNORECASE)
            and re.fullmatch(names, gpu_name, re.IGNORECASE)
        ):
            return gpu, ""
    for name, gpu in AMBIGUOUS_NAMES:
        if name == gpu_name:
            return gpu, f"which {name} is not said: taken as {gpu}, the least of them"
    return None, ""


def find_retirement(cloud: str, instance: str) -> tuple[str, str] | None:
    """Return the date on which the cloud retired the instance, and the source of that date."""
    for retiring_cloud, instances, date, source in RETIRED:
        if cloud == retiring_cloud and re.fullmatch(instances, instance):
            return date, source
    return None


def find_host(gpu_name: str, count: float) -> dict[str, str]:
    """Find the price of the Google machine for GPUs that are priced separately."""
    text = HOSTS.read_text(encoding="utf-8").partition("\n")[2]
    for row in csv.DictReader(io.StringIO(text)):
        if (row["gpu"], float(row["count"])) == (gpu_name, count):
            return row
    raise UserMistake(f"{HOSTS}: host for {count:g} × {gpu_name} not found; add a row")


def read_list(path: Path) -> tuple[str, list[dict[str, str]]]:
    """Return the source line and the rows; reject unknown and missing columns."""
    first, _, rest = path.read_text(encoding="utf-8").partition("\n")
    if not first.startswith("# source: "):
        raise UserMistake(f"{path}: the first line must name the source, as `# source: ...`")
    reader = csv.DictReader(io.StringIO(rest))
    columns = set(reader.fieldnames or ())
    required = ONE_CLOUD
    if "cloud" in columns:
        required = MANY_CLOUDS
    elif "snapshot_date" in columns:
        required = SNAPSHOTS
    optional = ONE_CLOUD_OPTIONAL if required is ONE_CLOUD else set()
    if unknown := columns - required - optional:
        raise UserMistake(f"{path}: unknown column {', '.join(sorted(unknown))}")
    if missing := required - columns:
        raise UserMistake(f"{path}: column {', '.join(sorted(missing))} is missing")
    return first.removeprefix("# source: "), list(reader)


def read_prices(path: Path, skipped: SkippedRows, *, past: bool) -> Iterator[Price]:
    """Read the prices of one list, without rows that cannot be compared."""
    source_line, rows = read_list(path)
    source = source_line.partition(";")[0].partition(", file")[0]
    for row in rows:
        if "cloud" in row:
            gone = find_retirement(row["cloud"], row["instance"])
            if past != (gone is not None):
                skipped["still offered" if past else "retired by the cloud"] += 1
                continue
            for price in build_prices(row, row["cloud"], row["file_date"], source, skipped):
                yield _mark_retired(price, *gone) if gone else price
            continue
        cloud = re.search(r"catalogs/v\d+/(\w+)[/.]", source_line)
        if snapshot := row.get("snapshot_date"):
            if cloud is None:
                raise UserMistake(f"{path}: the source line must name the cloud's path")
            for price in build_prices(
                row, cloud[1], snapshot, source_line.partition(":")[0], skipped
            ):
                yield price.model_copy(update={"id": f"{price.id}@{snapshot}"})
        else:
            date = re.search(r"last updated (\d{4}-\d\d-\d\d)", source_line)
            if cloud is None or date is None:
                raise UserMistake(f"{path}: the source line must name the cloud's path and a date")
            yield from build_prices(row, cloud[1], date[1], source, skipped)


def build_prices(
    row: dict[str, str], cloud: str, date: str, source: str, skipped: SkippedRows
) -> Iterator[Price]:
    """Convert one row to a price, or count the reason to skip it."""
    if reason := find_skip_reason(row, cloud):
        skipped[reason] += 1
        return
    price = Price(
        id=f"{cloud}/{row['instance'] or row['gpu']}",
        cloud=cloud,
        instance=row["instance"] or row["gpu"],
        region=row.get("region") or None,
        gpu=None,
        gpu_name=row["gpu"],
        gpus=int(_parse_number(row, "count") or 0),
        vcpus=_parse_number(row, "vcpus"),
        memory_gib=_parse_number(row, "mem_gib"),
        usd_per_hour=_parse_number(row, "price_usd_h", "min_price") or 0.0,
        spot_usd_per_hour=_parse_number(row, "spot_usd_h", "min_spot", "min_spot_usd_h") or None,
        source=source,
        date=datetime.date.fromisoformat(date),
    )
    if price.gpu_name in TPU_SLICES:
        gpu, chips = TPU_SLICES[price.gpu_name]
        yield price.model_copy(update={"gpu": gpu, "gpus": chips})
        return
    gpu_id, assumption = identify_gpu(cloud, row["instance"], price.gpu_name)
    notes = [assumption] if assumption else []
    if cloud == "gcp" and not row["instance"]:
        price = add_host(price)
    else:
        notes += _list_notes(row, price)
    usd, spot = price.usd_per_hour, price.spot_usd_per_hour
    yield price.model_copy(
        update={
            "gpu": gpu_id,
            "gpus": WRONG_COUNTS.get((cloud, price.instance), price.gpus),
            "usd_per_hour": round(usd, 5),
            # Lists without a spot market repeat the on-demand price or have 0.
            "spot_usd_per_hour": round(spot, 5) if spot and spot < usd else None,
            "note": "; ".join([*notes, price.note] if price.note else notes),
        }
    )


def find_skip_reason(row: dict[str, str], cloud: str) -> str:
    """Return why the row cannot be compared, or an empty string if it can."""
    gpu_name, count = row["gpu"], _parse_number(row, "count") or 0.0
    sliced = "MIG" in gpu_name or row["instance"] in SLICES or count != int(count) or count < 1
    reasons = {
        "no GPU": not gpu_name,
        "an accelerator that is not for training": NOT_FOR_TRAINING.search(gpu_name),
        "a GPU that PyTorch does not run on": gpu_name in UNSUPPORTED,
        "a slice of several hosts": gpu_name.startswith("tpu-") and gpu_name not in TPU_SLICES,
        "a slice of a GPU": sliced,
        "no on-demand price, only spot": not _parse_number(row, "price_usd_h", "min_price"),
        "the floor of an auction, not a price": cloud == "mithril",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


def add_host(price: Price) -> Price:
    """Add the price of the host machine, because Google prices GPUs separately."""
    host = find_host(price.gpu_name, price.gpus)
    spot = price.spot_usd_per_hour
    total_spot = spot + float(host["spot_usd_h"]) if spot and host["spot_usd_h"] else None
    return price.model_copy(
        update={
            "id": f"gcp/{price.gpu_name}x{price.gpus}",
            "instance": host["instance"],
            "vcpus": float(host["vcpus"]),
            "memory_gib": float(host["mem_gib"]),
            "usd_per_hour": price.usd_per_hour + float(host["price_usd_h"]),
            "spot_usd_per_hour": total_spot,
            "note": f"GPUs and host added up; host: {host['source']}",
        }
    )


def _list_notes(row: dict[str, str], price: Price) -> Iterator[str]:
    if price.cloud == "aws" and CAPACITY_BLOCKS.fullmatch(price.instance):
        yield "sold as Capacity Block, booked ahead for one day to half a year"
    if correct := WRONG_COUNTS.get((price.cloud, price.instance)):
        yield f"the list says {price.gpus} GPUs; it has {correct}"
    highest = _parse_number(row, "max_price")
    if row.get("n_regions", "1") != "1" and highest is not None and highest != price.usd_per_hour:
        yield f"lowest of {row['n_regions']} regions, highest {highest:g}"


def _mark_retired(price: Price, since: str, source: str) -> Price:
    note = f"{price.cloud} stopped offering it on {since} ({source})"
    return price.model_copy(
        update={
            "id": f"{price.id}@{price.date}",
            "note": "; ".join(part for part in (note, price.note) if part),
        }
    )


def _parse_number(row: dict[str, str], *columns: str) -> float | None:
    return next((float(row[column]) for column in columns if row.get(column)), None)


def collect_prices(paths: list[Path], skipped: SkippedRows, *, past: bool) -> list[Price]:
    """Return all prices sorted by id; the first file wins, and within a file the cheaper price."""
    kept: dict[str, Price] = {}
    for path in paths:
        before = set(kept)
        for price in read_prices(path, skipped, past=past):
            other = kept.get(price.id)
            if other is not None:
                skipped["in an earlier file" if price.id in before else "twice in one file"] += 1
                if price.id in before or price.usd_per_hour >= other.usd_per_hour:
                    continue
            kept[price.id] = price
    for price in kept.values():
        if price.gpu is not None:
            gpus().get(price.gpu)
    return [kept[name] for name in sorted(kept)]


def write_prices(prices: list[Price], output: Path) -> None:
    columns = list(Price.model_fields)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    for price in prices:
        cells = price.model_dump(mode="json")
        writer.writerow({name: _format_cell(cells[name]) for name in columns})
    output.write_text(text.getvalue(), encoding="utf-8")


def _format_cell(value: object) -> str:
    if isinstance(value, float):
        return repr(int(value)) if value.is_integer() else repr(value)
    return "" if value is None else str(value)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("lists", nargs="+", type=Path, help="price lists, the most exact first")
    parser.add_argument("--output", type=Path, required=True, help="the catalog's data file")
    parser.add_argument(
        "--past", action="store_true", help="write only instances that clouds have retired"
    )
    options = parser.parse_args()
    skipped = SkippedRows()
    try:
        prices = collect_prices(options.lists, skipped, past=options.past)
        write_prices(prices, options.output)
    except (GpuyardError, OSError, ValueError) as error:
        print(f"import_prices: {error}", file=sys.stderr)
        return getattr(error, "exit_status", 1)
    print(f"{len(prices)} prices written to {options.output}", file=sys.stderr)
    for reason, count in sorted(skipped.items()):
        print(f"  skipped {count}: {reason}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
