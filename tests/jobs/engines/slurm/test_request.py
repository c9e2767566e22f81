"""What is submitted, without a Slurm: the script and its options, and how Slurm's words are read."""

import ast
import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.jobs.engines.slurm import rows
from gpuyard.jobs.engines.slurm.commands import PartitionNodes, SlurmConfig
from gpuyard.jobs.engines.slurm.engine import SlurmEngine
from gpuyard.jobs.engines.slurm.request import SlurmRequest, make_request, tasks_of_array
from gpuyard.jobs.engines.slurm.script import batch, launch, program
from gpuyard.jobs.job import Job
from gpuyard.jobs.torchrun import torchrun_line
from gpuyard.specs.job import JobSpec
from tests.conftest import Cli

CONFIG = SlurmConfig("here", 17, 300.0, gpus_per_node=True, switches=False)
NODES = PartitionNodes((4, 4, 4, 8))
TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=200)


def request(config: SlurmConfig = CONFIG, **keys: Any) -> SlurmRequest:
    job = Job.of(JobSpec.model_validate({"command": ["true"], **keys}), now=time.time())
    return make_request(job, config, NODES, Path("/home/ann/jobs"), ())


def options(**keys: Any) -> dict[str, str | None]:
    return dict(request(**keys).options)


def job_in(script: str) -> dict[str, Any]:
    """What the script would run, read as Python reads it; the program after it is the same in every script."""
    before, _, after = script.partition(program())
    assert after, "the program is not there"
    (said,) = (
        node.value
        for node in ast.parse(before, feature_version=(3, 6)).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "JOB"
    )
    return dict(ast.literal_eval(said))


@given(
    st.lists(TEXT, min_size=1).filter(lambda argv: argv[0]),  # a program has a name
    st.dictionaries(TEXT.filter(lambda n: n and "=" not in n), TEXT),
)
def test_any_text_is_data_in_the_script(argv: list[str], env: dict[str, str]) -> None:
    script = request(command=argv, env=env, name="x" + argv[0]).text()
    said = job_in(script)
    assert said["argv"] == argv
    assert env.items() <= said["environment"].items() or "GPUYARD_JOB" in env
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
def test_the_most_gpus_that_there_are_on_the_fewest_nodes(
    keys: dict[str, Any], nodes: str, gpus: str
) -> None:
    said = options(command=["torchrun", "train.py"], **keys)
    assert (said["nodes"], said["gpus-per-node"]) == (nodes, gpus)


def test_what_is_not_torchrun_gets_several_nodes_only_if_it_says_so() -> None:
    said = options(command=["python", "train.py"], gpus="2..64")
    assert (said["nodes"], said["gpus-per-node"]) == ("1", "8")
    with pytest.raises(
        UserMistake, match=r"can't give 12 GPUs on one node: .* say how many: nodes"
    ):
        request(command=["python", "train.py"], gpus=12)
    assert options(command=["python", "train.py"], gpus=12, nodes=3)["nodes"] == "3"


@pytest.mark.parametrize("keys", [{"gpus": 24}, {"gpus": 10, "nodes": 2}])
def test_more_than_there_is_is_a_sentence(keys: dict[str, Any]) -> None:
    with pytest.raises(UserMistake, match=r"its partition has 4 nodes, with up to 8 GPUs each$"):
        request(command=["torchrun", "train.py"], **keys)


def test_each_option_says_what_the_job_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_ACCOUNT", "of-the-user")
    monkeypatch.setenv("SBATCH_QOS", "of-the-user")
    said = options(
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
    del said["comment"], said["job-name"]
    assert said == {
        "partition": "gpu", "account": "vision", "qos": "of-the-user", "reservation": "course",
        "constraint": "ib&a100", "exclude": "node[1-2]", "array": "0-3%2", "nodes": "2",
        "gpus-per-node": "4", "cpus-per-gpu": "8", "mem-per-gpu": "32768M", "exclusive": None,
        "switches": "2@0-01:00:00", "contiguous": None, "time": "1-00:00:00", "signal": "B:USR1@100",
        "nice": "5", "requeue": None, "export": "ALL", "chdir": "/", "output": "/dev/null",
    }  # fmt: skip


def test_older_plugins_are_asked_by_gres_and_switches_are_hinted_where_slurm_knows_them() -> None:
    old = SlurmConfig("here", 17, 300.0, gpus_per_node=False, switches=True)
    own = {"cpus_per_gpu": 4, "memory_per_gpu": "1 GiB"}
    said = dict(request(old, gpus=8, nodes=2, slurm=own).options)
    assert (said["gres"], said["cpus-per-task"], said["mem"]) == ("gpu:4", "16", "4096M")
    assert said["switches"] == "1@0-00:05:00"
    assert "switches" not in dict(request(old, gpus=8).options), "one node has no switch between"
    assert "switches" not in dict(request(old, gpus=8, nodes=2, slurm={"switches": 0}).options)


def test_a_dry_run_needs_no_slurm_and_handing_over_does(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cli: Cli
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    submit = ("submit", "--engine", "slurm", "--gpus", "16", "--nodes", "2")
    said = cli(*submit, "--dry-run", "--", "torchrun", "train.py").stdout
    assert "\n#SBATCH --nodes=2\n#SBATCH --gpus-per-node=8\n" in said
    assert "\n# Slurm was not asked" in said
    assert job_in(said)["argv"] == ["torchrun", "train.py"]
    refused = cli(*submit, "--", "torchrun", "train.py", status=1)
    assert "sbatch is not on the PATH" in refused.stderr
    with pytest.raises(MissingRequirement, match="scontrol is not on the PATH"):
        engine = SlurmEngine()
        engine.submit(engine.plan(request().job))


def test_time_that_ends_needs_a_checkpoint_that_fits() -> None:
    with pytest.raises(UserMistake, match="needs a checkpoint"):
        request(slurm={"walltime": "1 h"})
    with pytest.raises(UserMistake, match="may take 60 s, and the job's time is only 65 s"):
        request(time_limit="65 s", checkpoint="ck")
    assert options(time_limit="1 h")["time"] == "0-01:00:00"
    assert "signal" not in options(time_limit="1 h")


def test_what_is_kept_of_a_job_is_the_same_job() -> None:
    job = request(
        gpus=8,
        checkpoint={"directory": "ck", "time": "90 s"},
        slurm={"memory_per_gpu": "32 GiB", "switches_wait": "1 h", "walltime": "1 d"},
    ).job
    assert Job.from_document(json.loads(json.dumps(job.document()))) == job


def test_a_value_is_quoted_as_sbatch_reads_it() -> None:
    text = request(name='a "b" \\ c\nd').text()
    assert '\n#SBATCH --job-name="a \\"b\\" \\\\ c?d"\n' in text


MEETING = {"addresses": ["10.0.0.1", "10.0.0.2"], "port": 29500, "id": "x"}


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
def test_torchrun_is_told_of_the_nodes_and_nothing_else_is(argv: str, added: str) -> None:
    meet = (
        "--rdzv-backend=c10d --rdzv-endpoint=10.0.0.1:29500 --rdzv-id=x "
        "--rdzv-conf=is_host=false --local-addr=10.0.0.2"
    )
    words = argv.split()
    job = {"argv": words, "gpus_per_node": 4}
    said = launch.command(job, ["a", "b"], 1, MEETING)
    assert [word for word in said if word not in words] == added.replace("MEET", meet).split()
    assert [word for word in said if word in words] == words


def test_on_one_node_torchrun_takes_no_port_that_another_job_has() -> None:
    for argv in (["torchrun", "t.py"], ["torchrun", "--tee", "3", "t.py"]):
        said = launch.command({"argv": argv, "gpus_per_node": 4}, ["a"], 0, {"start": "1-0"})
        assert tuple(said) == torchrun_line(argv, gpus_per_node=4)


@pytest.mark.parametrize(
    ("codes", "status"), [([1], 1), ([1, -9], 137), ([-9, 1], 137), ([-11, 1], 139), ([], 0)]
)
def test_a_rank_that_was_killed_is_found_in_what_torchrun_prints(
    codes: list[int], status: int, tmp_path: Path
) -> None:
    """As torchrun 2.13 does, on each of two nodes; srun puts the node's number before each line."""
    said = "".join(
        f"{node}: Root Cause (first observed failure):\n{node}: [0]:\n"
        f"{node}:   rank      : {node} (local_rank: 0)\n{node}:   exitcode  : {code} (pid: 122)\n"
        for node, code in enumerate(codes)
    )
    (tmp_path / "log").write_text("exitcode  : 7\n" + said)
    assert batch.root_cause(bytes(tmp_path / "log")) == status


def test_tasks_of_an_array() -> None:
    assert tasks_of_array("0-9:4,3,4-5%2") == ("0", "4", "8", "3", "5")
    assert tasks_of_array(None) == (None,)
    with pytest.raises(UserMistake, match="at most 10,000 tasks"):
        request(slurm={"array": "0-9999999"})


@pytest.mark.parametrize(
    ("said", "status"), [("768", 3), ("3:0", 3), ("0:9", 137), ("9", 137), ("0", 0), ("N/A", None)]
)
def test_an_exit_status_is_read_as_every_version_writes_it(said: str, status: int | None) -> None:
    assert rows._exit_status(said) == status
