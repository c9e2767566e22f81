"""Formulas for circuits and loads: volts, amps, apparent power, heat, and airflow."""

import math

POWER_FACTOR = 0.98
"""The power factor of server supplies under load, which correct it actively (EN 61000-3-2); assumed."""
BTU_PER_HOUR_PER_WATT = 3.412142
WATTS_PER_TON = 3516.853
"""A ton of refrigeration is 12,000 BTU/h."""

# National Electrical Code 210.20(A), Canadian Electrical Code 8-104: a load of three hours or more
# may use 80% of its breaker. IEC 60364-4-43 has no such rule: a breaker carries its full rating.
_BY_COUNTRY = {"US": 0.8, "CA": 0.8, "MX": 0.8, "JP": 0.8, "TW": 0.8, "PH": 0.8}
_IEC_COUNTRIES = frozenset(
    {"AT", "AU", "BE", "BG", "CH", "CN", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GB", "GR",
     "HR", "HU", "IE", "IN", "IS", "IT", "LT", "LU", "LV", "MT", "NL", "NO", "NZ", "PL", "PT", "RO",
     "SE", "SG", "SI", "SK", "ZA"}
)  # fmt: skip
_UNKNOWN_COUNTRY = 0.8


def find_continuous_load(country: str) -> float:
    """Return the share of a breaker that may flow continuously; 0.8 if the country's rule is unknown."""
    if country in _BY_COUNTRY:
        return _BY_COUNTRY[country]
    return 1.0 if country in _IEC_COUNTRIES else _UNKNOWN_COUNTRY


def usable_va(volts: float, amps: float, phases: int, continuous_load: float) -> float:
    """Return V·I, or √3·V·I for three phases with volts between lines, times the continuous share."""
    return volts * amps * (math.sqrt(3) if phases == 3 else 1.0) * continuous_load


def apparent_va(watts: float) -> float:
    """Return the apparent power that a load puts on wires and breakers."""
    return watts / POWER_FACTOR


def leg_volts(volts: float, phases: int) -> float:
    """Return the voltage of an outlet.

    Up to 250 V between lines, the outlet sits between two lines (208 V). Above that, it sits between one line
    and neutral (231 V at 400 V).
    """
    return volts / math.sqrt(3) if phases == 3 and volts > 250 else volts


def line_amps(leg_amps: tuple[float, ...], volts: float) -> tuple[float, ...]:
    """Return the current in each line, from the current of each leg.

    Between lines, line L1 carries L1-L2 and L3-L1, 120° apart: |I| = √(a² + b² + a·b). Equal legs give √3·a.
    """
    if len(leg_amps) < 3 or volts > 250:
        return leg_amps
    pairs = ((leg_amps[0], leg_amps[2]), (leg_amps[0], leg_amps[1]), (leg_amps[1], leg_amps[2]))
    return tuple(math.sqrt(a * a + b * b + a * b) for a, b in pairs)


def btu_per_hour(watts: float) -> float:
    return watts * BTU_PER_HOUR_PER_WATT


def cooling_tons(watts: float) -> float:
    return watts / WATTS_PER_TON


def airflow_cfm(watts: float, rise_kelvin: float) -> float:
    """Return the cubic feet per minute that carry the heat away: BTU/h = 1.08 · CFM · ΔT in °F, at sea level."""
    return btu_per_hour(watts) / (1.08 * rise_kelvin * 9 / 5)
