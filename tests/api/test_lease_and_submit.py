"""`gy.lease` and `gy.submit` with real processes and test GPUs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import gpuyard as gy
from gpuyard.errors import UserMistake
from gpuyard.share.models import NoneFree
from gpuyard.share.setup import set_up
from tests.conftest import Cli


@pytest.fixture
def share(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A personal share with 4 test GPUs."""
    directory = tmp_path / "share"
    monkeypatch.setenv("GPUYARD_SHARE_DIR", str(directory))
    monkeypatch.setenv("GPUYARD_ENGINE", "local")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    set_up(directory, fake_gpus=4, grace_seconds=0.5)
    return directory


def leases(cli: Cli) -> set[str]:
    """Return the ids of all leases that hold a GPU."""
    gpus = json.loads(cli("who", "--json").stdout)["gpus"]
    return {lease["id"] for gpu in gpus for lease in gpu["leases"]}


def test_the_block_holds_gpus_and_gives_them_back(cli: Cli, share: Path) -> None:
    with gy.lease(2, hours=4) as held:
        assert os.environ["CUDA_VISIBLE_DEVICES"] == ",".join(map(str, held.gpus))
        assert os.environ["GPUYARD_LEASE"] == held.id
        assert len(leases(cli)) == 1
        with pytest.raises(NoneFree), gy.lease(3, wait=False):
            pass
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
    assert leases(cli) == set()
    with pytest.raises(ZeroDivisionError), gy.lease(gpu_ids=[3]) as held:
        assert held.gpus == (3,)
        1 / 0  # noqa: B018
    assert leases(cli) == set()


@pytest.mark.parametrize(
    ("gpus", "hours", "named"), [(1, 0, "0 seconds"), (1.5, 1, "1.5"), ("2", 1, "'2'")]
)
def test_mistakes_are_refused(cli: Cli, share: Path, gpus: Any, hours: float, named: str) -> None:
    with pytest.raises(UserMistake, match=named), gy.lease(gpus, hours=hours):
        pass
    assert leases(cli) == set()


def test_a_killed_process_gives_them_back(cli: Cli, share: Path) -> None:
    code = "import gpuyard as gy, time\nwith gy.lease(4) as held:\n print(held.id, flush=True)\n time.sleep(600)"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        held = leases(cli)
        process.kill()
    assert len(held) == 1
    assert leases(cli) == set()
    with gy.lease(4, wait=False) as free:
        assert len(free.gpus) == 4


def test_a_job_is_followed_to_its_end(cli: Cli, share: Path) -> None:
    job = gy.submit([sys.executable, "-c", "print('trained')"], gpus=1)
    assert job.wait("60 s").state == "succeeded"
    assert job.logs() == "trained\n"
    number = str(job).rpartition("/")[2]
    assert cli("logs", number).stdout == "trained\n"
    assert json.loads(cli("status", number, "--json").stdout)["handle"] == str(job)
    assert "already succeeded" in cli("cancel", number).stderr
    assert "no job has the number 999" in cli("logs", "999", status=2).stderr
    assert json.loads(cli("status", "--json").stdout) == json.loads(cli("queue", "--json").stdout)
