"""The spec of a plan: the training runs, the deadline and budget, and the constraints."""

from typing import Annotated

from pydantic import Discriminator, Field, Tag, ValidationInfo, model_validator

from gpuyard import units
from gpuyard.choices import Load
from gpuyard.errors import describe_unknown
from gpuyard.specs.base import (
    MAX_LISTED,
    Bytes,
    CloudName,
    Name,
    Seconds,
    SiteReference,
    Spec,
    Tokens,
    Usd,
    WorkloadReference,
    Years,
)
from gpuyard.specs.cluster import get_reference_tag
from gpuyard.specs.plan_candidates import RESERVED_YEARS, OwnedMachines, OwnOffer, PlanSearch
from gpuyard.specs.plan_costs import Owning, OwnPrices, PlanSite, Renting, SpotInterruptions
from gpuyard.specs.workload import Workload


class PlanPolicy(Spec):
    """Constraints that do not depend on the price."""

    data_stays: Annotated[
        bool,
        Field(
            description="whether data must stay in the building, so that nothing is rented or colocated"
        ),
    ] = False
    clouds: Annotated[
        tuple[CloudName, ...] | None,
        Field(
            min_length=1,
            max_length=MAX_LISTED,
            description="clouds to rent from, as named by `gpuyard catalog prices`; default: all",
        ),
    ] = None


class People(Spec):
    """The people who train; the number of runs grows with them."""

    researchers: Annotated[int, Field(gt=0, le=1_000_000, description="number of people today")] = 1
    hires_per_year: Annotated[
        float, Field(ge=0, le=1_000_000, description="number of people who join each year")
    ] = 0.0


class Playbook(Spec):
    """The additional inputs of `gpuyard playbook`."""

    gpus_now: Annotated[
        int | None,
        Field(
            ge=0,
            le=1_000_000,
            description="number of GPUs needed at once today; default: the plan's choice",
        ),
    ] = None
    load: Annotated[Load, Field(description="shape of the load")] = "steady"
    inference: Annotated[
        bool, Field(description="whether models are also served around the clock")
    ] = False
    data: Annotated[Bytes | None, Field(description="size of all training data")] = None
    memory: Annotated[
        Bytes | None,
        Field(
            description="GPU memory that training one copy of the largest model needs; default: that of the "
            "plan's workload"
        ),
    ] = None


class Plan(Spec):
    """The goal of a plan, and the candidates to search."""

    name: Annotated[Name, Field(description="name in tables and reports")]
    workload: Annotated[
        Annotated[Workload, Tag("described")] | Annotated[WorkloadReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="workload file next to the plan, a catalog model, or the workload itself; it needs a "
            "dataset or tokens"
        ),
    ]
    tokens: Annotated[
        Tokens | None,
        Field(le=1e18, description="tokens of one run of a large model; default: the workload's"),
    ] = None
    runs_per_month: Annotated[
        float, Field(gt=0, le=1_000_000, description="finished runs per month today")
    ]
    time_per_run: Annotated[
        Seconds | None,
        Field(gt=0, description="longest time for a finished run; default: no limit"),
    ] = None
    budget: Annotated[
        Usd | None,
        Field(gt=0, description="total budget over the horizon, in dollars; default: no limit"),
    ] = None
    horizon: Annotated[
        Years,
        Field(gt=0, le=20 * 365.25 * 86400, description="planning horizon"),
    ] = 3 * 365.25 * 86400
    policy: Annotated[PlanPolicy, Field(description="rules that don't depend on prices")] = (
        PlanPolicy()
    )
    people: Annotated[
        People, Field(description="people who train; the number of runs grows with them")
    ] = People()
    site: Annotated[
        Annotated[PlanSite, Tag("described")] | Annotated[SiteReference, Tag("named")],
        Discriminator(get_reference_tag),
        Field(
            description="room for bought machines: the next keys, or the name of a site file next to the plan"
        ),
    ] = PlanSite()
    owning: Annotated[
        Owning, Field(description="costs of bought machines in addition to power and space")
    ] = Owning()
    renting: Annotated[
        Renting, Field(description="costs of rented runs in addition to their steps")
    ] = Renting()
    spot: Annotated[
        SpotInterruptions, Field(description="interruptions of spot instances and their cost")
    ] = SpotInterruptions()
    search: Annotated[PlanSearch, Field(description="candidates to try")] = PlanSearch()
    prices: Annotated[OwnPrices, Field(description="your own prices instead of the catalog's")] = (
        OwnPrices()
    )
    offers: Annotated[
        tuple[OwnOffer, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of your own offers, each with `rent`, `spot`, or `buy`",
        ),
    ] = ()
    owned: Annotated[
        tuple[OwnedMachines, ...],
        Field(
            max_length=MAX_LISTED,
            description="list of machines that you already have",
        ),
    ] = ()
    playbook: Annotated[
        Playbook, Field(description="additional answers for `gpuyard playbook`")
    ] = Playbook()

    @model_validator(mode="after")
    def _check_terms_and_names(self) -> "Plan":
        years = self.horizon / (365.25 * 86400)
        explicit_ways = self.search.ways if "ways" in self.search.model_fields_set else ()
        for acquisition, term in RESERVED_YEARS.items():
            if acquisition in explicit_ways and term > years:
                raise ValueError(
                    f"search.ways: the term of {acquisition} is longer than the horizon of {units.format_years(years)}; "
                    "lengthen 'horizon' or remove it"
                )
        if self.owned and "keep" not in self.search.ways:
            raise ValueError(
                "'owned' has machines: add 'keep' to 'search.ways', or leave out 'search.ways'"
            )
        names = [offer.name for offer in self.offers]
        names += [
            machines.name or machines.machine or f"{machines.gpus} × {machines.gpu}"
            for machines in self.owned
        ]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(
                    f"two offers or owned machines are called {name!r}; give one of them another 'name'"
                )
        return self

    @model_validator(mode="after")
    def _check_offer_names(self, info: ValidationInfo) -> "Plan":
        catalog = (info.context or {}).get("offer")
        own = {offer.name for offer in self.offers}
        own |= {machines.name for machines in self.owned if machines.name is not None}
        for name in self.search.offers or ():
            if catalog is not None and name not in catalog | own:
                raise ValueError(f"search.offers: {describe_unknown('offer', name, catalog | own)}")
        return self
