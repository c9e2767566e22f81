"""What all specs have in common: strict keys, quantities with their units, and names that the catalog knows."""

import re
from collections.abc import Callable, Mapping
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
from gpuyard.errors import BadQuantity, UserMistake, describe_unknown
from gpuyard.printable import control_character

_SHORT = re.compile(r"(?:(\d{1,12})\s*[x×]\s*)?(?:(\d{1,12})\s*[x×]\s*)?([^@\s]+)(?:\s*@\s*(.+))?")
_RAILS = re.compile(r"^(\d{1,3})\s*[x×]\s*(.+)$")
_BARE_PREFIX = re.compile(r"^[\d.]+\s*[kMGT]$")
_NO_SECOND = re.compile(r"^[\d.]+\s*[kMGT]bit$")


@dataclass(frozen=True)
class ShortCluster:
    """How many of what, and what joins them; which of both the numbers count depends on the name."""

    counts: tuple[int, ...]
    name: str  # of a GPU, or of a machine
    network: str | None

    @classmethod
    def of(cls, text: str) -> "ShortCluster | None":
        """None for what is not written like this."""
        # stripped first: spaces at the end took a pattern the square of their number
        match = _SHORT.fullmatch(text.strip())
        if match is None:
            return None
        counts = tuple(int(count) for count in match.groups()[:2] if count is not None)
        return cls(counts, match[3], match[4])

    @property
    def rails(self) -> int:
        """Ports of each machine: `@8xinfiniband-ndr`."""
        match = _RAILS.match(self.network or "")
        return int(match[1]) if match else 1

    @property
    def link(self) -> str:
        """A catalog link, or a rate."""
        match = _RAILS.match(self.network or "")
        return match[2] if match else self.network or ""

    def rate(self) -> str:
        """ "10G" → "10G bit/s", as rates of networks are said. Raises where it is none."""
        written = self.link
        for shape, rest in ((_BARE_PREFIX, "bit/s"), (_NO_SECOND, "/s")):
            if shape.match(written):
                written += rest
        try:
            units.parse_rate(written)
        except UserMistake as mistake:
            said = str(mistake)
            joined = " Or" if said.endswith("?") else ", or"
            raise UserMistake(f"{said}{joined} name a link: @ethernet-10g") from None
        return written


class Spec(BaseModel):
    """Immutable, and strict about its keys: a misspelt key is a mistake, not a comment."""

    model_config = ConfigDict(
        defer_build=True,  # a command uses few of them, and each takes milliseconds
        extra="forbid",
        frozen=True,
        str_strip_whitespace=True,
        allow_inf_nan=False,
    )


def _one_line(most: int) -> tuple[AfterValidator, WithJsonSchema]:
    """Text that strangers write and terminals, pages and other people's tables show."""

    def validate(text: str) -> str:
        if not text:
            raise ValueError("can't be empty")
        if len(text) > most:
            raise ValueError(f"takes at most {most} characters, got {len(text):,}")
        if (control := control_character(text)) is not None:
            raise ValueError(f"can't have control characters, got {control}")
        return text

    return AfterValidator(validate), WithJsonSchema(
        {"type": "string", "minLength": 1, "maxLength": most}
    )


Name = Annotated[str, *_one_line(200)]
Line = Annotated[str, *_one_line(4096)]
"""Where a path may stand."""

KnownNames = Mapping[str, frozenset[str]]
"""Kind of name ("GPU", "link") → the names that exist; handed to validation as its context."""


@dataclass(frozen=True)
class Unit:
    """How a field's figure is shown to people, with its unit."""

    show: Callable[[float], str]


def quantity(
    parse: Callable[[str | float], float],
    description: str,
    example: str,
    show: Callable[[float], str],
    types: str | tuple[str, ...] = ("string", "number"),
) -> tuple[BeforeValidator, WithJsonSchema, Unit]:
    """What makes a float a field that people write with a unit."""

    def validate(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            why = f"expected {description}, like {example!r}"
            raise PydanticCustomError("bad_quantity", "{why}", {"why": why})
        try:
            return parse(value)
        except BadQuantity as mistake:
            # the sentence is passed as a value: it may hold braces, which the template must not read
            raise PydanticCustomError("bad_quantity", "{why}", {"why": str(mistake)}) from None

    schema: Any = {"type": types, "description": description, "examples": [example]}
    return BeforeValidator(validate), WithJsonSchema(schema), Unit(show)


def _usd_per(unit: str) -> Callable[[float], str]:
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
Moment = Annotated[
    float,
    *quantity(units.parse_moment, "a duration with its unit", "30 us", units.format_duration),
]
Duration = Annotated[Seconds, PlainSerializer(lambda seconds: f"{seconds!r} s", when_used="json")]
"""Written as it is read: with its unit."""
Usd = Annotated[float, *quantity(units.parse_usd, "US dollars", "$8000", units.format_usd)]
UsdPerHour = Annotated[
    float, *quantity(units.parse_usd_per_hour, "US dollars an hour", "$1.50/h", _usd_per("h"))
]
UsdPerKwh = Annotated[
    float,
    *quantity(units.parse_usd_per_kwh, "US dollars a kilowatt-hour", "$0.12/kWh", _usd_per("kWh")),
]
UsdPerKwMonth = Annotated[
    float,
    *quantity(
        units.parse_usd_per_kw_month,
        "US dollars a kilowatt and month",
        "$184/kW/month",
        _usd_per("kW/month"),
    ),
]
Watts = Annotated[
    float, *quantity(units.parse_watts, "a power with its unit", "20 kW", units.format_watts)
]
Share = Annotated[float, *quantity(units.parse_share, "a share", "30 %", units.format_share)]
MOST_LISTED = 1000
"""Lists are combined with each other: each is kept short enough for that."""
Count = Annotated[int, Field(gt=0, le=1_000_000_000)]
Counts = Annotated[tuple[Count, ...], Field(min_length=1, max_length=MOST_LISTED)]


def known_name(kind: str) -> Callable[[str, ValidationInfo], str]:
    """A validator: the name is one that the catalog has."""

    def validate(name: str, info: ValidationInfo) -> str:
        names: KnownNames = info.context or {}
        known = names.get(kind)
        if known is not None and name not in known:
            sentence = describe_unknown(kind, name, known, instead=kind_of(name, names))
            raise PydanticCustomError("unknown_name", "{why}", {"why": sentence})
        return name

    return validate


def kind_of(name: str, names: KnownNames) -> str:
    """What the catalog has under this name, if anything."""
    return next((kind for kind in names if name in names[kind]), "")


InstanceName = Annotated[Name, AfterValidator(known_name("instance"))]
GpuName = Annotated[Name, AfterValidator(known_name("GPU"))]
LinkName = Annotated[Name, AfterValidator(known_name("link"))]
CloudName = Annotated[Name, AfterValidator(known_name("cloud"))]
MachineName = Annotated[Name, AfterValidator(known_name("machine"))]
Country = Annotated[str, Field(pattern=r"^[A-Z]{2}$", description="two letters, as in ISO 3166")]
Region = Annotated[
    Name,
    AfterValidator(known_name("region")),
    Field(
        description="with an electricity price of its own, as `gpuyard catalog electricity` names it"
    ),
]


def _known_model(name: str, info: ValidationInfo) -> str:
    # "module:factory" is code of the user's; only a plain name is a catalog name
    return name if ":" in name else known_name("model")(name, info)


def _known_or_file(kind: str) -> Callable[[str, ValidationInfo], str]:
    """A name of the catalog, or a file beside the spec, which is read later."""

    def validate(name: str, info: ValidationInfo) -> str:
        return name if name.endswith((".yaml", ".yml")) else known_name(kind)(name, info)

    return validate


def _known_cluster(name: str, info: ValidationInfo) -> str:
    """A file beside the spec, or what a command line takes: a machine, several, or GPUs."""
    names: KnownNames = info.context or {}
    known = names.get("machine", frozenset()) | names.get("GPU", frozenset())
    short = ShortCluster.of(name)
    if name.endswith((".yaml", ".yml")) or short is None or not known or short.name in known:
        return name
    why = describe_unknown("machine or GPU", short.name, known, instead=kind_of(short.name, names))
    raise PydanticCustomError("unknown_name", "{why}", {"why": why})


def _site_file(name: str) -> str:
    if not name.endswith((".yaml", ".yml")):
        raise ValueError(
            f"{name!r} is not a site file; name a *.site.yaml, or describe the site here"
        )
    return name


SiteReference = Annotated[Line, AfterValidator(_site_file)]
WorkloadReference = Annotated[Line, AfterValidator(_known_or_file("model"))]
ClusterReference = Annotated[Line, AfterValidator(_known_cluster)]
ModelName = Annotated[Line, AfterValidator(_known_model)]
