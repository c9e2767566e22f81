"""Shared parts of all specs: strict keys, quantities with units, and names that must be in the catalog."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError
from pydantic_core.core_schema import ValidationInfo

from gpuyard import units
from gpuyard.errors import BadQuantity, UserMistake, describe_unknown, did_you_mean, quote
from gpuyard.printable import find_control_character

_SHORT_FORM = re.compile(
    r"(?:(\d{1,12})\s*[xX×]\s*)?(?:(\d{1,12})\s*[xX×]\s*)?([^@\s]+?(?: [^@\s]+?)*?)(?:(?<!:):(\d{1,12}))?(?:\s*@\s*(.+))?"
)
_SEPARATORS = re.compile(r"[\s_-]+")
_RAILS = re.compile(r"^(\d{1,3})\s*[xX×]\s*(.+)$")
# a network's rate is in bits, whatever the case of the letters: 10g, 10Gb, 10gbps, 10Gbit, 10GbE
_NETWORK_RATE = re.compile(r"^([\d.]+)\s*([kmgt])(?:b|be|bit|bps|b/s|bit/s)?$", re.IGNORECASE)
_BYTE_RATE = re.compile(r"^[\d.]+\s*[kMGT]B/s$")
_BYTES_WITHOUT_TIME = re.compile(r"^[\d.]+\s*[kMGT]B$")


@dataclass(frozen=True)
class ShortCluster:
    """A cluster in short form, like `2x4xrtx-3090@10G` or `h100:8`; the name decides whether counts are machines or GPUs."""

    counts: tuple[int, ...]
    name: str  # a GPU or a machine
    network: str | None

    @classmethod
    def parse(cls, text: str) -> "ShortCluster | None":
        """Parse the short form; return None if the text does not have it."""
        # stripped first, because trailing spaces make the match take quadratic time
        match = _SHORT_FORM.fullmatch(text.strip())
        if match is None:
            return None
        counts = [match[1], match[2], match[4]]
        return cls(tuple(int(count) for count in counts if count), match[3], match[5])

    @property
    def rails(self) -> int:
        """The number of network ports per machine, as in `@8xinfiniband-ndr`."""
        match = _RAILS.match(self.network or "")
        return int(match[1]) if match else 1

    @property
    def has_rails(self) -> bool:
        """True if the number of ports is written, as in `@1x400G`."""
        return _RAILS.match(self.network or "") is not None

    @property
    def link(self) -> str:
        """A catalog link, or a rate."""
        match = _RAILS.match(self.network or "")
        return match[2] if match else self.network or ""

    def complete_rate(self, link_names: Iterable[str] = ()) -> str:
        """Complete the unit of a network's rate: "10g" → "10Gbit/s". Raise UserMistake if it is not a rate.

        The mistake names the closest of `link_names`.
        """
        rate = self.link
        if _BYTES_WITHOUT_TIME.match(rate):
            number = rate.removesuffix("B").strip()
            raise UserMistake(
                f"{rate!r} may be bits or bytes: write @{number} for {number}bit/s, or @{number}B/s"
            )
        if (match := _NETWORK_RATE.match(rate)) and not _BYTE_RATE.match(rate):
            prefix = match[2].lower() if match[2] in "kK" else match[2].upper()
            rate = f"{match[1]}{prefix}bit/s"
        try:
            units.parse_rate(rate)
        except UserMistake as mistake:
            if hint := did_you_mean(self.link.lower(), list(link_names)):
                raise UserMistake(f"no link is called {quote(self.link)}{hint}") from None
            message = str(mistake)
            conjunction = " Or" if message.endswith("?") else ", or"
            raise UserMistake(f"{message}{conjunction} name a link: @ethernet-10g") from None
        return rate


def match_spelling(name: str, ids: Iterable[str]) -> str | None:
    """Return the id that differs from this name only in case or hyphens: "rtx3090" is "rtx-3090"."""
    squeezed = _squeeze(name)
    return next((candidate for candidate in ids if _squeeze(candidate) == squeezed), None)


def _squeeze(name: str) -> str:
    return _SEPARATORS.sub("", name.lower().strip())


def match_ids(name: str, ids: Iterable[str]) -> list[str]:
    """Return the ids that a shorter name fits: "H100" and "h100-sxm" fit "h100-sxm5-80gb".

    An id that differs only in case or hyphens is the only match. Otherwise, the ids with the fewest parts beside those of
    the name are returned: "3090" fits "rtx-3090", and not "rtx-3090-ti".
    """
    if (same := match_spelling(name, ids := list(ids))) is not None:
        return [same]
    lowered = name.lower().strip()
    name_parts = [part for part in _SEPARATORS.split(lowered) if part]
    matches: dict[str, int] = {}
    for candidate in ids:
        parts = _SEPARATORS.split(candidate.lower())
        if name_parts and all(any(_fits_part(want, part) for part in parts) for want in name_parts):
            matches[candidate] = len(parts)
    fewest = min(matches.values(), default=0)
    return [candidate for candidate, parts in matches.items() if parts == fewest]


def _fits_part(wanted: str, part: str) -> bool:
    return part == wanted or (
        wanted.isalpha() and part.startswith(wanted) and part[len(wanted) :].isdigit()
    )


class Spec(BaseModel):
    """Base of all specs: immutable, and strict about keys, so that a misspelled key is an error."""

    model_config = ConfigDict(
        defer_build=True,  # building a model takes milliseconds, and a command uses few of them
        extra="forbid",
        frozen=True,
        str_strip_whitespace=True,
        allow_inf_nan=False,
    )


def _single_line(max_length: int) -> tuple[AfterValidator, WithJsonSchema]:
    """Restrict text that strangers write and that terminals, pages, and tables show."""

    def validate(text: str) -> str:
        if not text:
            raise ValueError("cannot be empty")
        if len(text) > max_length:
            raise ValueError(f"must have at most {max_length} characters, got {len(text):,}")
        if (control := find_control_character(text)) is not None:
            raise ValueError(f"cannot contain control characters, got {control}")
        return text

    return AfterValidator(validate), WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": max_length}
    )


Name = Annotated[str, *_single_line(200)]
Line = Annotated[str, *_single_line(4096)]
"""One line of text that may be a path."""

KnownNames = Mapping[str, frozenset[str]]
"""The existing names of each kind ("GPU", "link"), passed to validation as its context."""


@dataclass(frozen=True)
class Unit:
    """The function that formats a field's value with its unit."""

    format: Callable[[float], str]


def quantity(
    parse: Callable[[str | float], float],
    description: str,
    example: str,
    format: Callable[[float], str],
    types: str | tuple[str, ...] = ("string", "number"),
) -> tuple[BeforeValidator, WithJsonSchema, Unit]:
    """Return the annotations of a float field that people write with a unit."""

    def validate(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise _custom_error("bad_quantity", f"expected {description}, like {example!r}")
        try:
            return parse(value)
        except BadQuantity as mistake:
            raise _custom_error("bad_quantity", str(mistake)) from None

    schema: Any = {"type": types, "description": description, "examples": [example]}
    return BeforeValidator(validate), WithJsonSchema(schema), Unit(format)


def _custom_error(kind: str, message: str) -> PydanticCustomError:
    # passed as a value, because the template must not interpret braces in the message
    return PydanticCustomError(kind, "{message}", {"message": message})


def _format_usd_per(unit: str) -> Callable[[float], str]:
    return lambda usd: f"{units.format_usd(usd)}/{unit}"


Bytes = Annotated[
    float, *quantity(units.parse_bytes, "a size in bytes", "48 kB", units.format_bytes)
]
BytesPerSecond = Annotated[
    float, *quantity(units.parse_rate, "a rate with its unit", "10 Gbit/s", units.format_bit_rate)
]
Seconds = Annotated[
    float,
    *quantity(units.parse_seconds, "a duration with its unit", "2h", units.format_duration),
]
Years = Annotated[
    float,
    *quantity(units.parse_years, "a duration with its unit", "3 years", units.format_duration),
]
ShortDuration = Annotated[
    float,
    *quantity(
        units.parse_short_duration, "a duration with its unit", "30 us", units.format_duration
    ),
]
Duration = Annotated[Seconds, PlainSerializer(lambda seconds: f"{seconds!r} s", when_used="json")]
"""A duration that is also written with its unit."""
Tokens = Annotated[
    float, *quantity(units.parse_tokens, "a number of tokens", "20B", units.format_tokens)
]
Usd = Annotated[float, *quantity(units.parse_usd, "US dollars", "$8000", units.format_usd)]
UsdPerHour = Annotated[
    float,
    *quantity(units.parse_usd_per_hour, "US dollars per hour", "$1.50/h", _format_usd_per("h")),
]
UsdPerKwh = Annotated[
    float,
    *quantity(
        units.parse_usd_per_kwh,
        "US dollars per kilowatt-hour",
        "$0.12/kWh",
        _format_usd_per("kWh"),
    ),
]
UsdPerKwMonth = Annotated[
    float,
    *quantity(
        units.parse_usd_per_kw_month,
        "US dollars per kilowatt and month",
        "$184/kW/month",
        _format_usd_per("kW/month"),
    ),
]
Watts = Annotated[
    float, *quantity(units.parse_watts, "a power with its unit", "20 kW", units.format_watts)
]
Share = Annotated[float, *quantity(units.parse_share, "a share", "30%", units.format_share)]
MAX_LISTED = 1000
"""Largest number of items in a list, because lists are combined with each other."""
Count = Annotated[int, Field(gt=0, le=1_000_000_000)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MAX_LISTED)]


def check_known_name(kind: str) -> Callable[[str, ValidationInfo], str]:
    """Return a validator that accepts only names of this kind in the catalog."""

    def validate(name: str, info: ValidationInfo) -> str:
        names: KnownNames = info.context or {}
        valid = names.get(kind)
        if valid is not None and name not in valid:
            message = describe_unknown(kind, name, valid, actual_kind=find_kind(name, names))
            raise _custom_error("unknown_name", message)
        return name

    return validate


def find_kind(name: str, names: KnownNames) -> str:
    """Return the kind of thing that has this name in the catalog, or an empty string."""
    return next((kind for kind in names if name in names[kind]), "")


InstanceName = Annotated[Name, AfterValidator(check_known_name("instance"))]
GpuName = Annotated[Name, AfterValidator(check_known_name("GPU"))]
LinkName = Annotated[Name, AfterValidator(check_known_name("link"))]
CloudName = Annotated[Name, AfterValidator(check_known_name("cloud"))]
PricedMachineName = Annotated[Name, AfterValidator(check_known_name("machine with a price"))]
MachineName = Annotated[Name, AfterValidator(check_known_name("machine"))]
Country = Annotated[
    str, Field(pattern=r"^[A-Z]{2}$", description="a two-letter country code (ISO 3166), like DE")
]
Region = Annotated[
    Name,
    AfterValidator(check_known_name("region")),
    Field(
        description="region with its own electricity price, as named by `gpuyard catalog electricity`"
    ),
]
_FILE_SUFFIXES = (".yaml", ".yml")


def _check_model(name: str, info: ValidationInfo) -> str:
    # "module:factory" is the user's code and "….json" a configuration; any other name is in the catalog
    return name if ":" in name or name.endswith(".json") else check_known_name("model")(name, info)


def _check_workload(name: str, info: ValidationInfo) -> str:
    """Accept a catalog model, or a file next to the spec, which is read later."""
    is_file = name.endswith((*_FILE_SUFFIXES, ".json"))
    return name if is_file else check_known_name("model")(name, info)


def _check_cluster(name: str, info: ValidationInfo) -> str:
    """Accept a file next to the spec, or a short form: a machine, several machines, or GPUs."""
    names: KnownNames = info.context or {}
    valid = names.get("machine", frozenset()) | names.get("GPU", frozenset())
    short = ShortCluster.parse(name)
    if name.endswith(_FILE_SUFFIXES) or short is None or not valid or short.name in valid:
        return name
    lowered = short.name.lower()
    instances = names.get("instance", frozenset())
    if match_ids(short.name, valid) or any(
        lowered in (instance.lower(), instance.lower().partition("/")[2]) for instance in instances
    ):
        return name
    actual_kind = find_kind(short.name, names)
    raise _custom_error(
        "unknown_name",
        describe_unknown("machine or GPU", short.name, valid, actual_kind=actual_kind),
    )


def _check_site_file(name: str) -> str:
    if not name.endswith(_FILE_SUFFIXES):
        raise ValueError(
            f"{name!r} is not a site file; name a *.site.yaml, or describe the site here"
        )
    return name


SiteReference = Annotated[Line, AfterValidator(_check_site_file)]
WorkloadReference = Annotated[Line, AfterValidator(_check_workload)]
ClusterReference = Annotated[Line, AfterValidator(_check_cluster)]
ModelName = Annotated[Line, AfterValidator(_check_model)]
