"""Requests without a Slurm: the script, its options, and the parsing of Slurm's output."""

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.jobs.engines.slurm.engine import SlurmEngine
from gpuyard.jobs.engines.slurm.records import list_array_tasks
from gpuyard.jobs.engines.slurm.request import SlurmRequest, create_request
from gpuyard.jobs.engines.slurm.script import batch, launch, program
from gpuyard.jobs.job import Job
from gpuyard.jobs.torchrun import complete_torchrun_command
from gpuyard.slurm.client import SlurmConfig
from gpuyard.slurm.jobs import parse_exit_status
from gpuyard.slurm.nodes import PartitionNodes
from gpuyard.specs.job import JobSpec
from tests.conftest import Cli

CONFIG = SlurmConfig("here", 17, 300.0, supports_gpus_per_node=True, has_topology=False)
NODES = PartitionNodes((4, 4, 4, 8))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


def request(config: SlurmConfig = CONFIG, **keys: Any) -> SlurmRequest:
    job = Job.create(JobSpec.model_validate({"command": ["true"], **keys}), now=time.time())
    return create_request(job, config, NODES, Path("/home/ann/jobs"), ())


def options(**keys: Any) -> dict[str, str | None]:
    return dict(request(**keys).options)


def job_in(script: str) -> dict[str, Any]:
    """Parse JOB in a script; the program after it is the same in every script."""
    before, _, after = script.partition(program())
    assert after, "the program is missing"
    (literal,) = (
        node.value
        for node in ast.parse(before, feature_version=(3, 6)).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "JOB"
    )
    return dict(ast.literal_eval(literal))


@given(
    st.lists(TEXT, min_size=1).filter(lambda argv: argv[0]),  # A program has a name.
    st.dictionaries(TEXT.filter(lambda n: n and "=" not in n), TEXT),
)
def test_any_text_is_data_in_the_script(argv: list[str], env: dict[str, str]) -> None:
    script = request(command=argv, env=env, name="x" + argv[0]).text()
    job = job_in(script)
    assert job["argv"] == argv
    assert env.items() <= job["environment"].items() or "GPUYARD_JOB" in env
    head = script[: script.index("\nJOB = ")]
    assert all(line.startswith("#") or not line for line in head.split("\n"))
    assert script.isascii() or not argv[0].isascii()


@pytest.mark.parametrize(
    ("keys", "nodes", "gpus"),
    [
        ({"gpus": 4}, "1", "4"),
        ({"gpus": 8}, "1", "8"),
        ({"gpus": 12}, "3", "4"),
        ({"gpus": "2..64"}, "1-4", "4"),
        ({"gpus": "4..7"}, "1", "7"),
        ({"gpus": 4, "nodes": 2}, "2", "2"),
        ({"gpus": 1, "slurm": {"gpu_type": "a100"}}, "1", "a100:1"),
    ],
)
def test_it_requests_the_most_gpus_on_the_fewest_nodes(
    keys: dict[str, Any], nodes: str, gpus: str
) -> None:
    requested = options(command=["torchrun", "train.py"], **keys)
    assert (requested["nodes"], requested["gpus-per-node"]) == (nodes, gpus)


def test_other_commands_than_torchrun_get_several_nodes_only_on_request() -> None:
    requested = options(command=["python", "train.py"], gpus="2..64")
    assert (requested["nodes"], requested["gpus-per-node"]) == ("1", "8")
    with pytest.raises(UserMistake, match=r"12 GPUs on 1 node: .* set `nodes`"):
        request(command=["python", "train.py"], gpus=12)
    assert options(command=["python", "train.py"], gpus=12, nodes=3)["nodes"] == "3"


@pytest.mark.parametrize("keys", [{"gpus": 24}, {"gpus": 10, "nodes": 2}])
def test_a_request_for_too_many_gpus_names_the_partition_size(keys: dict[str, Any]) -> None:
    with pytest.raises(UserMistake, match=r"4 nodes, with up to 8 GPUs each$"):
        request(command=["torchrun", "train.py"], **keys)


def test_each_setting_of_the_job_becomes_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "user-default")
    monkeypatch.setenv("SBATCH_QOS", "user-default")
    requested = options(
        gpus=8,
        nodes=2,
        priority=-5,
        checkpoint={"directory": "ck", "time": "90 s"},
        retries={"lost": 0},
        slurm={
            "partition": "gpu", "account": "vision", "array": "0-3%2", "constraint": "ib&a100",
            "exclude": "node[1-2]", "cpus_per_gpu": 8, "memory_per_gpu": "32 GiB", "exclusive": True,
            "contiguous": True, "switches": 2, "switches_wait": "1 h", "walltime": "1 d",
            "reservation": "course",
        },
    )  # fmt: skip
    del requested["comment"], requested["job-name"]
    assert requested == {
        "partition": "gpu", "account": "vision", "qos": "user-default", "reservation": "course",
        "constraint": "ib&a100", "exclude": "node[1-2]", "array": "0-3%2", "nodes": "2",
        "gpus-per-node": "4", "cpus-per-gpu": "8", "mem-per-gpu": "32768M", "exclusive": None,
        "switches": "2@0-01:00:00", "contiguous": None, "time": "1-00:00:00", "signal": "B:USR1@100",
        "nice": "5", "requeue": None, "export": "ALL", "chdir": "/", "output": "/dev/null",
    }  # fmt: skip


@pytest.mark.parametrize("name", ["partition", "account", "qos", "reservation"])
@pytest.mark.parametrize("value", ["gpu\n#SBATCH --uid=0", "gp\ru", "gp\x00u", "-p", "a\x1b[2J"])
def test_no_value_of_the_environment_or_the_file_adds_a_line_to_the_script(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "\0" not in value:  # The kernel allows none.
        with monkeypatch.context() as patch:
            patch.setenv(f"SBATCH_{name.upper()}", value)
            with pytest.raises(UserMistake, match=rf"SBATCH_{name.upper()} .*unset"):
                request()
    with pytest.raises((UserMistake, ValueError), match=name):
        request(slurm={name: value})


@pytest.mark.parametrize("name", ["constraint", "exclude", "gpu_type", "array"])
@pytest.mark.parametrize("value", ["a\n#SBATCH --hold", "-a"])
def test_each_text_of_the_file_is_one_value(name: str, value: str) -> None:
    with pytest.raises((UserMistake, ValueError), match=name.partition("_")[0]):
        request(slurm={name: value})


def test_older_plugins_get_gres_and_a_topology_gets_a_hint_for_switches() -> None:
    old = SlurmConfig("here", 17, 300.0, supports_gpus_per_node=False, has_topology=True)
    own = {"cpus_per_gpu": 4, "memory_per_gpu": "1 GiB"}
    requested = dict(request(old, gpus=8, nodes=2, slurm=own).options)
    assert (requested["gres"], requested["cpus-per-task"], requested["mem"]) == (
        "gpu:4",
        "16",
        "4096M",
    )
    assert requested["switches"] == "1@0-00:05:00"
    assert "switches" not in dict(request(old, gpus=8).options), "one node needs no switch"
    assert "switches" not in dict(request(old, gpus=8, nodes=2, slurm={"switches": 0}).options)


def test_a_dry_run_needs_no_slurm_and_a_submission_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    submit = ("submit", "--engine", "slurm", "--gpus", "16", "--nodes", "2")
    script = cli(*submit, "--dry-run", "--", "torchrun", "train.py").stdout
    assert "\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n" in script
    assert "\n# Slurm was not asked" in script
    assert job_in(script)["argv"] == ["torchrun", "train.py"]
    failure = cli(*submit, "--", "torchrun", "train.py", status=1)
    assert "sbatch" in failure.stderr and "PATH" in failure.stderr
    with pytest.raises(MissingRequirement, match=r"scontrol .* PATH; install"):
        engine = SlurmEngine()
        engine.submit(engine.plan(request().job))


def test_walltime_needs_a_checkpoint_that_fits() -> None:
    with pytest.raises(UserMistake, match=r"slurm\.walltime .* checkpoint"):
        request(slurm={"walltime": "1 h"})
    with pytest.raises(UserMistake, match=r"checkpoint\.time .* 60 s.* 65 s"):
        request(time_limit="65 s", checkpoint="ck")
    assert options(time_limit="1 h")["time"] == "0-01:00:00"
    assert "signal" not in options(time_limit="1 h")


def test_a_job_survives_a_round_trip_through_its_document() -> None:
    job = request(
        gpus=8,
        checkpoint={"directory": "ck", "time": "90 s"},
        slurm={"memory_per_gpu": "32 GiB", "switches_wait": "1 h", "walltime": "1 d"},
    ).job
    assert Job.from_document(json.loads(json.dumps(job.document()))) == job


def test_values_are_quoted_for_sbatch() -> None:
    text = request(name='a "b" \\ c\nd').text()
    assert '\n#SBATCH --job-name="a \\"b\\" \\\\ c?d"\n' in text


RENDEZVOUS = {"addresses": ["10.0.0.1", "10.0.0.2"], "port": 29500, "id": "x"}


@pytest.mark.parametrize(
    ("argv", "added"),
    [
        ("torchrun t.py --nnodes=9", "--nproc-per-node=4 --nnodes=2 MEET"),
        ("/venv/bin/torchrun --nproc_per_node 2 t.py", "--nnodes=2 MEET"),
        ("python -m torch.distributed.run -m pkg.train", "--nproc-per-node=4 --nnodes=2 MEET"),
        ("python3 -u -m torch.distributed.run t.py", "--nproc-per-node=4 --nnodes=2 MEET"),
        ("torchrun --nnodes=2 --rdzv-endpoint=h:1 t.py", "--nproc-per-node=4"),
        ("python train.py torchrun", ""),
    ],
)
def test_only_torchrun_gets_options_for_the_nodes(argv: str, added: str) -> None:
    meet = (
        "--rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:29500 --rdzv-id=x "
        "--rdzv-conf=is_host=false --local-addr=10.0.0.2"
    )
    words = argv.split()
    job = {"argv": words, "gpus_per_node": 4}
    command = launch.build_command(job, ["a", "b"], 1, RENDEZVOUS)
    assert [word for word in command if word not in words] == added.replace("MEET", meet).split()
    assert [word for word in command if word in words] == words


def test_on_one_node_torchrun_does_not_use_the_port_of_another_job() -> None:
    for argv in (["torchrun", "t.py"], ["torchrun", "--tee", "3", "t.py"]):
        job = {"argv": argv, "gpus_per_node": 4}
        command = launch.build_command(job, ["a"], 0, {"start": "1-0"})
        assert tuple(command) == complete_torchrun_command(argv, gpus_per_node=4)


@pytest.mark.parametrize(
    ("codes", "status"), [([1], 1), ([1, -9], 137), ([-9, 1], 137), ([-11, 1], 139), ([], 0)]
)
def test_a_killed_rank_is_found_in_the_output_of_torchrun(
    codes: list[int], status: int, tmp_path: Path
) -> None:
    """The format is that of torchrun 2.13 on two nodes; srun prefixes each line with the node's number."""
    output = "".join(
        f"{node}: Root Cause (first observed failure):\n{node}: [0]:\n"
        f"{node}:   rank      : {node} (local_rank: 0)\n{node}:   exitcode  : {code} (pid: 122)\n"
        for node, code in enumerate(codes)
    )
    (tmp_path / "log").write_text("exitcode  : 7\n" + output)
    assert batch.find_root_cause(bytes(tmp_path / "log")) == status


def test_array_tasks() -> None:
    assert list_array_tasks("0-9:4,3,4-5%2") == ("0", "4", "8", "3", "5")
    assert list_array_tasks(None) == (None,)
    with pytest.raises(UserMistake, match=r"10,000 tasks"):
        request(slurm={"array": "0-9999999"})


@pytest.mark.parametrize(
    ("text", "status"), [("768", 3), ("3:0", 3), ("0:9", 137), ("9", 137), ("0", 0), ("N/A", None)]
)
def test_an_exit_status_of_every_version_is_parsed(text: str, status: int | None) -> None:
    assert parse_exit_status(text) == status
