"""Parse and format quantities as people write them: "10 Gbit/s", "$1.50/h", "2 weeks".

Inside the code, all quantities are in base units: bytes, bytes per second, seconds, dollars, and watts.
Decimal prefixes are powers of 1000, as on network and storage labels; binary prefixes are KiB, MiB.
"""

import re
from dataclasses import dataclass

from gpuyard.errors import BadQuantity, closest_name, quote

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


_MAX_NUMBER = 1e30  # a larger number is a typo, not a quantity
_MAX_CHARACTERS = 100  # a longer text is not a quantity, and matching it would be slow


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity: its units, an example for error messages, and the meaning of a bare number."""

    name: str
    example: str
    factors: dict[str, float]
    bare_factor: float | None = None  # None: a number without a unit is a mistake

    @property
    def unit_names(self) -> str:
        """The units with one spelling each: "h", without "hour" and "hours"."""
        spellings: dict[float, str] = {}
        for unit, factor in self.factors.items():
            spellings.setdefault(factor, unit)
        return ", ".join(spellings.values())


SIZE = Dimension("a size", "46 MB", _SIZES, bare_factor=1.0)
RATE = Dimension("a rate", "10 Gbit/s", _RATES)
_MEMORY = Dimension("a size", "12GB", _SIZES)
TOKENS = Dimension(
    "a number of tokens", "20B", {"k": 1e3, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}, 1.0
)
POWER = Dimension("a power", "20 kW", {f"{p}W": f for p, f in _DECIMAL.items()})


def parse(quantity: str | float, dimension: Dimension) -> float:
    """Return the quantity in base units. Raise BadQuantity, which says what is allowed."""
    if isinstance(quantity, int | float):
        text, number, unit = str(quantity), float(quantity), ""
    else:
        text = quantity
        match = _NUMBER.match(text) if len(text) <= _MAX_CHARACTERS else None
        if match is None:
            raise BadQuantity(
                f"{quote(text)} is not {dimension.name}; write it like {dimension.example!r}"
            )
        number, unit = float(match[1].replace(",", "")), match[2]
    if not number < _MAX_NUMBER or number < 0:
        raise BadQuantity(f"{text!r} is not {dimension.name}: must be zero or more, and finite")
    if unit == "" and dimension.bare_factor is not None:
        return number * dimension.bare_factor
    if unit == "":
        raise BadQuantity(
            f"{text!r} has no unit; write {dimension.name} like {dimension.example!r}"
        )
    if unit not in dimension.factors:
        closest = closest_name(unit, dimension.factors)
        hint = f"did you mean {closest!r}?" if closest else f"use {dimension.unit_names}"
        raise BadQuantity(f"{unit!r} in {text!r} is not a unit of {dimension.name}; {hint}")
    return number * dimension.factors[unit]


def parse_positive(quantity: str | float, dimension: Dimension) -> float:
    """Return the quantity in base units, and refuse zero."""
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
    """ "2h" → 7200. The example is for the error message and fits the option: leases don't last 30 us."""
    return parse(quantity, Dimension("a duration", example, _DURATION))


def parse_short_duration(quantity: str | float) -> float:
    """ "30 us" → 3e-5, for durations like a network hop or the decoding of a sample."""
    return parse_seconds(quantity, "30 us")


def parse_years(quantity: str | float) -> float:
    """ "3 years" → 94672800, for durations like a planning horizon or a machine's age."""
    return parse_seconds(quantity, "3 years")


def parse_memory(quantity: str | float) -> float:
    """ "12GB" → 12e9. A bare number is refused: as a memory size in bytes, it would be a mistake."""
    return parse_positive(quantity, _MEMORY)


def parse_tokens(quantity: str | float) -> float:
    """ "20B" → 2e10."""
    return parse_positive(quantity, TOKENS)


def parse_watts(quantity: str | float) -> float:
    """ "20 kW" → 20000."""
    return parse(quantity, POWER)


def _parse_money(quantity: str | float, per: frozenset[str], example: str) -> float:
    text = str(quantity)
    match = _MONEY.match(text) if len(text) <= _MAX_CHARACTERS else None
    if match is None or match[3] not in per:
        raise BadQuantity(f"{quote(text)} is not a price; write it like {example!r}")
    usd = float(match[1].replace(",", "")) * {"": 1.0, "k": 1e3, "M": 1e6}[match[2]]
    if not usd < _MAX_NUMBER:
        raise BadQuantity(f"{text!r} is not a price: the number is too large")
    return usd


def parse_usd(quantity: str | float) -> float:
    """ "$8,000" → 8000."""
    return _parse_money(quantity, frozenset({""}), "$8000")


def parse_usd_per_year(quantity: str | float) -> float:
    """ "$15000/year" → 15000."""
    return _parse_money(quantity, frozenset({"/year", "per year", "a year"}), "$15000/year")


def parse_usd_per_hour(quantity: str | float) -> float:
    """ "$1.50/h" → 1.5. The "/h" is required: a bare price does not say what it buys."""
    return _parse_money(quantity, frozenset({"/h", "/hour", "per hour", "an hour"}), "$1.50/h")


def parse_usd_per_kwh(quantity: str | float) -> float:
    """ "$0.12/kWh" → 0.12."""
    return _parse_money(quantity, frozenset({"/kWh", "per kWh", "a kWh"}), "$0.12/kWh")


def parse_usd_per_kw_month(quantity: str | float) -> float:
    """ "$184/kW/month" → 184."""
    per = frozenset({"/kW/month", "/kW a month", "per kW and month"})
    return _parse_money(quantity, per, "$184/kW/month")


def parse_share(quantity: str | float) -> float:
    """ "30%" → 0.3; a bare number is already a share."""
    text = str(quantity).strip()
    percent = text.endswith("%")
    try:
        share = float(text.removesuffix("%")) / (100 if percent else 1)
    except ValueError:
        raise BadQuantity(f"{quote(text)} is not a share; write it like '30%' or 0.3") from None
    if not 0 <= share <= 1:
        hint = f"; did you mean '{text}%'?" if not percent and 1 < share <= 100 else ""
        raise BadQuantity(f"{quote(text)} is not a share: must be between 0% and 100%{hint}")
    return share


def _format_scaled(value: float, units: list[tuple[float, str]]) -> str:
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
    return _format_scaled(
        size_bytes, [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1, "B")]
    )


def format_bit_rate(bytes_per_second: float) -> str:
    """1.25e9 → "10 Gbit/s", as networks are labeled."""
    return _format_scaled(
        bytes_per_second * 8, [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s"), (1, "bit/s")]
    )


def format_byte_rate(bytes_per_second: float) -> str:
    """12e9 → "12 GB/s", as links inside a machine are labeled."""
    return _format_scaled(
        bytes_per_second, [(1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1, "B/s")]
    )


def format_tokens(tokens: float) -> str:
    """2e10 → "20 B"."""
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if tokens >= size:
            return f"{tokens / size:.3g} {unit}"
    return f"{tokens:,.0f}"


def format_watts(watts: float) -> str:
    """10200 → "10.2 kW"."""
    return _format_scaled(watts, [(1e6, "MW"), (1e3, "kW"), (1, "W")])


def format_seconds(seconds: float) -> str:
    """0.0032 → "3.2 ms"."""
    text = _format_scaled(
        seconds, [(86400, "days"), (3600, "h"), (60, "min"), (1, "s"), (1e-3, "ms"), (1e-6, "µs")]
    )
    return "1 day" if text == "1 days" else text


def format_rough_seconds(seconds: float) -> str:
    """1337 → "22 min": two digits, for times that are estimates anyway."""
    year = _DURATION["year"]
    if seconds >= year:
        return format_years(float(f"{seconds / year:.2g}"))
    steps = [(86400.0, "days"), (3600.0, "h"), (60.0, "min"), (1.0, "s")]
    # 59.7 s is 60 s, and so a minute
    size, unit = next(
        ((size, unit) for size, unit in steps if float(f"{seconds / size:.2g}") >= 1), (1.0, "s")
    )
    text = f"{float(f'{seconds / size:.2g}'):g}"
    return "1 day" if (text, unit) == ("1", "days") else f"{text} {unit}"


def format_duration(seconds: float) -> str:
    """Format like `format_seconds`, and in years from one year on."""
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
    """8000 → "$8,000"; cents only below $100."""
    size = abs(usd)
    return f"{'-' if usd < 0 else ''}${size:,.{2 if size < 100 else 0}f}"


def format_number(value: float) -> str:
    """1234.5 → "1,234"; numbers below 100 keep three digits: 0.398."""
    return f"{value:,.0f}" if abs(value) >= 100 or float(value).is_integer() else f"{value:.3g}"


def format_per_second(rate: float) -> str:
    """Format a rate per second for a table column: "1,153.7", "0.398"."""
    return f"{rate:,.1f}" if abs(rate) >= 10 else f"{rate:.3g}"


def format_interval(low: float, high: float) -> str:
    """Format both ends of an interval: "0.28 – 0.503"."""
    return f"{format_number(low)} – {format_number(high)}"


def format_count(number: int, noun: str) -> str:
    """ "1 worker", "1,024 workers"."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def format_rough_usd(usd: float) -> str:
    """66378 → "$66,000", an estimate with two digits."""
    return f"${float(f'{usd:.1e}'):,.0f}"


def format_effective_gpus(gpus: float) -> str:
    """Format the number of ideal GPUs with the same throughput: 4.93 → "4.9", 0.043 → "0.04"."""
    return f"{gpus:.1f}" if gpus >= 0.1 else f"{gpus:.2f}" if gpus >= 0.005 else "less than 0.01"


def format_share(share: float) -> str:
    """0.27 → "27%", 0.002 → "0.2%"."""
    if 0 < share < 0.0005:
        return "under 0.1%"
    return f"{100 * share:.1f}%" if 0 < share < 0.005 else f"{100 * share:.0f}%"
