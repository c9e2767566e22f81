"""Acceptance of a delivered cluster: is every node, link, and GPU as ordered?"""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard import units
from gpuyard.api.inputs import read_cluster
from gpuyard.api.result import Result, Row, wrap
from gpuyard.errors import UserMistake
from gpuyard.files import results_file
from gpuyard.measure.acceptance.expected import find_price
from gpuyard.measure.acceptance.plan import DEFAULT_SECONDS, plan_acceptance
from gpuyard.measure.acceptance.records import PHASES, ClusterPrice
from gpuyard.measure.acceptance.run import run_acceptance
from gpuyard.measure.progress import ProgressCallback
from gpuyard.measure.store import ResultsStore
from gpuyard.report.answers.acceptance import acceptance_answer
from gpuyard.report.answers.results import plan_answer
from gpuyard.run.places import Hosts, Place, find_allocation, open_lab

if TYPE_CHECKING:
    from gpuyard.specs import Cluster

DEFAULT_STORAGE = "/var/tmp"  # noqa: S108 - on a disk of the node, unlike /tmp
_DEPLOYMENT = (".deployment.yaml", ".deployment.yml")


def accept(
    cluster: "str | Path | Cluster",
    *,
    hosts: str | Sequence[str] | None = None,
    slurm: bool = False,
    lab: str | None = None,
    time: str | float = DEFAULT_SECONDS,
    phases: str | Sequence[str] = PHASES,
    storage: str | None = DEFAULT_STORAGE,
    price: str | float | None = None,
    fresh: bool = False,
    dry_run: bool = False,
    on_progress: ProgressCallback | None = None,
) -> Result[Row]:
    """Check a delivered cluster: every node's parts, each node alone, pairs, and all nodes together.

    `cluster` is what was ordered: a cluster file, a short name like "8x8xh100@ndr", or the file of a deployment that is
    up. Its nodes are `hosts` over ssh, those of this Slurm allocation, or a lab. `accepted` is the verdict, and each row
    is a node with its grade. With `dry_run`, the result is the plan, and nothing is measured.
    """
    seconds = units.parse_seconds(time, "30 min") if isinstance(time, str) else float(time)
    chosen = [p.strip() for p in phases.split(",")] if isinstance(phases, str) else list(phases)
    cluster_price = None
    if price is not None:
        cluster_price = ClusterPrice(
            usd_per_hour=units.parse_usd_per_hour(price), basis="given price"
        )
    with _open(cluster, hosts, lab, slurm=slurm, planning=dry_run) as (spec, place, rent):
        plan = plan_acceptance(
            spec,
            place,
            seconds=seconds,
            phases=chosen,
            storage=storage,
            price=cluster_price or rent or find_price(spec),
        )
        if dry_run:
            return Result(plan_answer(plan))
        store = ResultsStore(results_file())
        record = run_acceptance(plan, store, on_progress or (lambda _progress: None), fresh=fresh)
    answer = acceptance_answer(record)
    return Result(answer, wrap(answer.document["nodes"]))


@contextlib.contextmanager
def _open(
    cluster: "str | Path | Cluster",
    hosts: str | Sequence[str] | None,
    lab: str | None,
    *,
    slurm: bool,
    planning: bool,
) -> "Iterator[tuple[Cluster, Place, ClusterPrice | None]]":
    """Open the nodes; a temporary lab exists only meanwhile, and not for `planning`."""
    count = sum((lab is not None, hosts is not None, slurm))
    if isinstance(cluster, str | Path) and str(cluster).endswith(_DEPLOYMENT):
        if count:
            raise UserMistake(
                "a deployment knows its machines; leave out --hosts, --slurm, and --lab"
            )
        yield _open_deployment(Path(cluster))
        return
    if count != 1:
        raise UserMistake(
            "where are the nodes? Use one of --hosts node1,node2, --slurm, and --lab, or name a "
            "*.deployment.yaml that is up"
        )
    spec = read_cluster(cluster)
    if lab is not None:
        with open_lab(lab, planning=planning) as nodes:
            yield spec, nodes, None
    elif slurm:
        yield spec, find_allocation(), None
    else:
        names = hosts.split(",") if isinstance(hosts, str) else list(hosts or ())
        yield spec, Hosts(tuple(name.strip() for name in names)), None


def _open_deployment(file: Path) -> "tuple[Cluster, Place, ClusterPrice | None]":
    from gpuyard.deploy.access.place import create_place
    from gpuyard.deploy.access.remote import require_hosts
    from gpuyard.deploy.deployment import load_deployment

    loaded = load_deployment(file)
    place = create_place(loaded, require_hosts(loaded, file), Hosts)
    usd = loaded.target.usd_per_hour(loaded.deployment, loaded.cluster)
    rent = (
        ClusterPrice(usd_per_hour=usd, basis=f"rent of {loaded.deployment.name}") if usd else None
    )
    return loaded.cluster, place, rent
