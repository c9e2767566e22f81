"""Training on two hosts over a real ssh, with two ranks on each."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.specs import Workload
from tests.conftest import Cli
from tests.ssh_hosts import HOSTS, ssh_hosts

Build = Callable[..., Workload]


def test_two_ranks_on_each_of_two_hosts_train_together(
    cli: Cli, tiny: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = tmp_path / "tiny.workload.yaml"
    spec.write_text(tiny().model_dump_json(exclude_none=True), encoding="utf-8")
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    where = (
        f"--hosts={','.join(HOSTS)}",
        "--ranks-per-node=2",
        "--workers=4",
        "--batch=8",
        "--allow-code",
    )
    with ssh_hosts(tmp_path, hidden) as programs:
        monkeypatch.setenv("PATH", str(programs), prepend=":")
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        planned = cli("bench", "train", str(spec), *where, "--dry-run", "--json")
        done = cli("bench", "train", str(spec), *where, "--time-per-point=0.2", "--json")
    assert [(seat["node"], seat["local_rank"]) for seat in json.loads(planned.stdout)["ranks"]] == [
        (host, local) for host in HOSTS for local in range(2)
    ]
    (m,) = json.loads(done.stdout)
    assert m["place"] == {
        "kind": "hosts",
        "nodes": list(HOSTS),
        "ranks_per_node": 2,
        "gpus": [],
        "link_bytes_per_second": None,
        "dilation": 1.0,
    }
    assert m["provenance"]["launcher"] == "torchrun"
    # each rank had different samples, so they are equal only if all gradients were exchanged
    assert len(m["parameter_checksums"]) == 4
    assert len(set(m["parameter_checksums"])) == 1
