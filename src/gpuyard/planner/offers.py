"""An offer: one server, one way to acquire it, one network between several of them; its prices as columns."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.catalog import ModelProfile
from gpuyard.catalog.prices import ASSUMED_CLOUD
from gpuyard.catalog.prices import cloud_data as prices_table
from gpuyard.economics.billing import HOURS_PER_MONTH, egress_usd, storage_usd
from gpuyard.facility.storage import CHECKPOINT_BYTES_PER_PARAMETER
from gpuyard.planner.servers import Joining, NetworkPrice, PricedServer, network_price
from gpuyard.planner.throughput import MachineShape, network_name
from gpuyard.predict.table import Floats, Integers
from gpuyard.specs import Network, Topology, Workload
from gpuyard.specs.plan import RESERVED_YEARS, Acquisition, Plan, Renting

_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
_GB = 1e9


@dataclass(frozen=True)
class PlannedRuns:
    """Runs over the horizon. Everyone is taken to start as many as those who are here today."""

    months: float
    per_month_now: float
    per_month_at_end: float
    elsewhere_per_month: float = 0.0  # that others do first: only what is above it counts

    @property
    def years(self) -> float:
        return self.months / 12

    @property
    def total(self) -> float:
        """In all: people come evenly over the year."""
        return self.months * float(self.per_month.mean())

    @property
    def peak_per_month(self) -> float:
        return float(self.per_month.max())

    @property
    def per_month(self) -> Floats:
        """Through the horizon, in steps of about a month, from the first to the last."""
        steps = max(2, round(self.months) + 1)
        wanted = np.linspace(self.per_month_now, self.per_month_at_end, steps)
        left: Floats = np.maximum(wanted - self.elsewhere_per_month, 0.0)
        return left


def runs_of(plan: Plan) -> PlannedRuns:
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
    """How much lies there and how much is taken out, and the plan's own prices where it has some."""

    stored_gb: float
    out_gb_per_run: float
    renting: Renting

    def usd(self, cloud: str | None, runs: PlannedRuns) -> tuple[float, float]:
        """Over the horizon: what keeping costs, and what taking out costs where every run is rented."""
        price = prices_table().get(priced_as(cloud))
        kept = self.renting.storage
        out = self.renting.egress
        free = 0.0 if out is not None else price.free_egress_gb_per_month * runs.months
        keeping = storage_usd(
            self.stored_gb,
            runs.months,
            price.storage_usd_per_gb_month if kept is None else kept,
        )
        taking_out = egress_usd(
            self.out_gb_per_run * runs.total, price.egress_usd_per_gb if out is None else out, free
        )
        return float(keeping), float(taking_out)


def priced_as(cloud: str | None) -> str:
    """The cloud whose prices of data stand for this one."""
    return cloud if cloud is not None and cloud in prices_table() else ASSUMED_CLOUD


def cloud_data_of(plan: Plan, workload: Workload, profile: ModelProfile) -> CloudData:
    """The plan's own sizes, or those that follow from the workload."""
    renting, dataset = plan.renting, workload.dataset
    stored = renting.data
    if stored is None and dataset is not None:
        each = dataset.bytes_per_sample
        stored = dataset.samples * (profile.input_bytes if each is None else each)
    out = renting.results
    if out is None:
        out = CHECKPOINT_BYTES_PER_PARAMETER * profile.parameters
    return CloudData((stored or 0.0) / _GB, out / _GB, renting)


# Off the price on demand, for every hour of the term. One year: p3dn.24xlarge at $160,308 a year against
# $31.212/h is 41 %, p3.8xlarge and p3.16xlarge are 35 %; three years: assumed.
# Others get a reserved price only where the plan brings the discount.
RESERVING_CLOUDS = frozenset({"aws", "azure", "gcp", "ibm", "oci"})
BOUGHT: tuple[Acquisition, ...] = ("buy", "colocate")
OWNED: tuple[Acquisition, ...] = (*BOUGHT, "keep")
DEFAULT_DISCOUNTS: dict[Acquisition, float] = {"reserved-1-year": 0.35, "reserved-3-years": 0.55}


@dataclass(frozen=True)
class Offer:
    """What is paid for one machine, by the hour or once."""

    server: PricedServer
    acquisition: Acquisition
    joining: Joining | None  # None: one machine
    usd_per_hour: float  # rented: while it runs, or all the time where it is reserved
    buy_usd: float

    @property
    def network(self) -> Network | None:
        return self.joining.network if self.joining else None

    def network_price(self, nodes: int) -> NetworkPrice | None:
        """Of one cluster of so many; None where nothing is bought for it."""
        return None if self.to_join is None else network_price(self.to_join, nodes)

    @property
    def to_join(self) -> Joining | None:
        """The network that is bought for it."""
        return self.joining if self.acquisition in OWNED and not self.server.joined else None

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

    @property
    def network_assumed(self) -> bool:
        """Nobody says how several of them are joined."""
        return self.server.network_assumed and self.joining is not None

    @property
    def housed(self) -> tuple[str, Network | None]:
        """As a site would have to house several of them."""
        return (self.server.id, self.network)

    @property
    def network_words(self) -> str:
        if self.network is None:
            return "one machine"
        name = network_name(self.network)
        return f"an unknown network ({name} assumed)" if self.network_assumed else name


@dataclass(frozen=True)
class OfferColumns:
    """The prices of all offers, one entry each."""

    acquisition: Floats  # position in the plan's search.ways
    usd_per_hour: Floats
    buy_usd: Floats
    network: Integers  # row of `networks_usd`
    watts: Floats
    gpus: Floats
    memory_bytes: Floats  # of one GPU
    keeping_usd: Floats  # data in the cloud, over the horizon
    egress_usd: Floats  # of one run
    node_counts: Integers  # in order
    networks_usd: Floats  # of one cluster: a row for each network, a column for each of the counts

    @staticmethod
    def of(
        offers: Sequence[Offer],
        acquisitions: Sequence[Acquisition],
        data: CloudData,
        runs: PlannedRuns,
        node_counts: Sequence[int],
    ) -> "OfferColumns":
        clouds = {cloud: data.usd(cloud, runs) for cloud in {o.server.cloud for o in offers}}
        # the first stands for everything that needs no network, or comes with one
        joinings = dict.fromkeys([None, *(o.to_join for o in offers)])
        position = {joining: row for row, joining in enumerate(joinings)}
        rows = [
            (acquisitions.index(o.acquisition), o.usd_per_hour, o.buy_usd,
             position[o.to_join], o.server.watts, o.server.gpus,
             o.server.gpu.memory_bytes, *(clouds[o.server.cloud] if o.acquisition not in OWNED else (0, 0)))
            for o in offers
        ]  # fmt: skip
        columns = np.array(rows, dtype=float).reshape(-1, 9).T
        counts = sorted(set(node_counts))
        usd = [
            [network_price(j, n).usd if j is not None and n > 1 else 0.0 for n in counts]
            for j in joinings
        ]
        return OfferColumns(
            acquisition=columns[0],
            usd_per_hour=columns[1],
            buy_usd=columns[2],
            network=columns[3].astype(np.int64),
            watts=columns[4],
            gpus=columns[5],
            memory_bytes=columns[6],
            keeping_usd=columns[7],
            egress_usd=columns[8] / runs.total,
            node_counts=np.array(counts, dtype=np.int64),
            networks_usd=np.array(usd, dtype=float),
        )

    def network_usd(self, offer: Integers, nodes: Floats) -> Floats:
        """Of one cluster of so many nodes, for each of some offers."""
        column = np.searchsorted(self.node_counts, nodes)
        found: Floats = self.networks_usd[self.network[offer], column]
        return found


def offers_of(servers: Sequence[PricedServer], plan: Plan) -> list[Offer]:
    """Every acquisition that the plan asks for, of every server that it allows."""
    search = plan.search
    return [
        offer
        for server in servers
        # what needs software of its own is only taken where the plan names it
        if server.owned is not None
        or (
            (not server.gpu.own_software if search.gpus is None else server.gpu.id in search.gpus)
            and (search.offers is None or server.id in search.offers)
        )
        for acquisition in search.ways
        for offer in _joined(server, acquisition, plan)
    ]


def _joined(server: PricedServer, acquisition: Acquisition, plan: Plan) -> Iterator[Offer]:
    price = _price(server, acquisition, plan)
    if price is None:
        return
    usd_per_hour, buy_usd = price
    if 1 in plan.search.nodes:
        yield Offer(server, acquisition, None, usd_per_hour, buy_usd)
    if any(count > 1 for count in plan.search.nodes):
        for joining in server.joinings(plan):
            yield Offer(server, acquisition, joining, usd_per_hour, buy_usd)


def _price(
    server: PricedServer, acquisition: Acquisition, plan: Plan
) -> tuple[float, float] | None:
    """Dollars an hour and dollars once; None: not to be had so."""
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
            return _reserved(server, acquisition, plan)
        case "hybrid":
            return None  # made of the others


def _reserved(
    server: PricedServer, acquisition: Acquisition, plan: Plan
) -> tuple[float, float] | None:
    known = given_discount(plan, acquisition) is not None or server.cloud in RESERVING_CLOUDS
    if (
        server.rent_usd_per_hour is None
        or not known
        or RESERVED_YEARS[acquisition] > years_of(plan)
    ):
        return None
    return server.rent_usd_per_hour * (1 - discount(plan, acquisition)), 0.0


def years_of(plan: Plan) -> float:
    return plan.horizon / (365.25 * 86400)


def given_discount(plan: Plan, acquisition: Acquisition) -> float | None:
    one, three = plan.prices.reserved_1_year, plan.prices.reserved_3_years
    return one if acquisition == "reserved-1-year" else three


def is_assumed(plan: Plan, acquisition: Acquisition) -> bool:
    """A term's price that neither a list nor the plan has."""
    return acquisition in RESERVED_YEARS and given_discount(plan, acquisition) is None


def discount(plan: Plan, acquisition: Acquisition) -> float:
    """What a term takes off the price on demand."""
    given = given_discount(plan, acquisition)
    return DEFAULT_DISCOUNTS[acquisition] if given is None else given
