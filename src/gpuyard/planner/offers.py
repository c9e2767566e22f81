"""Offers: one server, one way to acquire it, and one network between several of them, with prices as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuyard.catalog.prices import ASSUMED_CLOUD
from gpuyard.catalog.prices import cloud_data as prices_table
from gpuyard.economics.billing import HOURS_PER_MONTH, egress_usd, storage_usd
from gpuyard.facilities.storage import CHECKPOINT_BYTES_PER_PARAMETER
from gpuyard.planner.machine_shapes import MachineShape, format_network
from gpuyard.planner.servers import NetworkOption, NetworkPrice, PricedServer, price_network
from gpuyard.predictor.table import Floats, Integers
from gpuyard.specs import Network, Topology, Workload
from gpuyard.specs.plan import Plan
from gpuyard.specs.plan_candidates import RESERVED_YEARS, Acquisition
from gpuyard.specs.plan_costs import Renting

_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
_GB = 1e9


@dataclass(frozen=True)
class PlannedRuns:
    """The runs over the horizon, if everyone who joins starts as many as the people who are here today."""

    months: float
    per_month_now: float
    per_month_at_end: float
    done_elsewhere_per_month: float = 0.0  # subtracted: other machines do these runs

    @property
    def years(self) -> float:
        return self.months / 12

    @property
    def total(self) -> float:
        """The number of runs over the horizon; people join evenly over the year."""
        return self.months * float(self.per_month.mean())

    @property
    def peak_per_month(self) -> float:
        return float(self.per_month.max())

    @property
    def per_month(self) -> Floats:
        """Runs per month over the horizon, in steps of about a month, from the first to the last."""
        steps = max(2, round(self.months) + 1)
        demand = np.linspace(self.per_month_now, self.per_month_at_end, steps)
        remaining: Floats = np.maximum(demand - self.done_elsewhere_per_month, 0.0)
        return remaining


def plan_runs(plan: Plan) -> PlannedRuns:
    months = plan.horizon / _SECONDS_PER_MONTH
    people = plan.people.researchers
    at_end = people + plan.people.hires_per_year * months / 12
    return PlannedRuns(
        months=months,
        per_month_now=plan.runs_per_month,
        per_month_at_end=plan.runs_per_month * at_end / people,
    )


@dataclass(frozen=True)
class CloudData:
    """The data stored in a cloud, the data downloaded per run, and the plan's own prices for both."""

    stored_gb: float
    out_gb_per_run: float
    renting: Renting

    def price(self, cloud: str | None, runs: PlannedRuns) -> tuple[float, float]:
        """Return the dollars over the horizon for storage, and for egress if every run is rented.

        A cloud without its own data prices is assumed to charge those of `ASSUMED_CLOUD`.
        """
        listed = cloud if cloud is not None and cloud in prices_table() else ASSUMED_CLOUD
        prices = prices_table().get(listed)
        own_storage, own_egress = self.renting.storage, self.renting.egress
        free_gb = 0.0 if own_egress is not None else prices.free_egress_gb_per_month * runs.months
        storage = storage_usd(
            self.stored_gb,
            runs.months,
            prices.storage_usd_per_gb_month if own_storage is None else own_storage,
        )
        egress = egress_usd(
            self.out_gb_per_run * runs.total,
            prices.egress_usd_per_gb if own_egress is None else own_egress,
            free_gb,
        )
        return float(storage), float(egress)


TOKEN_BYTES = 4  # of a stored token: an int32 index


def estimate_cloud_data(
    plan: Plan, workload: Workload, parameters: float, input_bytes: float
) -> CloudData:
    """Return the plan's own data sizes, or estimate them from the workload."""
    renting, dataset = plan.renting, workload.dataset
    stored = renting.data
    if stored is None and dataset is not None:
        sample_bytes = dataset.bytes_per_sample
        stored = dataset.samples * (input_bytes if sample_bytes is None else sample_bytes)
    elif stored is None and workload.tokens is not None:
        stored = TOKEN_BYTES * workload.tokens
    results = renting.results
    if results is None:
        results = CHECKPOINT_BYTES_PER_PARAMETER * parameters
    return CloudData((stored or 0.0) / _GB, results / _GB, renting)


# Discounts on the on-demand price, paid for every hour of the term. One year: p3dn.24xlarge at $160,308 per year
# against $31.212/h is 41%, p3.8xlarge and p3.16xlarge are 35%. Three years: assumed.
# Other clouds have a reserved price only if the plan gives the discount.
RESERVING_CLOUDS = frozenset({"aws", "azure", "gcp", "ibm", "oci"})
BOUGHT: tuple[Acquisition, ...] = ("buy", "colocate")
OWNED: tuple[Acquisition, ...] = (*BOUGHT, "keep")
DEFAULT_DISCOUNTS: dict[Acquisition, float] = {"reserved-1-year": 0.35, "reserved-3-years": 0.55}


@dataclass(frozen=True)
class Offer:
    """One server, acquired in one way, with or without a network, and the price of one machine.

    Properties that the search reads for every candidate are computed once per offer.
    """

    server: PricedServer
    acquisition: Acquisition
    network_option: NetworkOption | None  # None: one machine
    usd_per_hour: float  # while a run uses it, or all the time if it is reserved
    buy_usd: float

    @property
    def buy_usd_range(self) -> tuple[float, float]:
        """The range in which a quote for one machine is expected; equal ends if the price is no estimate."""
        server = self.server
        if self.acquisition not in BOUGHT or server.buy_usd_low is None:
            return self.buy_usd, self.buy_usd
        return server.buy_usd_low, server.buy_usd_high or self.buy_usd

    @cached_property
    def network(self) -> Network | None:
        return self.network_option.network if self.network_option else None

    def price_network(self, nodes: int) -> NetworkPrice | None:
        """Price the network of one cluster of `nodes` machines, or return None if none is bought."""
        return None if self.network_to_buy is None else price_network(self.network_to_buy, nodes)

    @cached_property
    def network_to_buy(self) -> NetworkOption | None:
        if self.acquisition not in OWNED or self.server.network_exists:
            return None
        return self.network_option

    @property
    def shape(self) -> MachineShape:
        server = self.server
        return MachineShape(
            server.gpu, server.gpus, server.topology, self.network, self.network_assumed
        )

    @property
    def shape_key(self) -> tuple[str, int, Topology, Network | None, bool]:
        server = self.server
        return (server.gpu.id, server.gpus, server.topology, self.network, self.network_assumed)

    @cached_property
    def network_assumed(self) -> bool:
        """True if the network between several of them is unknown."""
        return self.server.network_assumed and self.network_option is not None

    @cached_property
    def housing_key(self) -> tuple[str, Network | None]:
        """The properties that decide whether a site can house it."""
        return (self.server.id, self.network)

    @property
    def network_label(self) -> str:
        if self.network is None:
            return "one machine"
        name = format_network(self.network)
        return f"an unknown network ({name} assumed)" if self.network_assumed else name


@dataclass(frozen=True)
class OfferColumns:
    """The prices of all offers, one entry per offer."""

    acquisition: Floats  # index into the plan's search.ways
    usd_per_hour: Floats
    buy_usd: Floats
    buy_usd_low: Floats  # ends of the range in which a quote is expected
    buy_usd_high: Floats
    network: Integers  # row of `networks_usd`
    watts: Floats
    gpus: Floats
    spot_interruptions_per_hour: Floats  # of one machine
    memory_bytes: Floats  # of one GPU
    data_storage_usd: Floats  # in the cloud, over the horizon
    egress_usd: Floats  # of one run
    node_counts: Integers  # ascending
    networks_usd: Floats  # of one cluster: a row for each network, a column for each node count

    @staticmethod
    def from_offers(
        offers: Sequence[Offer],
        acquisitions: Sequence[Acquisition],
        data: CloudData,
        runs: PlannedRuns,
        node_counts: Sequence[int],
    ) -> "OfferColumns":
        clouds = {cloud: data.price(cloud, runs) for cloud in {o.server.cloud for o in offers}}
        # None is for everything that needs no network or includes one
        networks = dict.fromkeys([None, *(o.network_to_buy for o in offers)])
        position = {network: row for row, network in enumerate(networks)}
        rows = [
            (acquisitions.index(o.acquisition), o.usd_per_hour, o.buy_usd, *o.buy_usd_range,
             position[o.network_to_buy], o.server.watts, o.server.gpus,
             o.server.spot_interruptions_per_hour, o.server.gpu.memory_bytes, *(clouds[o.server.cloud] if o.acquisition not in OWNED else (0, 0)))
            for o in offers
        ]  # fmt: skip
        columns = np.array(rows, dtype=float).reshape(-1, 12).T
        counts = sorted(set(node_counts))
        usd = [
            [
                price_network(network, n).usd if network is not None and n > 1 else 0.0
                for n in counts
            ]
            for network in networks
        ]
        return OfferColumns(
            acquisition=columns[0],
            usd_per_hour=columns[1],
            buy_usd=columns[2],
            buy_usd_low=columns[3],
            buy_usd_high=columns[4],
            network=columns[5].astype(np.int64),
            watts=columns[6],
            gpus=columns[7],
            spot_interruptions_per_hour=columns[8],
            memory_bytes=columns[9],
            data_storage_usd=columns[10],
            egress_usd=columns[11] / runs.total,
            node_counts=np.array(counts, dtype=np.int64),
            networks_usd=np.array(usd, dtype=float),
        )

    def network_usd(self, offer: Integers, nodes: Floats) -> Floats:
        """Return the price of the network of one cluster, for each offer and its node count."""
        column = np.searchsorted(self.node_counts, nodes)
        usd: Floats = self.networks_usd[self.network[offer], column]
        return usd


def list_offers(servers: Sequence[PricedServer], plan: Plan) -> list[Offer]:
    """List every acquisition in the plan of every server that the plan allows."""
    search = plan.search
    return [
        offer
        for server in servers
        # GPUs that need their vendor's software are only used if the plan names them
        if server.owned is not None
        or (
            (
                not server.gpu.needs_vendor_software
                if search.gpus is None
                else server.gpu.id in search.gpus
            )
            and (search.offers is None or server.id in search.offers)
        )
        for acquisition in search.ways
        for offer in _create_offers(server, acquisition, plan)
    ]


def _create_offers(server: PricedServer, acquisition: Acquisition, plan: Plan) -> Iterator[Offer]:
    price = _price_server(server, acquisition, plan)
    if price is None:
        return
    usd_per_hour, buy_usd = price
    if 1 in plan.search.nodes:
        yield Offer(server, acquisition, None, usd_per_hour, buy_usd)
    if any(count > 1 for count in plan.search.nodes):
        for network_option in server.network_options(plan):
            yield Offer(server, acquisition, network_option, usd_per_hour, buy_usd)


def _price_server(
    server: PricedServer, acquisition: Acquisition, plan: Plan
) -> tuple[float, float] | None:
    """Return dollars per hour and dollars paid once, or None if it is not available in this way."""
    match acquisition:
        case "buy" | "colocate":
            return None if server.buy_usd is None else (0.0, server.buy_usd)
        case "keep":
            return None if server.owned is None else (0.0, server.value_usd)
        case "spot":
            return None if server.spot_usd_per_hour is None else (server.spot_usd_per_hour, 0.0)
        case "on-demand":
            return None if server.rent_usd_per_hour is None else (server.rent_usd_per_hour, 0.0)
        case "reserved-1-year" | "reserved-3-years":
            return _price_reserved(server, acquisition, plan)
        case "hybrid":
            return None  # combines other offers


def _price_reserved(
    server: PricedServer, acquisition: Acquisition, plan: Plan
) -> tuple[float, float] | None:
    offered = plan_discount(plan, acquisition) is not None or server.cloud in RESERVING_CLOUDS
    if (
        server.rent_usd_per_hour is None
        or not offered
        or RESERVED_YEARS[acquisition] > horizon_years(plan)
    ):
        return None
    return server.rent_usd_per_hour * (1 - reserved_discount(plan, acquisition)), 0.0


def horizon_years(plan: Plan) -> float:
    return plan.horizon / (365.25 * 86400)


def plan_discount(plan: Plan, acquisition: Acquisition) -> float | None:
    """Return the discount that the plan itself gives, if any."""
    if acquisition == "reserved-1-year":
        return plan.prices.reserved_1_year
    return plan.prices.reserved_3_years


def has_assumed_price(plan: Plan, acquisition: Acquisition) -> bool:
    """Return whether this is a reserved price without a discount in the plan; no price list has one."""
    return acquisition in RESERVED_YEARS and plan_discount(plan, acquisition) is None


def reserved_discount(plan: Plan, acquisition: Acquisition) -> float:
    """Return the discount of a term on the on-demand price."""
    own_discount = plan_discount(plan, acquisition)
    return DEFAULT_DISCOUNTS[acquisition] if own_discount is None else own_discount
