"""Places as values: the positions of ranks, the commands that start processes, and errors.

Stand-ins for ssh, srun, and scontrol are on the PATH; other tests use the real programs.
"""

import os
import shlex
import socket
from pathlib import Path

import pytest

from gpuyard.cpu import usable_cores
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.lab import plan_lab
from gpuyard.run.horovod_rendezvous import create_layout
from gpuyard.run.places import (
    Hosts,
    LabNodes,
    LocalMachine,
    SlurmAllocation,
    find_allocation,
    reach_hosts,
)
from gpuyard.run.places.place import RendezvousPoint
from gpuyard.run.process import start
from tests.run.sum_ranks import sum_ranks

# Like sshd, it passes the last argument to the user's shell.
BANNER = '{"motd": "Welcome to {node}"}\n{ not even JSON'
SSH = f"""#!/bin/sh
for line; do :; done
echo '{BANNER}'
exec sh -c "$line"
"""
SRUN = '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do shift; done\nexec "$@"\n'
# The output is that of Slurm 22.05, shortened.
SCONTROL = """#!/bin/sh
case "$*" in
"--oneliner --details show job 7")
    echo "JobId=7 JobName=interactive UserId=root(0) JobState=$JOB_STATE Reason=None $ALLOCATED" ;;
"--oneliner --details show job "*) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
"show hostnames node[1-2]") printf 'node1\\nnode2\\n' ;;
"show hostnames node"[12]) echo "$3" ;;
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


def test_ssh_never_prompts_and_quotes_the_command(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", "/a b/$(reboot)")
    hosts = Hosts(("ada@node1", "node2"), port=29500)
    assert hosts.rendezvous_point == RendezvousPoint("node1", 29500)
    command = hosts.command(1, ["python", "-m", "x y"], {"RANK": "1"})
    assert command.node == "node2"
    assert command.argv[:5] == ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
    assert command.argv[5:7] == ("--", "node2")
    words = shlex.split(command.argv[7])
    assert words[0] == "env"
    assert "RANK=1" in words
    assert "GPUYARD_HOME=/a b/$(reboot)" in words
    assert words[-3:] == ["python", "-m", "x y"]


def test_a_login_banner_is_not_an_answer(programs: Path) -> None:
    hosts = reach_hosts(("localhost", "localhost"), ranks_per_node=1)
    assert sum_ranks(hosts, 2, "torchrun").total == 0b11


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=reboot", "a b", "", "a;b", "-v@node1", "-@node1", "@node1", "node1\n"]
)
def test_a_host_cannot_be_an_option(programs: Path, name: str) -> None:
    with pytest.raises(UserMistake, match="valid host"):
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


def test_the_allocation_of_this_shell_is_found(allocated: pytest.MonkeyPatch) -> None:
    place = find_allocation()
    assert place.names == ("node1", "node2")
    assert place.ranks_by_node == (1, 1)
    assert place.rendezvous_point.address == "10.99.0.1"
    allocated.setenv("NODE_STATE", "hidden")
    assert find_allocation().rendezvous_point.address == "node1"


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        ("SLURM_JOB_ID", None, r"salloc .* --hosts"),
        ("SLURM_JOB_ID", "8", r"job 8, .*Slurm.*salloc"),
        ("JOB_STATE", "TIMEOUT", r"job 7, .*TIMEOUT.*salloc"),
        ("NODE_STATE", "DOWN*", r"node2 .*DOWN\*.*--exclude=node2"),
        ("SLURM_STEP_NUM_TASKS", "2", r"2 times.*without srun"),
        ("PATH", "/nowhere", r"scontrol .*PATH.*install"),
    ],
)
def test_an_unusable_allocation_is_an_error(
    allocated: pytest.MonkeyPatch, variable: str, value: str | None, message: str
) -> None:
    if value is None:
        allocated.delenv(variable)
    else:
        allocated.setenv(variable, value)
    with pytest.raises(GpuyardError, match=message):
        find_allocation()


@pytest.mark.parametrize(
    ("details", "gpus"),
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
def test_the_gpus_on_each_node_come_from_scontrol(
    allocated: pytest.MonkeyPatch, details: str, gpus: tuple[int, ...]
) -> None:
    allocated.setenv("ALLOCATED", details)
    place = find_allocation()
    assert place.allocated_gpus == gpus
    assert place.ranks_by_node == tuple(max(1, count) for count in gpus)
    assert find_allocation(ranks_per_node=5).ranks_by_node == (5, 5)
    for node, count in enumerate(gpus):
        argv = place.command(node, ["python"]).argv
        assert {"--nodes=1", "--ntasks=1", f"--nodelist=node{node + 1}"} < set(argv)
        assert (f"--gpus={count}" in argv) == (count > 0)
        assert argv[-1] == "python"


def test_ranks_fill_one_node_after_the_other(programs: Path) -> None:
    place = Hosts(("a", "b", "c"), slots=(2, 4, 2))
    positions = place.rank_positions(7)
    assert [position.node for position in positions] == [0, 0, 1, 1, 1, 1, 2]
    assert [position.local_rank for position in positions] == [0, 1, 0, 1, 2, 3, 0]
    assert [position.local_world_size for position in positions] == [2, 2, 4, 4, 4, 4, 1]
    assert {position.world_size for position in positions} == {7}
    assert place.record(2).nodes == ("a",)
    assert place.record(3).nodes == ("a", "b")
    with pytest.raises(UserMistake, match=r"9 workers .*3 nodes .*--ranks-per-node"):
        place.rank_positions(9)


def test_ranks_per_node_are_part_of_the_identity(programs: Path) -> None:
    single, two = Hosts(("a", "b")), Hosts(("a", "b"), slots=(2, 2))
    # Stored measurements have this identity.
    assert single.identity() == {"kind": "hosts", "hosts": ["a", "b"]}
    assert two.identity() == {"kind": "hosts", "hosts": ["a", "b"], "ranks_by_node": [2, 2]}


def test_a_node_needs_a_gpu_for_each_of_its_ranks(programs: Path) -> None:
    gpus = (("A100",) * 4, ("A100",) * 2)
    enough = Hosts(("a", "b"), slots=(4, 2), gpus=gpus)
    assert enough.missing_gpus(6) is None
    assert enough.record(6).gpus == ("A100",) * 4
    missing = Hosts(("a", "b"), slots=(4, 4), gpus=gpus).missing_gpus(8)
    assert missing is not None
    assert "4 GPUs" in missing and "b has 2" in missing


def test_ranks_of_a_lab_share_the_cores_of_their_node() -> None:
    plan = plan_lab(2, "1 Gbit/s")
    alone, shared = LabNodes(plan), LabNodes(plan, ranks_per_node=2)
    cores = shared.cores_by_worker(4, computing=False)
    for rank in range(4):
        assert set(cores[rank]) <= set(alone.cores_by_worker(2, computing=False)[rank // 2])
    assert shared.record(4).ranks_per_node == 2
    assert shared.ring_link_bytes_per_second(2) is None  # Both ranks are on one node.
    assert shared.ring_link_bytes_per_second(3) == 125e6


def test_too_few_slots_are_an_error() -> None:
    lab = LabNodes(plan_lab(2, "1 Gbit/s"))
    with pytest.raises(UserMistake, match=r"3 workers .*2 nodes"):
        lab.cores_by_worker(3, computing=False)


def test_nodes_that_share_a_core_need_dilation_or_a_synthetic_gpu() -> None:
    many = 3 * len(usable_cores())
    lab = LabNodes(plan_lab(many, "1 Gbit/s"))
    with pytest.raises(UserMistake, match=r"--dilation .*3 or more"):
        lab.cores_by_worker(1, computing=True)
    assert lab.cores_by_worker(1, computing=False)
    assert LabNodes(plan_lab(many, "1 Gbit/s", dilation=3)).cores_by_worker(1, computing=True)


def test_horovod_works_only_where_this_process_can_listen(programs: Path) -> None:
    for place in (Hosts(("a",)), SlurmAllocation(("a",))):
        assert place.listen_address() is None
        assert place.why_no_horovod is not None
        with pytest.raises(UserMistake, match="horovod"):
            create_layout(place, 1)
    assert LocalMachine().why_no_horovod is None
    assert create_layout(LocalMachine(), 2).address == "127.0.0.1"


def test_any_command_can_be_started_at_a_place() -> None:
    command = LocalMachine().command(
        0, ["sh", "-c", 'echo "$GREETING"; exit 3'], {"GREETING": "hello"}
    )
    assert command.describe() == {
        "node": socket.gethostname(),
        "argv": ["sh", "-c", 'echo "$GREETING"; exit 3'],
        "environment": {"GREETING": "hello"},
    }
    process = start(command)
    output, _ = process.communicate(timeout=60)
    assert (output, process.returncode) == (b"hello\n", 3)
