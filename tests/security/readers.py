"""Every gpuyard function that reads input from strangers: specs, files, and command-line arguments."""

import contextlib
import inspect
import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from gpuyard import units
from gpuyard.api.inputs import load_calibration, parse_counts, parse_exchange, parse_strategy
from gpuyard.api.invoice import _parse_number, _split_list
from gpuyard.api.tool_output import judge_tool_output
from gpuyard.catalog import specfiles
from gpuyard.catalog.price_update import check_not_in_future, read_source
from gpuyard.catalog.prices import newest_date, read_price_table
from gpuyard.cli.lab import _parse_node_links
from gpuyard.deploy.clouds.lambda_cloud import LambdaCloud
from gpuyard.deploy.clouds.rate_limit import RateLimiter
from gpuyard.deploy.clouds.rspec import read_manifest, read_requested_names
from gpuyard.deploy.stack.facts import parse_environment, parse_gpus, parse_packages, parse_runtimes
from gpuyard.deploy.stack.lock import read_lock, read_shipped_text
from gpuyard.deploy.state import StateDirectory
from gpuyard.economics.billing import parse_rent_price
from gpuyard.economics.demand import demand_from_csv, demand_from_sacct
from gpuyard.economics.usage import demand_from_usage, read_usage
from gpuyard.errors import GpuyardError
from gpuyard.files import home, read_text
from gpuyard.hardware.clusters import read_cluster
from gpuyard.hardware.product_names import find_catalog_gpu
from gpuyard.hardware.readers.topology_file import read_topology
from gpuyard.jobs.engines.kubernetes.draft import (
    GPUS_ANNOTATION,
    JOB_ANNOTATION,
    NAME_ANNOTATION,
    USER_LABEL,
    UUID_LABEL,
)
from gpuyard.jobs.engines.kubernetes.kinds import KINDS
from gpuyard.jobs.engines.kubernetes.objects import check_object, check_objects
from gpuyard.jobs.engines.kubernetes.status import ObjectReference, read_job, read_status
from gpuyard.jobs.gpu_samples import read_samples
from gpuyard.jobs.simulate.traces import read_trace
from gpuyard.jobs.simulate.traces.pollux import read_epochs, read_placements, read_pollux
from gpuyard.lab import plan_from_text, state
from gpuyard.lab.network import namespace_names
from gpuyard.measure.collectives.plan import parse_sizes
from gpuyard.measure.reading import read_results
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.validation import judge_table
from gpuyard.predictor.topology import summarize_topology
from gpuyard.reporting.ranks import read_rank_log
from gpuyard.reporting.windows import read_log
from gpuyard.run.places.hosts import Hosts
from gpuyard.share import service, wire
from gpuyard.share.broker import Broker
from gpuyard.share.caller import Caller
from gpuyard.share.config import ShareConfig, SharedGpu, read_config
from gpuyard.share.devices import split_device_numbers
from gpuyard.share.setup import set_up
from gpuyard.share.slurm import jobs as share_jobs
from gpuyard.share.wire import MAX_REQUEST_BYTES
from gpuyard.slurm import client as slurm_client
from gpuyard.slurm import gpu_jobs
from gpuyard.slurm import jobs as slurm_jobs
from gpuyard.slurm import nodes as slurm_nodes
from gpuyard.web_client import parse_json, read_json
from gpuyard.workloads.hugging_face import read_hugging_face_config

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "gpuyard"
_SHORT_TABLE_LINES = 20
_NO_PROCESS = 1 << 22  # larger than any process ID


@dataclass(frozen=True)
class Reader:
    """One function that reads input, and valid examples of that input."""

    name: str
    read: Callable[[str], object]  # gets a path if `reads_file`, otherwise the text
    examples: tuple[str, ...]
    reads_file: bool = True

    @cached_property
    def structured(self) -> bool:
        """Whether the text is a tree of values, so that single values can be replaced."""
        return self.name.endswith((".yaml", ".json"))


def _read_files(*globs: str) -> tuple[str, ...]:
    paths = [path for glob in globs for path in sorted(ROOT.glob(glob))]
    assert paths, f"no examples match {globs}"
    return tuple(path.read_text(encoding="utf-8") for path in paths)


_STEPS = (
    "epoch 1\n"
    'gpuyard-steps: {"job": "u", "start": "a", "gpus": 2, "nodes": 1, "at": 1.5, "workers": 2, "steps": 10, '
    '"samples": 640.0, "seconds": 1.0, "step_seconds": 0.1, "warmup": true, "steps_done": 11, "samples_done": 704, '
    '"number": 11, "total": 90, "loss": 2.5, "testbed": {"host": "h", "cores": 2, "memory_bytes": 1, "gpus": ["g"]}}\n'
)
_GPU_SAMPLE = (
    '{"at": 1795032000.5, "gpus": {"0": [0.97, 61000000000, 612.5], "3": [null, null, null]}}\n'
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

_REQUESTS = tuple(
    json.dumps(request)
    for request in (
        {"do": "state"},
        {"do": "ask", "request": {
            "count": 2, "gpus": [0, 1], "parts": 4, "seconds": 60.5, "command": "train", "project": "nmt",
            "memory_bytes": None, "waits": False,
        }},
        {"do": "reserve", "request": {"count": 1, "start": 4e9, "end": 4e9 + 60, "gpus": [0]}},
        {"do": "drain", "gpus": [0], "until": 4e9},
        {"do": "set_rules", "rules": {"half_life_seconds": 86400.0, "fair_share": "group", "quotas": {"a": 2}}, "before": {}},
        {"do": "release", "lease_id": "0a1b2c3d"},
        {"do": "enclose", "lease_id": "0a1b2c3d", "pid": 1},
        {"do": "finish", "lease_id": "0a1b2c3d", "childless": True},
    )
)  # fmt: skip
_SHARED = json.dumps({
    "gpus": [{"index": 0, "name": "x", "memory_bytes": 1, "vendor": "nvidia", "device": "/dev/nvidia0"}], "admin_group": "a",
    "grace_seconds": 5.0, "rates": {"3": 1e9}, "isolation": "cgroup2", "rules": {"quotas": {"a": 1}},
})  # fmt: skip
_HOSTS = json.dumps([{
    "name": "a", "address": "192.0.2.1", "user": "root", "port": 22, "host_key": "ssh-ed25519 AAAA", "proxy_command": "x y",
    "private_address": "", "trust_on_first_use": False,
}])  # fmt: skip
_LAMBDA = tuple(
    json.dumps({"data": data})
    for data in (
        {"gpu_1x_a10": {
            "instance_type": {"price_cents_per_hour": 75}, "regions_with_capacity_available": [{"name": "us-east-1"}],
        }},
        [{"id": "1", "name": "a", "status": "active", "ip": "192.0.2.1", "private_ip": "10.0.0.1"}],
    )
)  # fmt: skip


_FACTS = (
    "NVIDIA A100-SXM4-80GB, 580.95.05, 8.0\nTesla T4, 580.95.05, 7.5\n",
    "docker.io\t26.1.5\tinstall ok installed\nnvidia-driver\t580\tdeinstall ok config-files\n",
    '[{"name": "torch", "version": "2.9.0"}, {"name": "Horovod", "version": "0.28.1"}]',
    '{"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}',
    "[" * 200_000,
    '"' + "x" * 200_000,
)
_LOCKS = (
    read_shipped_text(),
    "a = " + "[" * 200_000,
    "a = " + "9" * 5000,
    read_shipped_text().replace('version = "', 'version = "' + "9" * 5000, 1),
)


def _results() -> tuple[str, ...]:
    return tuple(text.splitlines()[0] for text in _read_files("tests/data/store/*.jsonl"))


def _prices(path: str) -> None:
    table = read_price_table(read_source(path), path)
    check_not_in_future(table, path, newest_date(table))


def _topology(path: str) -> object:
    return summarize_topology(read_topology(Path(path), "h100-sxm5-80gb"))


def _tool_output(path: str) -> object:
    return judge_tool_output(path, on="2xdgx-h100", gpus=16)


def _pollux(path: str) -> object:
    return read_pollux(Path(path), _POLLUX_TRACES)


def _placements(path: str) -> object:
    return read_placements(Path(path))


def _validation(path: str) -> object:
    return read_epochs(Path(path), 2)


def _request(text: str) -> None:
    """Do everything that the service does for an unprivileged caller, except the socket."""
    directory = home() / "junk-share"
    if not directory.exists():
        set_up(directory, fake_gpus=4)
    line = text.encode("utf-8", "surrogatepass")[:MAX_REQUEST_BYTES]
    broker = Broker(directory, Caller(65534, 65534, _NO_PROCESS))
    try:
        reply, lock = service.perform(broker, service.parse_request(line))
        wire.encode(reply)
        if lock is not None:
            os.close(lock)
    finally:
        broker.close()


def _share(path: str) -> None:
    Path(path).rename(Path(path).parent / "share.json")
    config = read_config(Path(path).parent)
    split_device_numbers(config, config.indices)


def _hosts(path: str) -> None:
    state = StateDirectory("junk")
    state.path.mkdir(parents=True, exist_ok=True)
    Path(path).rename(state.path / "hosts.json")
    state.write_hosts(state.hosts())


class _FileBackedLambdaCloud(LambdaCloud):
    """A Lambda Cloud whose response to every request is the content of a file."""

    def _request(self, *_: object, **__: object) -> dict[str, Any]:
        try:
            with Path(self.address).open("rb") as file:
                document = read_json(file, 1_000_000)
            return {"data": document["data"]}
        except (ValueError, TypeError, KeyError):
            raise GpuyardError("invalid response") from None


def _lambda(path: str) -> None:
    cloud = _FileBackedLambdaCloud(path, "key", RateLimiter(Path(path).parent / "rate_limit", {}))
    requests: dict[str, Callable[[], object]] = {
        "instances": cloud.instances,
        "instance types": cloud.instance_types,
        "ssh keys": cloud.ssh_keys,
    }
    responses = [_read_or_error(lambda name: requests[name](), name) for name in requests]
    if all(isinstance(response, GpuyardError) for response in responses):
        raise GpuyardError("no response is valid")


def _facts(text: str) -> list[object]:
    """Parse with every function; none may raise, because unreadable facts are treated as missing."""
    return [read(text) for read in (parse_gpus, parse_packages, parse_environment, parse_runtimes)]


def _rspec(path: str) -> object:
    text = read_text(Path(path))
    request = text.replace('type="manifest"', 'type="request"', 1)
    return _read_or_error(read_requested_names, request), read_manifest(text, path)


_SQUEUE = (
    "17|17|N/A|RUNNING|0|0|2|1767225600|1767225605|1767229200|None|node[1-2]|gpuyard:0a1b2c3d-0000-4000-8000-000000000000|\n"
    "19|18|3|PENDING|0|0|1|1767225600|N/A|N/A|Resources||(null)|\n"
    "18_3|FAILED|3:0|1|1767225600|1767225605|1767229200|node1|sbatch 0a1b2c3d-0000-4000-8000-000000000000/script\n"
)
_SINFO = "node1|gpu*|gpu:a100:8(S:0-1)|gpu:a100:2(IDX:0-1)|mix|\nnode2|gpu*|gpu:8|gpu:0|idle|\n"
_CONFIG = "ClusterName = lab\nNEXT_JOB_ID = 12\nMinJobAge = 300 sec\nSelectType = select/cons_tres\nTopologyPlugin = topology/tree\n"
_GPU_JOBS = json.dumps({
    "jobs": [{
        "job_id": 7, "user_name": "ann", "name": "x", "comment": "p", "job_state": "RUNNING",
        "tres_per_node": "gres:gpu:a100:1", "gres_detail": ["gpu:1(IDX:0-1,3)"], "submit_time": 1767225600,
        "start_time": {"set": True, "infinite": False, "number": 1767225601}, "end_time": 0, "time_limit": None,
    }]
})  # fmt: skip


def _replace_output(module: ModuleType, text: str) -> "contextlib.AbstractContextManager[object]":
    """Make every Slurm command that the module runs print this text."""
    return mock.patch.object(module, "run", lambda *_: text)


def _slurm(text: str) -> None:
    with _replace_output(slurm_client, text):
        jobs = [*slurm_jobs.list_jobs(), *slurm_jobs.find_jobs(17)]
        uuid = "0a1b2c3d-0000-4000-8000-000000000000"
        jobs += slurm_jobs.list_accounted_jobs([18], submit_line_contains=uuid, comment="x")
        replies = [
            _read_or_error(lambda _: slurm_nodes.list_partition(None), ""),
            _read_or_error(lambda _: slurm_client.read_config(), ""),
        ]
    assert all(job.state and job.reason is not None and job.number > 0 for job in jobs)
    if not jobs and all(
        isinstance(reply, GpuyardError) or reply == slurm_nodes.PartitionNodes((), ())
        for reply in replies
    ):
        raise GpuyardError("no output is valid")


def _slurm_share(text: str) -> None:
    config = ShareConfig(tuple(SharedGpu(i, "a") for i in range(4)))
    with _replace_output(gpu_jobs, text):
        share_jobs.describe_jobs(config, {})


_OBJECT = json.dumps({
    "object": {
        "metadata": {
            "name": "digits", "creationTimestamp": "2026-11-16T09:00:00Z",
            "labels": {UUID_LABEL: "0a1b2c3d-0000-4000-8000-000000000000", USER_LABEL: "ann"},
            "annotations": {GPUS_ANNOTATION: "2", NAME_ANNOTATION: "digits", JOB_ANNOTATION: json.dumps({
                "uuid": "0a1b2c3d-0000-4000-8000-000000000000", "cwd": "/x", "submitted": 1e9, "deadline": None,
                "spec": {"name": "digits", "command": ["train"], "gpus": {"min": 1, "max": 2}},
            })},
        },
        "spec": {"suspend": False},
        "status": {"ready": 1, "failed": 0, "completionTime": "2026-11-16T09:10:00Z", "jobsStatus": [
            {"name": "node", "ready": 1, "active": 1, "succeeded": 0, "failed": 0, "suspended": 0}],
            "replicaStatuses": {"Worker": {"active": 1}},
            "conditions": [{"type": "Complete", "status": "True", "reason": "r", "message": "m",
                            "lastTransitionTime": "2026-11-16T09:10:00Z"}]},
    },
    "pods": [{
        "metadata": {"name": "digits-0", "labels": {UUID_LABEL: "a"}}, "spec": {"nodeName": "n"},
        "status": {"phase": "Running", "startTime": "2026-11-16T09:00:00Z", "conditions": [], "containerStatuses": [
            {"restartCount": 1, "state": {"terminated": {"exitCode": 1, "finishedAt": "2026-11-16T09:00:00Z"}}}]},
    }],
})  # fmt: skip


def _kubernetes(text: str) -> None:
    """Read one object and its pods as every kind.

    A stranger in the namespace controls the texts, and all fields that the kind's definition leaves open.
    """
    try:
        document = parse_json(text)
    except ValueError as error:
        raise GpuyardError(str(error)) from None
    if not isinstance(document, dict):
        raise GpuyardError("not a mapping")
    manifest = check_object("Job", document.get("object", {}))
    pods, _ = check_objects("Pod", document.get("pods", []))
    for kind in KINDS.values():
        status = read_status(ObjectReference("c", "n", kind, "digits"), manifest, pods)
        assert status.handle.id == f"c/n/{kind.name}/digits"
        json.dumps(status.document())


def _annotation(text: str) -> None:
    """Read a job from an object's annotation."""
    read_job({"metadata": {"annotations": {JOB_ANNOTATION: text}}})


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
    """Return the functions of `units` whose only parameter is a quantity."""
    return {
        name: function
        for name, function in vars(units).items()
        if name.startswith("parse_")
        and list(inspect.signature(function).parameters) == ["quantity"]
    }


def _invoice(text: str) -> list[float]:
    return [_parse_number(part) for part in _split_list(text)]


_ARGUMENTS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "cluster": (read_cluster, ("2x4xrtx-3090@10G", "dgx-a100", "8xdgx-h100@8xinfiniband-ndr")),
    "workload": (specfiles.read_workload, ("resnet50", "spoken-digits-conv")),
    "lab": (plan_from_text, ("8x1Gbit", "8x10Gbit,dilation=10,racks=2,uplink=1Gbit,latency=1 ms")),
    "links of nodes": (lambda text: _parse_node_links([text]), ("3=100Mbit",)),
    "hosts": (lambda text: Hosts(tuple(text.split(","))), ("node1,me@node2",)),
    "sizes": (parse_sizes, ("1KB..1MB", "1MB,10MB")),
    "counts": (parse_counts, ("1,2,4",)),
    "strategy": (parse_strategy, ("ddp",)),
    "compression": (lambda text: parse_exchange(text, 1, None, 1), ("fp16", "powersgd:2")),
    "price of renting": (parse_rent_price, ("$1.50/h", "$160308/year", "aws/p4d.24xlarge")),
    "invoice": (_invoice, ("0.67,1.28",)),
    "GPU by its driver": (find_catalog_gpu, ("NVIDIA A100-SXM4-80GB", "GK210GL [Tesla K80] (rev 1)")),
    "quantity": (
        lambda text: [_read_or_error(parse, text) for parse in _parsers().values()],
        ("46 MB", "10 Gbit/s", "30 us", "20 kW", "$8,000", "$15000/year", "$1.50/h", "$0.12/kWh",
         "$184/kW/month", "30%"),
    ),
}  # fmt: skip


def _read_or_error(parse: Callable[[str], object], text: str) -> object:
    try:
        return parse(text)
    except GpuyardError as error:
        return error


_LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32,
    "num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256,
}  # fmt: skip
_RUNS = (
    "source,model,params_b,layers,hidden,heads,kv_heads,ffn,vocab,seq,gpu,gpus,gpus_per_node,interconnect,tp,pp,"
    "dp_or_fsdp,zero_stage,micro_batch,global_batch,precision,recompute,metric,value,notes\n"
    "me,llama3-8b,8.03,32,4096,32,8,14336,128256,8192,h100-sxm-80gb,16,8,NVLink4; 8x50 GB/s a node,1,1,fsdp16,3,1,16,"
    "BF16,full,tokens/s/gpu,6000,quality=A; experts=8;topk=2\n"
)


def _config(path: str) -> object:
    return describe_model(read_hugging_face_config(Path(path)))


def _runs(path: str) -> object:
    return judge_table(Path(path), Path(path), 1)


READERS = (
    *(
        Reader(f"{kind}.yaml", read, _read_files(f"examples/*.{kind}.yaml"))
        for kind, read in SPECS.items()
    ),
    Reader(
        "topology",
        _topology,
        _read_files("tests/hardware/recorded/*/*.txt", "tests/hardware/recorded/*/*.xml"),
    ),
    Reader("tool output", _tool_output, _read_files("tests/data/tool_output/*.txt")),
    Reader("prices.csv", _prices, (_PRICES,)),
    Reader("demand.csv", lambda path: demand_from_csv(read_text(Path(path)), path), _DEMAND),
    Reader("sacct", lambda path: demand_from_sacct(read_text(Path(path)), path), (_SACCT,)),
    Reader("usage.json", lambda path: demand_from_usage(read_usage(read_text(Path(path)), path), path), (_USAGE,)),
    Reader("trace.csv", lambda path: read_trace(Path(path), "gpuyard"), _read_files("examples/traces/team.csv")),
    Reader("philly.csv", lambda path: read_trace(Path(path), "philly"), (_PHILLY,)),
    Reader("sacct of jobs", lambda path: read_trace(Path(path), "sacct"), (_SACCT_JOBS,)),
    Reader("pollux.csv", _pollux, (_POLLUX,)),
    Reader("placements.csv", _placements, (_PLACEMENTS,)),
    Reader("validation.csv", _validation, (_EPOCHS,)),
    Reader("calibration.json", load_calibration, (json.dumps(_CALIBRATION),)),
    Reader("config.json", _config, (json.dumps(_LLAMA),)),
    Reader("runs.csv", _runs, (_RUNS,)),
    Reader("results", lambda path: read_results([Path(path)]), _read_files("tests/data/store/*.jsonl")),
    Reader("result.json", lambda path: read_results([Path(path)]), _results()),
    Reader("steps", lambda path: read_log(Path(path)), (_STEPS,)),
    Reader("steps of ranks", lambda path: read_rank_log(Path(path)), (_STEPS,)),
    Reader("samples of GPUs", lambda path: read_samples(Path(path)), (_GPU_SAMPLE,)),
    Reader("request.json", _request, _REQUESTS, reads_file=False),
    Reader("share.json", _share, (_SHARED,)),
    Reader("hosts.json", _hosts, (_HOSTS,)),
    Reader("lambda.json", _lambda, _LAMBDA),
    Reader("lock.toml", lambda path: read_lock(Path(path)), _LOCKS),
    Reader("facts of a machine", _facts, _FACTS, reads_file=False),
    Reader("manifest.xml", _rspec, _read_files("tests/deploy/targets/virtual_wall_manifest.xml")),
    Reader("lab.json", _lab_state, (_lab(),), reads_file=False),
    Reader("slurm", _slurm, (_SQUEUE, _SINFO, _CONFIG), reads_file=False),
    Reader("squeue.json", _slurm_share, (_GPU_JOBS,), reads_file=False),
    Reader("kubernetes.json", _kubernetes, (_OBJECT,), reads_file=False),
    Reader("annotation.json", _annotation, (json.loads(_OBJECT)["object"]["metadata"]["annotations"][JOB_ANNOTATION],),
           reads_file=False),
    *(
        Reader(name, read, examples, reads_file=False) for name, (read, examples) in _ARGUMENTS.items()
    ),
)  # fmt: skip

OWN = "data that ships with gpuyard"
HOST = "output of this host's kernel"
RANKS = "messages between gpuyard's own processes"
KEPT = "gpuyard's files for this user, which others cannot write"
OWNER = "files that only the owner of a share can write, and the kernel"
READ_BY: dict[str, str] = {
    "catalog/price_update.py": "prices.csv",
    "catalog/prices.py": "prices.csv",
    "catalog/published.py": OWN,
    "catalog/specfiles.py": "workload.yaml",
    "catalog/tables.py": OWN,
    "api/hybrid.py": "demand.csv",
    "api/inputs.py": "calibration.json",
    "api/plan.py": "usage.json",
    "api/starter_files.py": OWN,
    "cli/deploy/stack.py": "lock.toml",
    "deploy/access/ssh_config.py": "the user's own ~/.ssh/config, searched for one line",
    "deploy/ansible/modules/apt_key_file.py": "a repository's key; tests/deploy/test_apt_keys.py has wrong ones",
    "deploy/ansible/modules/nvidia_gpus.py": HOST,
    "deploy/ansible/roles/slurm/files/gpus.py": HOST,
    "deploy/clouds/jfed.py": "manifest.xml",
    "deploy/clouds/lambda_cloud.py": "lambda.json",
    "deploy/clouds/rate_limit.py": KEPT,
    "deploy/expiry.py": KEPT,
    "deploy/stack/collect.py": "facts of a machine",
    "deploy/stack/facts.py": "facts of a machine",
    "deploy/stack/install.py": KEPT,
    "deploy/stack/lock.py": "lock.toml",
    "deploy/loss.py": "output of the machines of the user's own deployment",
    "deploy/state.py": "hosts.json",
    "deploy/clouds/gpulab.py": "output of the user's own gpulab-cli; tests/deploy/targets/test_gpulab.py has junk",
    "deploy/targets/base.py": OWN,
    "deploy/clouds/gpulab_definition.py": "a job definition; tests/deploy/targets/test_gpulab.py has junk",
    "deploy/access/host_keys.py": KEPT,
    "deploy/run/through_slurm.py": "output of gpuyard on a machine of the deployment",
    "deploy/terraform/run.py": KEPT,
    "deploy/terraform/state_file.py": KEPT,
    "deploy/verify/": "output of the head of the user's own deployment",
    "economics/demand.py": "demand.csv",
    "economics/usage.py": "usage.json",
    "files.py": "demand.csv",
    "hardware/clusters.py": "cluster.yaml",
    "cpu.py": HOST,
    "hardware/discover.py": HOST,
    "hardware/readers/topology_file.py": "topology",
    "hardware/readers/xml_text.py": "topology",
    "measure/acceptance/": "messages between gpuyard's own processes, its own state, and the kernel",
    "measure/tool_output/detect.py": "tool output",
    "jobs/engines/kubernetes/": "kubernetes.json",
    "jobs/engines/local/": KEPT,
    "jobs/engines/slurm/": "slurm",
    "jobs/gpu_samples.py": "samples of GPUs",
    "jobs/simulate/traces/__init__.py": "trace.csv",
    "jobs/simulate/traces/history.py": "sacct of jobs",
    "jobs/simulate/traces/csv_rows.py": "trace.csv",
    "lab/machine_init.py": RANKS,
    "lab/machine_root.py": HOST,
    "lab/machines.py": KEPT,
    "lab/operation.py": RANKS,
    "lab/network.py": HOST,
    "lab/state.py": "lab.json",
    "measure/collectives/mpi_worker.py": RANKS,
    "measure/convergence/checkpoint.py": "test_checkpoints.py",
    "measure/links/facts.py": HOST,
    "measure/reading.py": "results",
    "measure/store.py": "results",
    "predictor/speed_evidence.py": OWN,
    "predictor/software_stacks/posterior.py": OWN,
    "planner/explain/alternatives.py": OWN,
    "planner/rulebook.py": OWN,
    "predictor/calibration/document.py": "calibration.json",
    "predictor/constants.py": OWN,
    "predictor/large/constants.py": OWN,
    "predictor/large/rows.py": "runs.csv",
    "report/html.py": OWN,
    "report/kept.py": KEPT,
    "run/probe.py": RANKS,
    "run/rank_process.py": RANKS,
    "run/ranks.py": RANKS,
    "run/store.py": RANKS,
    "run/torchrun_agent.py": RANKS,
    "share/": OWNER,
    "share/service.py": "request.json",
    "share/config.py": "share.json",
    "slurm/": "slurm",
    "specs/loading.py": "cluster.yaml",
    "loopback_port.py": HOST,
    "reporting/network_cards.py": HOST,
    "reporting/ranks.py": "steps of ranks",
    "reporting/sensors.py": HOST,
    "reporting/windows.py": "steps",
    "web/app.py": OWN,
    "web/tokens.py": KEPT,
    "web/views/jobs.py": "output of gpuyard itself",
    "web_client.py": "lambda.json",
    "workloads/digit_clips.py": "test_downloads.py",
    "workloads/code_trust.py": "the user's own code, to hash it",
    "workloads/hugging_face.py": "config.json",
    "workloads/profile_process.py": RANKS,
    "workloads/profiles.py": RANKS,
}
"""Map each module or folder that reads text or bytes to the reader here that tests it, or to why none does."""
