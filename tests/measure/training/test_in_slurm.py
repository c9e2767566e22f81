"""Training in allocations of a real Slurm, all of whose nodes are on this machine."""

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from gpuyard.specs import Workload
from tests.slurm_cluster import SlurmCluster, slurm_cluster

Build = Callable[..., Workload]
Bench = Callable[..., CompletedProcess[str]]
# lists the job steps that remain once Slurm has had time to end them
THEN_STEPS = """\
"$@"; status=$?
for _ in $(seq 50); do steps=$(squeue --steps --noheader --format=%i); [ -n "$steps" ] || break; sleep 0.1; done
echo "steps left: $steps"
exit $status
"""


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmCluster]:
    with slurm_cluster(2) as cluster:
        yield cluster


@pytest.fixture
def bench(slurm: SlurmCluster, tiny: Build, tmp_path: Path) -> Bench:
    """Return a function that runs `bench train` on a tiny model in an allocation of two nodes."""

    def run(
        factory: str, *options: str, salloc: tuple[str, ...] = (), script: str = '"$@"'
    ) -> CompletedProcess[str]:
        spec = tmp_path / "tiny.workload.yaml"
        spec.write_text(tiny(factory).model_dump_json(exclude_none=True), encoding="utf-8")
        command = [
            sys.executable,
            "-m",
            "gpuyard",
            "bench",
            "train",
            str(spec),
            "--slurm",
            "--allow-code",
        ]
        allocate = ["salloc", "--quiet", "--nodes=2", *salloc, "sh", "-c", script, "sh"]
        return slurm.run(
            *allocate,
            *command,
            *options,
            environment={"PYTHONPATH": ":".join(path for path in sys.path if path)},
        )

    return run


@pytest.mark.soak  # that all ranks of two nodes exchange is in run/test_in_slurm.py
def test_two_nodes_with_two_ranks_each_train_together(bench: Bench) -> None:
    # --gpus counts for the whole job, and each agent is a step on one node
    options = ("--workers=4", "--ranks-per-node=2", "--batch=8", "--time-per-point=0.2", "--json")
    done = bench("classifier", *options, salloc=("--gpus=4",))
    assert done.returncode == 0, done.stderr
    (m,) = json.loads(done.stdout)
    assert m["place"]["kind"] == "slurm"
    assert m["place"]["nodes"] == ["node1", "node2"]
    assert m["place"]["ranks_per_node"] == 2
    assert m["provenance"]["launcher"] == "torchrun"
    assert m["provenance"]["backend"] == "gloo"
    # each rank had different samples, so they are equal only if all gradients were exchanged
    assert len(m["parameter_checksums"]) == 4
    assert len(set(m["parameter_checksums"])) == 1


def test_a_crashed_rank_ends_all_job_steps(bench: Bench) -> None:
    options = ("--workers=2", "--batch=8", "--launcher=direct")
    done = bench("FirstHangsSecondCrashes", *options, script=THEN_STEPS)
    assert done.returncode == 1, done.stderr
    assert "rank 1 of 2 exited with status 1" in done.stderr
    assert "ValueError: the second rank has had enough" in done.stderr
    assert done.stdout.splitlines()[-1] == "steps left: "


def test_an_ended_allocation_is_an_error(slurm: SlurmCluster, bench: Bench) -> None:
    allocation = slurm.run("salloc", "--quiet", "--nodes=2", "printenv", "SLURM_JOB_ID")
    ended = f"SLURM_JOB_ID={allocation.stdout.strip()}"
    done = bench("classifier", "--dry-run", script=f'exec env {ended} "$@"')
    assert done.returncode == 1, done.stderr
    assert "(COMPLETED); start another one with: salloc" in done.stderr
    done = bench("classifier", "--dry-run", script='exec srun "$@"')
    assert "srun started this command 2 times" in done.stderr
