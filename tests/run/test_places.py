"""Places as values: who sits where, which command starts a process there, and what is refused.

Stand-ins for ssh, srun and scontrol are on the PATH; the real ones have tests of their own.
"""

import os
import shlex
import socket
from pathlib import Path

import pytest

from gpuyard.cpu import usable_cores
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.lab import plan_lab
from gpuyard.run.horovod_rendezvous import seating_of
from gpuyard.run.places import Here, Hosts, LabNodes, SlurmAllocation, allocation, reach_hosts
from gpuyard.run.places.place import Meeting
from gpuyard.run.process import start
from tests.run.sum_ranks import summed

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
"--oneliner --details show job 7")
    echo "JobId=7 JobName=interactive UserId=root(0) JobState=$JOB_STATE Reason=None $ALLOCATED" ;;
"--oneliner --details show job "*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
"--oneliner show hostnames node[1-2]") printf 'node1\\nnode2\\n' ;;
"--oneliner show hostnames node"[12]) echo "$4" ;;
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


def test_ssh_never_asks_and_quotes_what_it_sends(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", "/a b/$(reboot)")
    hosts = Hosts(("ada@node1", "node2"), port=29500)
    assert hosts.meeting == Meeting("node1", 29500)
    command = hosts.command(1, ["python", "-m", "x y"], {"RANK": "1"})
    assert command.node == "node2"
    assert command.argv[:5] == ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    assert command.argv[5:7] == ("--", "node2")
    words = shlex.split(command.argv[7])
    assert words[0] == "env"
    assert "RANK=1" in words
    assert "GPUYARD_HOME=/a b/$(reboot)" in words
    assert words[-3:] == ["python", "-m", "x y"]


def test_what_a_host_says_at_the_door_is_not_an_answer(programs: Path) -> None:
    hosts = reach_hosts(("localhost", "localhost"), ranks_per_node=1)
    assert summed(hosts, 2, "torchrun").total == 0b11


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=reboot", "a b", "", "a;b", "-v@node1", "-@node1", "@node1", "node1\n"]
)
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
    assert found.ranks_by_node == (1, 1)
    assert found.meeting.address == "10.99.0.1"
    allocated.setenv("NODE_STATE", "hidden")
    assert allocation().meeting.address == "node1"


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("SLURM_JOB_ID", None, "not inside a Slurm allocation"),
        ("SLURM_JOB_ID", "8", r"job 8, has ended \(Slurm does not know it any more\)"),
        ("JOB_STATE", "TIMEOUT", r"job 7, has ended \(TIMEOUT\)"),
        (
            "NODE_STATE",
            "DOWN*",
            r"node2 of the Slurm allocation is not available \(Slurm says DOWN\*\)",
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


@pytest.mark.parametrize(
    ("said", "gpus"),
    [
        ("Nodes=node[1-2] CPU_IDs=0 Mem=100 GRES=gpu:t4:4(IDX:0-3) MinCPUsNode=1", (4, 4)),
        (
            "Nodes=node1 CPU_IDs=0 Mem=1 GRES=gpu:2(IDX:0-1) Nodes=node2 CPU_IDs=0 Mem=1 GRES=",
            (2, 0),
        ),
        (
            "Nodes=node[1-2] CPU_IDs=0-3 Mem=1 GRES=gpu:a100:2(IDX:0-1),gpu:t4:1(IDX:2),nic:1",
            (3, 3),
        ),
    ],
)
def test_what_a_job_has_on_each_node_is_what_scontrol_says(
    allocated: pytest.MonkeyPatch, said: str, gpus: tuple[int, ...]
) -> None:
    allocated.setenv("ALLOCATED", said)
    found = allocation()
    assert found.allocated_gpus == gpus
    assert found.ranks_by_node == tuple(max(1, count) for count in gpus)
    assert allocation(ranks_per_node=5).ranks_by_node == (5, 5)
    for node, count in enumerate(gpus):
        argv = found.command(node, ["python"]).argv
        assert {"--nodes=1", "--ntasks=1", f"--nodelist=node{node + 1}"} < set(argv)
        assert (f"--gpus={count}" in argv) == (count > 0)
        assert argv[-1] == "python"


def test_ranks_fill_one_node_after_the_other(programs: Path) -> None:
    place = Hosts(("a", "b", "c"), room=(2, 4, 2))
    seats = place.seats(7)
    assert [seat.node for seat in seats] == [0, 0, 1, 1, 1, 1, 2]
    assert [seat.local_rank for seat in seats] == [0, 1, 0, 1, 2, 3, 0]
    assert [seat.local_world_size for seat in seats] == [2, 2, 4, 4, 4, 4, 1]
    assert {seat.world_size for seat in seats} == {7}
    assert place.record(2).nodes == ("a",)
    assert place.record(3).nodes == ("a", "b")
    with pytest.raises(UserMistake, match="9 workers don't fit: 3 nodes with up to 4 each"):
        place.seats(9)


def test_ranks_a_node_are_part_of_what_is_measured(programs: Path) -> None:
    one, two = Hosts(("a", "b")), Hosts(("a", "b"), room=(2, 2))
    # as it always was, so that what a store has is found
    assert one.identity() == {"kind": "hosts", "hosts": ["a", "b"]}
    assert two.identity() == {"kind": "hosts", "hosts": ["a", "b"], "ranks_by_node": [2, 2]}


def test_a_node_needs_a_gpu_for_each_of_its_ranks(programs: Path) -> None:
    gpus = (("A100",) * 4, ("A100",) * 2)
    enough = Hosts(("a", "b"), room=(4, 2), gpus=gpus)
    assert enough.missing_gpus(6) is None
    assert enough.record(6).gpus == ("A100",) * 4
    missing = Hosts(("a", "b"), room=(4, 4), gpus=gpus).missing_gpus(8)
    assert missing == "4 workers need 4 GPUs, b has 2"


def test_ranks_of_a_lab_share_the_cores_of_their_node() -> None:
    plan = plan_lab(2, "1 Gbit/s")
    alone, shared = LabNodes(plan), LabNodes(plan, ranks_per_node=2)
    cores = shared.cores_by_worker(4, computing=False)
    for rank in range(4):
        assert set(cores[rank]) <= set(alone.cores_by_worker(2, computing=False)[rank // 2])
    assert shared.record(4).ranks_per_node == 2
    assert shared.ring_link_bytes_per_second(2) is None  # both on one node
    assert shared.ring_link_bytes_per_second(3) == 125e6


def test_too_few_seats_are_a_sentence() -> None:
    lab = LabNodes(plan_lab(2, "1 Gbit/s"))
    with pytest.raises(UserMistake, match="3 workers don't fit: 2 nodes with up to 1 each"):
        lab.cores_by_worker(3, computing=False)


def test_nodes_that_share_a_core_need_dilation_or_a_synthetic_gpu() -> None:
    many = 3 * len(usable_cores())
    lab = LabNodes(plan_lab(many, "1 Gbit/s"))
    with pytest.raises(UserMistake, match="dilate time by 3 or more"):
        lab.cores_by_worker(1, computing=True)
    assert lab.cores_by_worker(1, computing=False)
    assert LabNodes(plan_lab(many, "1 Gbit/s", dilation=3)).cores_by_worker(1, computing=True)


def test_horovod_is_started_where_this_process_can_listen(programs: Path) -> None:
    for place in (Hosts(("a",)), SlurmAllocation(("a",))):
        assert place.listening() is None
        assert place.why_no_horovod is not None
        with pytest.raises(UserMistake, match="horovod is measured on this machine and in labs"):
            seating_of(place, 1)
    assert Here().why_no_horovod is None
    assert seating_of(Here(), 2).address == "127.0.0.1"


def test_any_command_can_be_started_in_a_place() -> None:
    command = Here().command(0, ["sh", "-c", 'echo "$GREETING"; exit 3'], {"GREETING": "hello"})
    assert command.describe() == {
        "node": socket.gethostname(),
        "argv": ["sh", "-c", 'echo "$GREETING"; exit 3'],
        "environment": {"GREETING": "hello"},
    }
    process = start(command)
    said, _ = process.communicate(timeout=60)
    assert (said, process.returncode) == (b"hello\n", 3)
