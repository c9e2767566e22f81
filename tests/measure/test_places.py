"""Ranks started through other commands: a stand-in for ssh and srun, which are not on every machine,
passes them on to this one; ranks, rendezvous and exchange are real."""

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.lab import plan_lab
from gpuyard.measure import ResultsStore, plan_sweep, run_sweep
from gpuyard.run.places import Hosts, LabNodes, SlurmAllocation, allocation
from gpuyard.specs import Workload

Build = Callable[..., Workload]
# as sshd does: the last argument is a line for the user's shell
BANNER = '{"motd": "Welcome to {node}"}\n{ not even JSON'
SSH = f"""#!/bin/sh
for line; do :; done
echo '{BANNER}'
exec sh -c "$line"
"""
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
# as Slurm 22.05 does, shortened
SCONTROL = """#!/bin/sh
case "$*" in
"--oneliner show job 7") echo "JobId=7 JobName=interactive UserId=root(0) JobState=$JOB_STATE Reason=None" ;;
"--oneliner show job "*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
"--oneliner show hostnames node[1-2]") printf 'node1\\nnode2\\n' ;;
"--oneliner show node node[1-2]")
    [ "$NODE_STATE" != hidden ] || exit 1
    echo 'NodeName=node1 Arch=x86_64 NodeAddr=10.99.0.1 NodeHostName=localhost State=MIXED ThreadsPerCore=1'
    echo "NodeName=node2 Arch=x86_64 NodeAddr=10.99.0.2 NodeHostName=localhost State=$NODE_STATE ThreadsPerCore=1" ;;
*) exit 9 ;;
esac
"""


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, text in (("ssh", SSH), ("srun", SRUN), ("scontrol", SCONTROL)):
        (directory / name).write_text(text)
        (directory / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    return directory


@pytest.mark.parametrize(("kind", "launcher"), [(Hosts, "torchrun"), (SlurmAllocation, "direct")])
def test_ranks_meet_through_the_first_host(
    programs: Path,
    store: ResultsStore,
    tiny: Build,
    kind: type[Hosts] | type[SlurmAllocation],
    launcher: str,
) -> None:
    place = kind(("localhost", "localhost"))
    assert plan_sweep(tiny(), [2], [8], place=place).launcher == "torchrun"
    sweep = plan_sweep(tiny(), [2], [8], seconds_per_point=0.2, place=place, launcher=launcher)
    (m,) = run_sweep(sweep, store)
    assert m.place.nodes == ("localhost", "localhost")
    assert m.place.kind in ("hosts", "slurm")
    assert m.provenance.backend == "gloo"
    assert m.provenance.launcher == launcher
    assert len(set(m.parameter_checksums)) == 1
    assert sweep.points[0].key != plan_sweep(tiny(), [2], [8], seconds_per_point=0.2).points[0].key


def test_ssh_never_asks_and_quotes_what_it_sends(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", "/a b/$(reboot)")
    command = Hosts(("ada@node1", "node2"), port=29500).command(1, ["python", "-m", "x y"], 2)
    assert command[:5] == ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10"]
    assert command[5] == "node2"
    words = shlex.split(command[6])
    assert words[0] == "env"
    assert "MASTER_ADDR=node1" in words
    assert "RANK=1" in words
    assert "WORLD_SIZE=2" in words
    assert "GPUYARD_HOME=/a b/$(reboot)" in words
    assert words[-3:] == ["python", "-m", "x y"]


@pytest.mark.parametrize("name", ["-oProxyCommand=reboot", "a b", "", "a;b"])
def test_a_host_is_never_taken_for_an_option(programs: Path, name: str) -> None:
    with pytest.raises(UserMistake, match="is not a host"):
        Hosts((name,))


@pytest.fixture
def allocated(programs: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    environment = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "node[1-2]",
        "JOB_STATE": "RUNNING",
        "NODE_STATE": "MIXED",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("SLURM_STEP_NUM_TASKS", raising=False)
    return monkeypatch


def test_the_allocation_is_that_of_this_shell(allocated: pytest.MonkeyPatch) -> None:
    found = allocation()
    assert found.names == ("node1", "node2")
    assert found.meeting().address == "10.99.0.1"
    allocated.setenv("NODE_STATE", "hidden")
    assert allocation().meeting().address == "node1"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SLURM_JOB_ID", None, "not inside a Slurm allocation"),
        ("SLURM_JOB_ID", "8", r"job 8, has ended \(Slurm does not know it any more\)"),
        ("JOB_STATE", "TIMEOUT", r"job 7, has ended \(TIMEOUT\)"),
        (
            "NODE_STATE",
            "DOWN*",
            r"node2 of the Slurm allocation is not there \(Slurm says DOWN\*\)",
        ),
        ("SLURM_STEP_NUM_TASKS", "2", "srun has started this command 2 times"),
        ("PATH", "/nowhere", "scontrol is not on the PATH here"),
    ],
)
def test_what_is_wrong_with_an_allocation_is_told(
    allocated: pytest.MonkeyPatch, variable: str, value: str | None, sentence: str
) -> None:
    if value is None:
        allocated.delenv(variable)
    else:
        allocated.setenv(variable, value)
    with pytest.raises(GpuyardError, match=sentence):
        allocation()


def test_a_step_asks_for_one_gpu_where_the_job_counts_them_in_all(
    allocated: pytest.MonkeyPatch,
) -> None:
    allocated.delenv("SLURM_GPUS", raising=False)
    place = SlurmAllocation(("node1", "node2"))
    assert "--gpus=1" not in place.command(1, ["python"], 2)
    allocated.setenv("SLURM_GPUS", "4")
    command = place.command(1, ["python"], 2)
    assert {"--gpus=1", "--nodelist=node2", "--export=ALL"} < set(command)
    assert command[-1] == "python"


def test_too_few_seats_are_a_sentence(programs: Path, tiny: Build) -> None:
    with pytest.raises(UserMistake, match="3 workers need 3 hosts, 2 are named"):
        plan_sweep(tiny(), [3], [8], place=Hosts(("a", "b")))
    lab = LabNodes(plan_lab(2, "1 Gbit/s"))
    with pytest.raises(UserMistake, match="3 workers need 3 nodes, the lab has 2"):
        plan_sweep(tiny(), [3], [8], place=lab)


def test_nodes_that_share_a_core_need_dilation_or_a_synthetic_gpu(tiny: Build) -> None:
    from gpuyard.hardware.cpu import usable_cores

    many = 3 * len(usable_cores())
    with pytest.raises(UserMistake, match="dilate time by 3 or more"):
        plan_sweep(tiny(), [1], [8], place=LabNodes(plan_lab(many, "1 Gbit/s")))
    plan_sweep(tiny(), [1], [8], place=LabNodes(plan_lab(many, "1 Gbit/s", dilation=3)))
    plan_sweep(tiny(), [1], [8], place=LabNodes(plan_lab(many, "1 Gbit/s")), gpu="t4")


def test_horovod_is_not_started_over_hosts(
    programs: Path, tiny: Build, monkeypatch: pytest.MonkeyPatch
) -> None:
    from gpuyard.measure.training import sweep

    monkeypatch.setattr(sweep, "check_strategy", lambda *_a, **_k: None)
    with pytest.raises(UserMistake, match="horovod is measured on this machine and in labs"):
        plan_sweep(tiny(), [1], [8], place=Hosts(("a",)), strategy="horovod")
