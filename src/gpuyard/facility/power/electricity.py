"""What a circuit carries and what a load turns into: volts, amps, apparent power, heat and air."""

import math

POWER_FACTOR = 0.98
"""Of server supplies under load; they correct it actively (EN 61000-3-2). Assumed."""
BTU_PER_HOUR_PER_WATT = 3.412142
WATTS_PER_TON = 3516.853
"""A ton of refrigeration is 12,000 BTU/h."""

# National Electrical Code 210.20(A), Canadian Electrical Code 8-104: a load of three hours or more
# takes 80 % of its breaker. IEC 60364-4-43 has no such rule: a breaker carries what is written on it.
_BY_COUNTRY = {"US": 0.8, "CA": 0.8, "MX": 0.8, "JP": 0.8, "TW": 0.8, "PH": 0.8}
_IEC_COUNTRIES = frozenset(
    {"AT", "AU", "BE", "BG", "CH", "CN", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GB", "GR",
     "HR", "HU", "IE", "IN", "IS", "IT", "LT", "LU", "LV", "MT", "NL", "NO", "NZ", "PL", "PT", "RO",
     "SE", "SG", "SI", "SK", "ZA"}
)  # fmt: skip
_CAUTIOUS = 0.8


def continuous_load_in(country: str) -> float:
    """How much of a breaker may flow continuously; 0.8 where we don't know the country's rule."""
    if country in _BY_COUNTRY:
        return _BY_COUNTRY[country]
    return 1.0 if country in _IEC_COUNTRIES else _CAUTIOUS


def usable_va(volts: float, amps: float, phases: int, continuous_load: float) -> float:
    """P = V·I, or √3·V·I with three phases and volts between lines, times the share of the breaker
    that may flow continuously."""
    return volts * amps * (math.sqrt(3) if phases == 3 else 1.0) * continuous_load


def apparent_va(watts: float) -> float:
    """What wires and breakers see of a load."""
    return watts / POWER_FACTOR


def leg_volts(volts: float, phases: int) -> float:
    """What an outlet gives: up to 250 V between lines it sits between two of them (208 V), above
    that between one line and neutral (400 V: 231 V)."""
    return volts / math.sqrt(3) if phases == 3 and volts > 250 else volts


def line_amps(leg_amps: tuple[float, ...], volts: float) -> tuple[float, ...]:
    """The current in each line, from the current of each leg.

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
    """Cubic feet a minute that carry the heat away: BTU/h = 1.08 · CFM · ΔT in °F, at sea level."""
    return btu_per_hour(watts) / (1.08 * rise_kelvin * 9 / 5)
