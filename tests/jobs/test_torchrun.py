"""Options that are added to a torchrun command, and commands that stay unchanged."""

import pytest

from gpuyard.jobs.torchrun import complete_torchrun_command


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("torchrun train.py -x", "torchrun --nproc-per-node=4 --standalone train.py -x"),
        (
            "/venv/bin/torchrun train.py",
            "/venv/bin/torchrun --nproc-per-node=4 --standalone train.py",
        ),
        (
            "python3 -m torch.distributed.run train.py",
            "python3 -m torch.distributed.run --nproc-per-node=4 --standalone train.py",
        ),
        (
            "torchrun --nproc_per_node 2 train.py",
            "torchrun --standalone --nproc_per_node 2 train.py",
        ),
        (
            "torchrun --standalone --nproc-per-node=gpu t.py",
            "torchrun --standalone --nproc-per-node=gpu t.py",
        ),
        (
            "torchrun --max-restarts 3 train.py --standalone",
            "torchrun --nproc-per-node=4 --standalone --max-restarts 3 train.py --standalone",
        ),
        ("python train.py", "python train.py"),
        ("python -m train torch.distributed.run", "python -m train torch.distributed.run"),
    ],
)
def test_on_one_node(command: str, expected: str) -> None:
    assert complete_torchrun_command(command.split(), gpus_per_node=4) == tuple(expected.split())


def test_several_nodes_use_the_first_as_rendezvous() -> None:
    completed = complete_torchrun_command(
        ("torchrun", "train.py"),
        gpus_per_node=8,
        addresses=("n1", "n2"),
        node=1,
        port=29500,
        run_id="17",
    )
    assert completed == (
        "torchrun",
        "--nnodes=2",
        "--nproc-per-node=8",
        "--rdzv-backend=c10d",
        "--rdzv-endpoint=n1:29500",
        "--rdzv-id=17",
        "--rdzv-conf=is_host=false",
        "--local-addr=n2",
        "train.py",
    )
