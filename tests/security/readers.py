"""Everything of gpuyard that reads what a stranger wrote: each spec, each text, each word of a command line."""

import inspect
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path

from gpuyard import units
from gpuyard.catalog import specfiles
from gpuyard.catalog.price_update import check_newer, read_source
from gpuyard.catalog.prices import newest_date, read_price_table
from gpuyard.cli.cost.invoice import _listed, _number
from gpuyard.cli.lab import _links_of
from gpuyard.cli.options import chosen_calibration, parse_counts, parse_exchange, parse_strategy
from gpuyard.economics.billing import rent_price
from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
from gpuyard.economics.usage import demand_of_usage, read_usage
from gpuyard.errors import GpuyardError
from gpuyard.files import read_text
from gpuyard.hardware.clusters import read_cluster
from gpuyard.hardware.product_names import catalog_gpu
from gpuyard.hardware.readers.read import read_topology
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.jobs.simulate.traces.pollux import read_epochs, read_placements, read_pollux
from gpuyard.lab import plan_from_text, state
from gpuyard.lab.network import namespace_names
from gpuyard.measure.collectives.plan import parse_sizes
from gpuyard.measure.reading import read_results
from gpuyard.predict.machine_summary import summarise
from gpuyard.run.places.hosts import Hosts
from gpuyard.share.service import service
from gpuyard.share.service.wire import MOST_REQUEST_BYTES
from gpuyard.share.store.lease import Request
from gpuyard.steps.windows import read_log

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gpuyard"
_SHORT_TABLE_LINES = 20


@dataclass(frozen=True)
class Reader:
    """One of them: what it reads, and what it is meant for."""

    name: str
    read: Callable[[str], object]  # of a file its path, else the text itself
    examples: tuple[str, ...]
    of_file: bool = True

    @cached_property
    def structured(self) -> bool:
        """Whether its text is a tree of values, so that single ones can be changed."""
        return self.name.endswith((".yaml", ".json"))


def _files(*globs: str) -> tuple[str, ...]:
    found = [path for glob in globs for path in sorted(ROOT.glob(glob))]
    assert found, f"no example is in {globs}"
    return tuple(path.read_text(encoding="utf-8") for path in found)


_STEPS = (
    "epoch 1\n"
    'gpuyard-steps: {"job": "u", "start": "a", "gpus": 2, "nodes": 1, "at": 1.5, "workers": 2, "steps": 10, '
    '"samples": 640.0, "seconds": 1.0, "step_seconds": 0.1, "warmup": true, "steps_done": 11, "samples_done": 704, '
    '"number": 11, "total": 90, "loss": 2.5, "testbed": {"host": "h", "cores": 2, "memory_bytes": 1, "gpus": ["g"]}}\n'
)
_USAGE = (
    '{"leases": [{"id": "a1", "user": "ann", "project": "nmt", "gpus": [0, 1], "share": 1.0, "ended": "finished", '
    '"start": "2026-01-01T09:00:00+00:00", "end": "2026-01-01T11:30:00+00:00"}]}'
)
_CALIBRATION = {
    "kind": "gpuyard-calibration", "version": 1, "created_at": "2026-01-02", "gpuyard": "0.1.0",
    "hardware": [{
        "device": "cuda", "processor": "v100-sxm2-16gb", "count": 8, "cores_per_worker": None,
        "hosts": ["here"], "runs": 4, "link_benches": 0, "first_run": "", "last_run": "", "torch": ["2.13"],
        "constants": [{"name": "overlap", "value": 0.5, "default": 0.4, "unit": "", "doubt": 0.1}],
        "lines": [{
            "workload": "r", "model": "resnet50", "precision": "fp16", "gradient_bytes": 102_000_000,
            "fixed_seconds": 1e-3, "seconds_per_sample": 1e-3, "fixed_basis": "measured", "runs": 4,
            "smallest_batch": 32, "largest_batch": 64,
        }],
        "errors": {
            "configurations": 2, "mean_before": 0.1, "mean_after": 0.1, "median_before": 0.1,
            "median_after": 0.1, "mean_fitted": 0.1,
        },
    }],
}  # fmt: skip
_PRICES = "".join(
    (SOURCE / "catalog/data/prices.csv")
    .read_text(encoding="utf-8")
    .splitlines(keepends=True)[:_SHORT_TABLE_LINES]
)
_DEMAND = (
    "time,gpus\n2026-01-01T00:00,4\n2026-01-01T01:00,8\n",
    'day,gpu_hours,note\n2026-01-01,4.5,"a, b"\n2026-01-02,8,\n',
)
_SACCT = (
    "JobID|Start|End|AllocTRES\n1|2026-01-01T00:00:00|2026-01-01T05:30:00|cpu=8,gres/gpu=8\n"
    "1.batch|2026-01-01T00:00:00|2026-01-01T05:30:00|cpu=8,gres/gpu=8\n"
    "2|2026-01-01T02:00:00|Unknown|gres/gpu:a100=2,gres/gpu:t4=1\n"
)
_SACCT_JOBS = (
    "JobID|User|Account|Submit|Start|End|AllocTRES\n"
    "1|ann|nlp|2026-01-01T00:00:00|2026-01-01T00:00:05|2026-01-01T05:30:00|cpu=8,gres/gpu=8\n"
    "2|bob|nlp|2026-01-01T02:00:00|2026-01-01T02:00:00|Unknown|gres/gpu:a100=2,gres/gpu:t4=1\n"
)
_PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
_POLLUX_TRACES = ROOT / "examples/traces/pollux"
_POLLUX = "name,time,application,num_replicas,batch_size\na-0,53,bert,6,48\nb-1,154,bert,2,12\n"
_PLACEMENTS = "placement,local_bsz,step_time,sync_time\n1,4,0.45,0.01\n1,8,0.7,0.01\n13,4,0.9,0.4\n"
_EPOCHS = "progress,grad_sqr,grad_var\n7387,1.9e+14,6.8e+15\n14774,4.0e+11,3.8e+13\n"

_REQUESTS = (
    json.dumps(
        {
            "do": "ask",
            "request": {
                "count": 2,
                "gpus": [0, 1],
                "parts": 4,
                "seconds": 60.5,
                "command": "train",
            },
        }
    ),
)


def _results() -> tuple[str, ...]:
    return tuple(text.splitlines()[0] for text in _files("tests/data/store/*.jsonl"))


def _prices(path: str) -> None:
    table = read_price_table(read_source(path), path)
    check_newer(table, path, newest_date(table))


def _topology(path: str) -> object:
    return summarise(read_topology(Path(path), "h100-sxm5-80gb"))


def _pollux(path: str) -> object:
    return read_pollux(Path(path), _POLLUX_TRACES)


def _placements(path: str) -> object:
    return read_placements(Path(path))


def _validation(path: str) -> object:
    return read_epochs(Path(path), 2)


def _request(text: str) -> object:
    line = text.encode("utf-8", "surrogatepass")[:MOST_REQUEST_BYTES]
    return Request.from_document(service._request(line).get("request"))


def _lab() -> str:
    plan = plan_from_text("2x1Gbit")
    assert plan is not None
    names = namespace_names(plan, "0a1b2c")
    return json.dumps(asdict(state.LabState(plan, names, "ready", False, "2026-01-02")))


def _lab_state(text: str) -> None:
    path = state.directory() / "lab.json"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    path.chmod(0o644)
    state.read("lab")


SPECS: dict[str, Callable[[str], object]] = {
    "workload": specfiles.read_workload,
    "cluster": read_cluster,
    "study": lambda path: specfiles.read_study(Path(path)),
    "plan": lambda path: specfiles.read_plan(Path(path)),
    "offers": lambda path: specfiles.read_offers(Path(path)),
    "site": lambda path: specfiles.read_site(Path(path)),
    "sweep": lambda path: specfiles.read_sweep(Path(path)),
    "deployment": lambda path: specfiles.read_deployment(Path(path)),
    "job": lambda path: specfiles.read_job(Path(path)),
}


def _parsers() -> dict[str, Callable[[str], object]]:
    """Those of `units` that take a quantity and nothing else."""
    return {
        name: function
        for name, function in vars(units).items()
        if name.startswith("parse_")
        and list(inspect.signature(function).parameters) == ["quantity"]
    }


def _invoice(text: str) -> list[float]:
    return [_number(part) for part in _listed(text)]


_WORDS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "cluster": (read_cluster, ("2x4xrtx-3090@10G", "dgx-a100", "8xdgx-h100@8xinfiniband-ndr")),
    "workload": (specfiles.read_workload, ("resnet50", "spoken-digits-conv")),
    "lab": (plan_from_text, ("8x1Gbit", "8x10Gbit,dilation=10,racks=2,uplink=1Gbit,latency=1 ms")),
    "links of nodes": (lambda text: _links_of([text]), ("3=100Mbit",)),
    "hosts": (lambda text: Hosts(tuple(text.split(","))), ("node1,me@node2",)),
    "sizes": (parse_sizes, ("1KB..1MB", "1MB,10MB")),
    "counts": (parse_counts, ("1,2,4",)),
    "strategy": (parse_strategy, ("ddp",)),
    "compression": (lambda text: parse_exchange(text, 1, None, 1), ("fp16", "powersgd:2")),
    "price of renting": (rent_price, ("$1.50/h", "$160308/year", "aws/p4d.24xlarge")),
    "invoice": (_invoice, ("0.67,1.28",)),
    "GPU by its driver": (catalog_gpu, ("NVIDIA A100-SXM4-80GB", "GK210GL [Tesla K80] (rev 1)")),
    "quantity": (
        lambda text: [_or_mistake(parse, text) for parse in _parsers().values()],
        ("46 MB", "10 Gbit/s", "30 us", "20 kW", "$8,000", "$15000/year", "$1.50/h", "$0.12/kWh",
         "$184/kW/month", "30 %"),
    ),
}  # fmt: skip


def _or_mistake(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except GpuyardError as mistake:
        return mistake


READERS = (
    *(
        Reader(f"{kind}.yaml", read, _files(f"examples/*.{kind}.yaml"))
        for kind, read in SPECS.items()
    ),
    Reader(
        "topology",
        _topology,
        _files("tests/hardware/recorded/*/*.txt", "tests/hardware/recorded/*/*.xml"),
    ),
    Reader("prices.csv", _prices, (_PRICES,)),
    Reader("demand.csv", lambda path: demand_from_csv(read_text(Path(path)), path), _DEMAND),
    Reader("sacct", lambda path: demand_from_sacct(read_text(Path(path)), path), (_SACCT,)),
    Reader("usage.json", lambda path: demand_of_usage(read_usage(read_text(Path(path)), path), path), (_USAGE,)),
    Reader("trace.csv", lambda path: read_trace(Path(path), "gpuyard"), _files("examples/traces/team.csv")),
    Reader("philly.csv", lambda path: read_trace(Path(path), "philly"), (_PHILLY,)),
    Reader("sacct of jobs", lambda path: read_trace(Path(path), "sacct"), (_SACCT_JOBS,)),
    Reader("pollux.csv", _pollux, (_POLLUX,)),
    Reader("placements.csv", _placements, (_PLACEMENTS,)),
    Reader("validation.csv", _validation, (_EPOCHS,)),
    Reader("calibration.json", chosen_calibration, (json.dumps(_CALIBRATION),)),
    Reader("results", lambda path: read_results([Path(path)]), _files("tests/data/store/*.jsonl")),
    Reader("result.json", lambda path: read_results([Path(path)]), _results()),
    Reader("steps", lambda path: read_log(Path(path)), (_STEPS,)),
    Reader("request.json", _request, _REQUESTS, of_file=False),
    Reader("lab.json", _lab_state, (_lab(),), of_file=False),
    *(
        Reader(name, read, examples, of_file=False) for name, (read, examples) in _WORDS.items()
    ),
)  # fmt: skip

OWN = "gpuyard's own data, shipped with it"
HOST = "what the kernel of this host says"
RANKS = "what gpuyard's own processes say to each other"
KEPT = "what gpuyard kept for this user, where nobody else may write"
CLUSTER = "what the scheduler answers that the user named, and what was kept of it for this user"
OWNER = "what the owner of a share wrote where nobody else may, and the kernel"
READ_BY: dict[str, str] = {
    "catalog/price_update.py": "prices.csv",
    "catalog/prices.py": "prices.csv",
    "catalog/published.py": OWN,
    "catalog/specfiles.py": "workload.yaml",
    "catalog/tables.py": OWN,
    "cli/cost/hybrid.py": "demand.csv",
    "cli/options.py": "calibration.json",
    "cli/plan.py": "usage.json",
    "deploy/clouds/lambda_cloud.py": "what the cloud answers that the user pays; junk is in tests/deploy/test_lambda_cloud.py",
    "deploy/clouds/pace.py": KEPT,
    "deploy/clouds/ttl.py": KEPT,
    "deploy/state.py": KEPT,
    "deploy/targets/lab_target.py": OWN,
    "deploy/targets/lambda_target.py": OWN,
    "deploy/terraform/run.py": KEPT,
    "economics/demand.py": "demand.csv",
    "economics/usage.py": "usage.json",
    "files.py": "demand.csv",
    "hardware/clusters.py": "cluster.yaml",
    "cpu.py": HOST,
    "hardware/discover.py": HOST,
    "hardware/readers/read.py": "topology",
    "hardware/readers/xml_text.py": "topology",
    "jobs/engines/kubernetes/": CLUSTER,
    "jobs/engines/local/": KEPT,
    "jobs/engines/slurm/": CLUSTER,
    "jobs/simulate/traces/__init__.py": "trace.csv",
    "jobs/simulate/traces/history.py": "sacct of jobs",
    "jobs/simulate/traces/rows.py": "trace.csv",
    "lab/machine_init.py": RANKS,
    "lab/machine_root.py": HOST,
    "lab/machines.py": KEPT,
    "lab/operation.py": RANKS,
    "lab/network.py": HOST,
    "lab/state.py": "lab.json",
    "measure/collectives/mpi_worker.py": RANKS,
    "measure/convergence/checkpoint.py": "test_checkpoints.py",
    "measure/export/mlflow.py": "what the server answers that the user named",
    "measure/kind.py": OWN,
    "measure/links/facts.py": HOST,
    "measure/reading.py": "results",
    "measure/store.py": "results",
    "predict/stacks/grid.py": OWN,
    "planner/explain/alternatives.py": OWN,
    "planner/playbook/rulebook.py": OWN,
    "predict/calibration/document.py": "calibration.json",
    "predict/constants.py": OWN,
    "report/html.py": OWN,
    "run/probe.py": RANKS,
    "run/rank_process.py": RANKS,
    "run/ranks.py": RANKS,
    "run/store.py": RANKS,
    "run/torchrun_agent.py": RANKS,
    "share/": OWNER,
    "share/service/service.py": "request.json",
    "specs/loading.py": "cluster.yaml",
    "steps/windows.py": "steps",
    "workloads/digit_clips.py": "test_downloads.py",
    "workloads/own_code.py": "a user's own code, for its digest",
    "workloads/profile_process.py": RANKS,
}
"""Each file (or room) of the package that reads text or bytes → the reader here that comes to it, or why none does."""
