"""Test that `deploy plan` accepts the output of `plan --deploy`."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.catalog.specfiles import read_deployment
from gpuyard.deploy.from_plan import to_deployment_name
from gpuyard.specs.cluster import Cluster
from gpuyard.specs.targets.clouds import AwsTarget
from tests.conftest import Cli
from tests.deploy.targets.lambda_server import KEY, serving

PLAN = """
name: "Train: ResNet-50 # fast"
workload:
  name: ResNet-50 on ImageNet
  model: resnet50
  epochs: 90
  dataset: {samples: 1281167, bytes_per_sample: 115 kB}
runs_per_month: 4
"""
RENTED = "search: {offers: [lambda/gpu_1x_a10], ways: [on-demand], nodes: [2]}\n"
OWNED = """
owned:
  - {name: ours, gpu: rtx-3090, gpus: 2, count: 3, network: {rate: 25 Gbit/s}, value: $900}
search: {ways: [keep], nodes: [3]}
"""


@pytest.fixture
def lambda_cloud(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    pytest.importorskip("tf")
    with serving() as (_, address):
        monkeypatch.setenv("GPUYARD_LAMBDA_URL", address)
        monkeypatch.setenv("GPUYARD_LAMBDA_WAIT_SCALE", "0.005")
        monkeypatch.setenv("LAMBDA_API_KEY", KEY)
        yield


def write_deployment(cli: Cli, tmp_path: Path, text: str) -> tuple[Path, str]:
    plan = tmp_path / "x.plan.yaml"
    plan.write_text(text)
    render_files = cli("plan", str(plan), "--deploy").stdout
    file = tmp_path / "x.deployment.yaml"
    file.write_text(render_files)
    return file, render_files


@pytest.mark.usefixtures("lambda_cloud")
def test_instances_of_lambda_cloud_become_a_deployment_there(cli: Cli, tmp_path: Path) -> None:
    file, render_files = write_deployment(cli, tmp_path, PLAN + RENTED)
    planned = json.loads(cli("deploy", "plan", str(file), "--json").stdout)
    assert planned["target"] == "lambda"
    assert planned["changes"]["added"] == 2
    assert planned["ttl_seconds"] == 8 * 3600
    assert render_files.count("# fill in") == 2
    read = read_deployment(file)
    assert getattr(read.target, "max_usd_per_hour", 0) == pytest.approx(
        2.84
    )  # 2 × $1.29 and a tenth
    assert read.name == "train-resnet-50-fast"
    assert "workers: [base, gpu-stack, " in render_files
    assert "gpu-stack" in read.head


def test_spot_instances_stay_spot_with_a_limit_near_their_price(cli: Cli, tmp_path: Path) -> None:
    spot = "search: {offers: [aws/g6.12xlarge], ways: [spot], nodes: [2]}\n"
    file, text = write_deployment(cli, tmp_path, PLAN + spot)
    target = read_deployment(file).target
    assert isinstance(target, AwsTarget)
    assert target.market == "spot"
    assert target.max_usd_per_hour == pytest.approx(2 * 2.2119 * 1.1, abs=0.01)
    assert "on demand" not in text
    assert "# fill in" not in text


def test_own_machines_become_a_deployment_whose_addresses_are_to_be_filled_in(
    cli: Cli, tmp_path: Path
) -> None:
    file, render_files = write_deployment(cli, tmp_path, PLAN + OWNED)
    assert "# fill in" in render_files
    planned = json.loads(cli("deploy", "plan", str(file), "--json", status=1).stdout)
    assert set(planned["unreachable"]) == {"node0", "node1", "node2"}
    assert [machine["name"] for machine in planned["machines"]] == ["node0", "node1", "node2"]
    cluster = read_deployment(file).cluster
    assert isinstance(cluster, Cluster)
    assert cluster.network is not None
    assert cluster.network.rate == 25e9 / 8


def test_a_plan_without_a_choice_and_two_outputs_at_once_are_refused(
    cli: Cli, tmp_path: Path
) -> None:
    plan = tmp_path / "x.plan.yaml"
    plan.write_text(PLAN + RENTED + "time_per_run: 1 s\n")
    assert "nothing to deploy" in cli("plan", str(plan), "--deploy", status=1).stderr
    assert "--json" in cli("plan", str(plan), "--deploy", "--json", status=2).stderr


def test_any_name_becomes_one_that_a_deployment_may_have() -> None:
    assert to_deployment_name("5,000 runs — of é!") == "5-000-runs-of"
    assert to_deployment_name("→") == "cluster"
    assert len(to_deployment_name("x" * 99)) == 32
