"""Several machines: a Slurm cluster's nodes and a deployment's, each with the age of its data."""

import asyncio
import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuyard.api import cluster_state
from gpuyard.api.cluster_state import parse_nvidia_smi, read_slurm_nodes
from gpuyard.errors import GpuyardError
from gpuyard.slurm.gpu_jobs import GpuJob
from gpuyard.slurm.nodes import GpuNode
from gpuyard.web.auth import Identity
from gpuyard.web.sampling import Sampler
from gpuyard.web.views.now import describe_samples, render_live, take_samples
from tests.deploy.conftest import Up, up
from tests.jobs.engines.slurm.conftest import create_yard
from tests.slurm_cluster import SlurmCluster, slurm_cluster
from tests.web.conftest import Serve, Site

__all__ = ["up"]
ME = Identity(0, "root", is_admin=True)
RECORDED = """0, NVIDIA A100-SXM4-80GB, 81920, 61234, 97, 61, 388.12, GPU-aaaa
1, NVIDIA A100-SXM4-80GB, 81920, 4, 0, 30, 61.02, GPU-bbbb
2, NVIDIA A100-SXM4-80GB, 81920, [N/A], [N/A], 30, [Not Supported], GPU-cccc
--
GPU-aaaa alice
GPU-aaaa alice
GPU-aaaa bob
"""


def test_nvidia_smi_over_ssh() -> None:
    gpus = parse_nvidia_smi(RECORDED)["gpus"]
    assert [gpu["utilization"] for gpu in gpus] == [0.97, 0.0, None]
    assert gpus[0]["memory_used_bytes"] == 61234 * 2**20
    assert [lease["user"] for lease in gpus[0]["leases"]] == ["alice", "bob"]
    assert gpus[1]["leases"] == []
    assert gpus[2]["power_watts"] is None
    missing = parse_nvidia_smi("sh: 1: nvidia-smi: not found\n--\n")
    assert missing["gpus"] == []
    assert "nvidia-smi: not found" in missing["conflict"]


NVIDIA_SMI = """#!/bin/sh
# the second machine has a broken driver
case "$SSH_CONNECTION" in *" 127.0.0.2 "*) echo "Failed to initialize NVML: Driver/library version mismatch"; exit 18 ;; esac
case "$*" in
*--query-gpu*) echo "0, Tesla T4, 15360, 1234, 77, 55, 61.02, GPU-aaaa"; echo "1, Tesla T4, 15360, 0, 0, 30, 9.5, GPU-bbbb" ;;
*) echo "GPU-aaaa, 1" ;;
esac
"""


def test_a_deployment_is_read_through_a_real_sshd(serve: Serve, up: Up, tmp_path: Path) -> None:
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "nvidia-smi").write_text(NVIDIA_SMI)
    (tmp_path / "programs" / "nvidia-smi").chmod(0o755)
    site = serve("--deployment", up.file)

    def read() -> dict[str, Any]:
        return {source["name"]: source for source in site.get("/now.json").json()["sources"]}

    deadline = time.monotonic() + 90
    while "localhost" not in read():
        assert time.monotonic() < deadline, read()
        time.sleep(0.5)
    machines = read()
    assert set(machines) == {"localhost", "two"}
    first, second = machines["localhost"]["share"], machines["two"]["share"]
    assert [gpu["utilization"] for gpu in first["gpus"]] == [0.77, 0.0]
    assert [lease["user"] for lease in first["gpus"][0]["leases"]] == ["root"], "the owner of PID 1"
    assert first["gpus"][1]["leases"] == []
    assert "version mismatch" in second["conflict"]
    page = site.get("/").text
    assert "two: no GPU found" in page
    assert "/act/release" not in page, "its processes are not leases of this machine"
    assert 'id="form-lease"' not in page
    assert machines["localhost"]["age_seconds"] < 90


def test_slurm_nodes_have_the_gpus_of_their_jobs(monkeypatch: object) -> None:
    """Slurm's own answers, as its client returns them for two nodes and a job on both."""
    jobs = [
        GpuJob(job_id=7, user_name="alice", name="train", nodes="node[1-2]", job_state="RUNNING",
               gres_detail=("gpu:h100:2(IDX:0-1)", "gpu:h100:1(IDX:3)"), start_time=int(time.time()) - 60),
        GpuJob(job_id=8, user_name="bob", name="next", job_state="PENDING", tres_per_node="gres:gpu:4",
               state_reason="Resources", submit_time=int(time.time()) - 5),
    ]  # fmt: skip
    nodes = [
        GpuNode("node1", "a", "MIXED", "", 4, "h100"),
        GpuNode("node2", "b", "IDLE+DRAIN", "broken", 4, "h100"),
    ]
    patch = monkeypatch.setattr  # type: ignore[attr-defined]
    patch("gpuyard.slurm.gpu_jobs.list_gpu_jobs", lambda: jobs)
    patch("gpuyard.slurm.nodes.list_gpu_nodes", lambda: nodes)
    patch("gpuyard.slurm.nodes.expand_hostnames", lambda _: ("node1", "node2"))
    machines = read_slurm_nodes()
    held = {
        name: [gpu["index"] for gpu in share["gpus"] if gpu["leases"]]
        for name, share in machines.items()
    }
    assert held == {"node1": [0, 1], "node2": [3]}
    assert all(gpu["drained"] for gpu in machines["node2"]["gpus"])
    (waiting,) = machines["node1"]["queue"]
    assert (waiting["user"], waiting["count"], waiting["reason"]) == ("bob", 4, "Resources")


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(2) as cluster:
        yield cluster


def test_a_real_slurm_cluster_is_read_through_its_client(slurm: SlurmCluster) -> None:
    started = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--gres=gpu:1", "--wrap", "sleep 300"
    )
    assert started.returncode == 0, started.stderr
    job = started.stdout.strip()
    program = (
        "import json; from gpuyard.api.cluster_state import read_slurm_nodes; "
        "print(json.dumps(read_slurm_nodes()))"
    )

    def read() -> dict[str, Any]:
        done = slurm.run(sys.executable, "-c", program)
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    deadline = time.monotonic() + 60
    while not (held := _held_by(read(), job)):
        assert time.monotonic() < deadline
        time.sleep(0.5)
    assert len(held) == 1
    waiting = slurm.run(
        "sbatch", "--parsable", "--output=/dev/null", "--hold", "--gres=gpu:2", "--wrap", "true"
    )
    queued = [row for share in read().values() for row in share["queue"]]
    assert [(row["id"], row["count"]) for row in queued] == [(waiting.stdout.strip(), 2)]
    slurm.run("scancel", job, waiting.stdout.strip())


def test_a_page_on_a_head_node_shows_slurms_nodes_and_queue(
    serve: Serve, slurm: SlurmCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with create_yard(slurm, tmp_path, monkeypatch) as yard:
        running = yard.submit("sleep", "600", gpus=3)
        yard.until(running, "running")
        waiting = yard.submit("sleep", "600", gpus=4, name="next")
        also_waiting = yard.submit("sleep", "600", gpus=4, name="last")
        try:
            site = serve("--slurm")
            deadline = time.monotonic() + 90
            while not (found := _read_share(site)) or not found["node1"]["queue"]:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            assert set(found) == {"node1", "node2"}
            assert (
                sum(bool(gpu["leases"]) for share in found.values() for gpu in share["gpus"]) >= 3
            )
            assert {row["count"] for row in found["node1"]["queue"]} == {4}
            page = site.get("/").text
            for part in ("node2", "Waiting", "data-age", "N/A"):
                assert part in page
            assert "/act/release" not in page, "a job of Slurm is no lease of this machine"
            names = {job["name"] for job in site.get("/jobs.json").json()["jobs"]}
            assert {"next", "last"} <= names
            assert site.act("cancel", job=str(also_waiting)).status == 200
            assert yard.wait(also_waiting).state == "cancelled"
        finally:
            for handle in (waiting, running):
                yard.engine.cancel(handle)


def _read_share(site: Site) -> dict[str, Any]:
    sources = site.get("/now.json").json()["sources"]
    return {source["name"]: source["share"] for source in sources if source["share"]}


def _held_by(machines: dict[str, Any], job: str) -> list[tuple[str, int]]:
    return [
        (name, gpu["index"])
        for name, share in machines.items()
        for gpu in share["gpus"]
        for lease in gpu["leases"]
        if lease["id"] == job
    ]


def test_each_machine_says_how_old_its_data_is() -> None:
    document = {
        "machines": {"far": parse_nvidia_smi(RECORDED)},
        "commands_visible": True,
        "usd_per_gpu_hour": None,
    }
    answers = iter([document])

    def read() -> object:
        try:
            return next(answers)
        except StopIteration:
            raise GpuyardError("far did not answer within 10 s") from None

    async def take() -> Any:
        source = Sampler("far.deployment.yaml", read, seconds=0.0)
        await source.current()
        await asyncio.sleep(0.05)
        return describe_samples(await take_samples([source]), ME)

    shown = asyncio.run(take())
    (machine,) = shown["sources"]
    assert machine["age_seconds"] >= 0.0
    assert "did not answer" in machine["error"]
    text = render_live({"sources": [{**machine, "age_seconds": 95.0}]}, ME)
    assert "far did not answer within 10 s" in text
    assert "old" in text
    assert "alice" in text, "the last data stays"


def test_nobody_waits_for_a_reading_while_the_last_one_is_recent() -> None:
    going_on = threading.Event()
    numbers = iter(range(10))

    def read() -> int:
        number = next(numbers)
        if number == 1:
            going_on.wait()
        return number

    async def take() -> tuple[list[int], int]:
        source = Sampler("here", read, seconds=0.2)
        first = await source.current()
        await asyncio.sleep(0.25)
        watching = asyncio.create_task(source.current(newest=True))
        await asyncio.sleep(0)
        second = await source.current()
        going_on.set()
        return [first.document, second.document], (await watching).document

    assert asyncio.run(take()) == ([0, 0], 1)


def test_the_query_names_its_fields_once() -> None:
    assert cluster_state.QUERY.count("nvidia-smi") == 2
