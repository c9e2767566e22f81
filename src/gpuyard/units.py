"""Quantities as people write them ("10 Gbit/s", "$1.50/h", "2 weeks") and as the code keeps them.

Inside the code everything is in base units: bytes, bytes per second, seconds, dollars, watts.
Decimal prefixes are powers of 1000, as on network and storage labels; binary ones are written KiB, MiB.
"""

import re
from dataclasses import dataclass

from gpuyard.errors import BadQuantity, closest_name, quoted

_DECIMAL = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_BINARY = {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
_DURATION = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "day": 86400.0,
    "days": 86400.0,
    "d": 86400.0,
    "week": 604800.0,
    "weeks": 604800.0,
    "month": 365.25 / 12 * 86400.0,
    "months": 365.25 / 12 * 86400.0,
    "year": 365.25 * 86400.0,
    "years": 365.25 * 86400.0,
}
_SIZES = {f"{p}B": f for p, f in (_DECIMAL | _BINARY).items()} | {"bytes": 1.0, "KB": 1e3}
_RATES = (
    {f"{p}bit/s": f / 8 for p, f in _DECIMAL.items()}
    | {f"{p}bps": f / 8 for p, f in _DECIMAL.items()}
    | {f"{p}B/s": f for p, f in (_DECIMAL | _BINARY).items()}
)
# commas only between thousands: "10,5" is a mistake, not 105
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d*)?|\.\d+"
_NUMBER = re.compile(rf"^\s*([+-]?(?:{_DIGITS})(?:[eE][+-]?\d+)?)(?![\d,.])\s*(.*?)\s*$")
_MONEY = re.compile(
    rf"^\s*(?:(?:\$|USD)\s*)?({_DIGITS})(?![\d,.])\s*([kM]?)\s*(?:USD)?\s*(.*?)\s*$"
)


_MOST = 1e30  # beyond this a number is a slip, not a quantity
_LONGEST = 100  # characters: what is longer is none, and takes long to look through


@dataclass(frozen=True)
class Dimension:
    """One kind of quantity: its units, an example for the error message, and what a bare number means."""

    name: str
    example: str
    factors: dict[str, float]
    bare_factor: float | None = None  # None: a number without a unit is a mistake

    @property
    def one_spelling_each(self) -> str:
        """Its units: h, and not also hour and hours."""
        first: dict[float, str] = {}
        for unit, factor in self.factors.items():
            first.setdefault(factor, unit)
        return ", ".join(first.values())


SIZE = Dimension("a size", "46 MB", _SIZES, bare_factor=1.0)
RATE = Dimension("a rate", "10 Gbit/s", _RATES)
_MEMORY = Dimension("a size", "12GB", _SIZES)
POWER = Dimension("a power", "20 kW", {f"{p}W": f for p, f in _DECIMAL.items()})


def parse(quantity: str | float, dimension: Dimension) -> float:
    """The quantity in base units. Raises BadQuantity with what is allowed."""
    if isinstance(quantity, int | float):
        text, number, unit = str(quantity), float(quantity), ""
    else:
        text = quantity
        match = _NUMBER.match(text) if len(text) <= _LONGEST else None
        if match is None:
            raise BadQuantity(
                f"{quoted(text)} is not {dimension.name}; write it like {dimension.example!r}"
            )
        number, unit = float(match[1].replace(",", "")), match[2]
    if not number < _MOST or number < 0:
        raise BadQuantity(f"{text!r} is not {dimension.name}: must be zero or more, and finite")
    if unit == "" and dimension.bare_factor is not None:
        return number * dimension.bare_factor
    if unit == "":
        raise BadQuantity(
            f"{text!r} has no unit; write {dimension.name} like {dimension.example!r}"
        )
    if unit not in dimension.factors:
        closest = closest_name(unit, dimension.factors)
        hint = (
            f"did you mean {closest!r}?"
            if closest
            else f"its units are {dimension.one_spelling_each}"
        )
        raise BadQuantity(f"{unit!r} in {text!r} is not a unit of {dimension.name}; {hint}")
    return number * dimension.factors[unit]


def parse_positive(quantity: str | float, dimension: Dimension) -> float:
    """The same, for what can't be zero: a link, a price of time."""
    value = parse(quantity, dimension)
    if value == 0:
        raise BadQuantity(f"{str(quantity)!r} is not {dimension.name}: must be above zero")
    return value


def parse_bytes(quantity: str | float) -> float:
    """ "46 MB" → 46e6."""
    return parse(quantity, SIZE)


def parse_rate(quantity: str | float) -> float:
    """ "10 Gbit/s" → 1.25e9 bytes per second."""
    return parse_positive(quantity, RATE)


def parse_seconds(quantity: str | float, example: str = "2h") -> float:
    """ "2h" → 7200. The example is of what is asked for: nobody leases a GPU for 30 us."""
    return parse(quantity, Dimension("a duration", example, _DURATION))


def parse_moment(quantity: str | float) -> float:
    """ "30 us" → 3e-5: a hop, the decoding of a sample."""
    return parse_seconds(quantity, "30 us")


def parse_years(quantity: str | float) -> float:
    """ "3 years" → 94672800: a horizon, a machine's age."""
    return parse_seconds(quantity, "3 years")


def parse_memory(quantity: str | float) -> float:
    """ "12GB" → 12e9: a number alone is none, for nobody wants so few bytes."""
    return parse_positive(quantity, _MEMORY)


def parse_watts(quantity: str | float) -> float:
    """ "20 kW" → 20000."""
    return parse(quantity, POWER)


def _parse_money(quantity: str | float, per: frozenset[str], example: str) -> float:
    text = str(quantity)
    match = _MONEY.match(text) if len(text) <= _LONGEST else None
    if match is None or match[3] not in per:
        raise BadQuantity(f"{quoted(text)} is not a price; write it like {example!r}")
    usd = float(match[1].replace(",", "")) * {"": 1.0, "k": 1e3, "M": 1e6}[match[2]]
    if not usd < _MOST:
        raise BadQuantity(f"{text!r} is not a price: nothing costs as much")
    return usd


def parse_usd(quantity: str | float) -> float:
    """ "$8,000" → 8000."""
    return _parse_money(quantity, frozenset({""}), "$8000")


def parse_usd_per_year(quantity: str | float) -> float:
    """ "$15000/year" → 15000."""
    return _parse_money(quantity, frozenset({"/year", "per year", "a year"}), "$15000/year")


def parse_usd_per_hour(quantity: str | float) -> float:
    """ "$1.50/h" → 1.5. The "/h" must be there: a bare price does not say what it buys."""
    return _parse_money(quantity, frozenset({"/h", "/hour", "per hour", "an hour"}), "$1.50/h")


def parse_usd_per_kwh(quantity: str | float) -> float:
    """ "$0.12/kWh" → 0.12."""
    return _parse_money(quantity, frozenset({"/kWh", "per kWh", "a kWh"}), "$0.12/kWh")


def parse_usd_per_kw_month(quantity: str | float) -> float:
    """ "$184/kW/month" → 184."""
    per = frozenset({"/kW/month", "/kW a month", "per kW and month"})
    return _parse_money(quantity, per, "$184/kW/month")


def parse_share(quantity: str | float) -> float:
    """ "30 %" → 0.3; a bare number is a share already."""
    text = str(quantity).strip()
    percent = text.endswith("%")
    try:
        share = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise BadQuantity(f"{quoted(text)} is not a share; write it like '30 %' or 0.3") from None
    if not 0 <= share <= 1:
        meant = f"; did you mean '{text} %'?" if not percent and 1 < share <= 100 else ""
        raise BadQuantity(f"{quoted(text)} is not a share: must be between 0 % and 100 %{meant}")
    return share


def _scaled(value: float, units: list[tuple[float, str]]) -> str:
    for factor, unit in units:
        if abs(value) >= factor * 0.9995:
            return (
                f"{value / factor:.3g} {unit}"
                if value / factor < 999.5
                else f"{value / factor:,.0f} {unit}"
            )
    factor, unit = units[-1]
    return f"{value / factor:.3g} {unit}"


def format_bytes(size_bytes: float) -> str:
    """46e6 → "46 MB"."""
    return _scaled(size_bytes, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")])


def format_bit_rate(bytes_per_second: float) -> str:
    """1.25e9 → "10 Gbit/s": how networks are named."""
    return _scaled(
        bytes_per_second * 8, [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")]
    )


def format_byte_rate(bytes_per_second: float) -> str:
    """12e9 → "12 GB/s": how links inside a machine are named."""
    return _scaled(bytes_per_second, [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")])


def format_watts(watts: float) -> str:
    """10200 → "10.2 kW"."""
    return _scaled(watts, [(1e6, "MW"), (1e3, "kW"), (1, "W")])


def format_seconds(seconds: float) -> str:
    """0.0032 → "3.2 ms"."""
    text = _scaled(
        seconds, [(86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")]
    )
    return "1 day" if text == "1 days" else text


def format_duration(seconds: float) -> str:
    """As `format_seconds`, and in years where it is that long."""
    year = _DURATION["year"]
    return format_years(seconds / year) if seconds >= year else format_seconds(seconds)


def format_years(years: float) -> str:
    """1 → "1 year", 1.5 → "1.5 years"."""
    text = f"{years:.3g}"
    return f"{text} year" if text == "1" else f"{text} years"


def format_months(months: int) -> str:
    """1 → "1 month"."""
    return f"{months:,} month{'' if months == 1 else 's'}"


def format_usd(usd: float) -> str:
    """8000 → "$8,000"; cents only where they matter."""
    size = abs(usd)
    return f"{'-' if usd < 0 else ''}${size:,.{2 if size < 100 else 0}f}"


def format_number(value: float) -> str:
    """1234.5 → "1,234"; smaller ones keep three digits: 0.398."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def format_per_second(rate: float) -> str:
    """How many a second, for columns of them: "1,153.7", "0.398"."""
    return f"{rate:,.1f}" if abs(rate) >= 10 else f"{rate:.3g}"


def format_interval(low: float, high: float) -> str:
    """ "0.28 – 0.503": what lies in between can be told from both ends."""
    return f"{format_number(low)} – {format_number(high)}"


def counted(number: int, noun: str) -> str:
    """ "1 worker", "1,024 workers"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_about_usd(usd: float) -> str:
    """66378 → "$66,000": an estimate with two digits."""
    return f"${float(f'{usd:.1e}'):,.0f}"


def format_effective(gpus: float) -> str:
    """How many GPUs do as much: 4.93 → "4.9", 0.043 → "0.04"."""
    return f"{gpus:.1f}" if gpus >= 0.1 else f"{gpus:.2f}" if gpus >= 0.005 else "less than 0.01"


def format_share(share: float) -> str:
    """0.27 → "27 %", 0.002 → "0.2 %"."""
    if 0 < share < 0.0005:
        return "under 0.1 %"
    return f"{100 * share:.1f} %" if 0 < share < 0.005 else f"{100 * share:.0f} %"
