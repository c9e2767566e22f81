"""What a room costs to run: averages that stand in until the user's own figures are given."""

import functools

from gpuyard.catalog.tables import Fact, Table, read_csv


class FacilityCost(Fact):
    """One published average."""

    name: str
    value: float
    unit: str = ""
    note: str = ""


@functools.cache
def facility_costs() -> Table[FacilityCost]:
    return read_csv("facility cost", FacilityCost, "facility_costs.csv")
