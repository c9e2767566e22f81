"""`--precision`: the same option everywhere, in each title and in the JSON."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Cli


@pytest.mark.parametrize(
    ("command", "title"),
    [
        (("predict", "gpt2", "--on", "dgx-a100"), "(bf16, ddp)"),
        (("predict", "gpt2", "--on", "rtx-3090", "--on", "a10"), "(bf16, ddp)"),
        (("topo", "compare", "dual-root", "--gpu", "rtx-3090"), "rtx-3090, bf16, batch"),
        (("facility", "storage", "resnet50", "--on", "dgx-h100"), "H100, bf16, 8 GPUs"),
        (("catalog", "gpus", "--model", "gpt2", "--gpu", "rtx-3090"), "gpt2, bf16, batch"),
    ],
)
def test_the_title_and_the_json_have_it(cli: Cli, command: tuple[str, ...], title: str) -> None:
    command = (*command, "--precision", "bf16")
    assert title in " ".join(cli(*command).stdout.splitlines()[:2])
    assert json.loads(cli(*command, "--json").stdout)["precision"] == "bf16"
    assert "no precision is called 'fp64'" in cli(*command, "--precision", "fp64", status=2).stderr


def test_it_changes_speed_and_memory_and_the_workloads_own_gives_way(
    cli: Cli, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.workload.yaml"
    mine.write_text("name: mine\nmodel: gpt2\nprecision: bf16\nbatch_per_gpu: 4\n")

    def predicted(*more: str) -> tuple[str, float, float]:
        document = json.loads(cli("predict", str(mine), "--on", "a10", *more, "--json").stdout)
        (p,) = document["predictions"]
        return document["precision"], p["samples_per_second"], p["memory_bytes"]

    own, fp32 = predicted(), predicted("--precision", "fp32")
    assert (own[0], fp32[0]) == ("bf16", "fp32")
    assert own[1] > 2 * fp32[1]
    assert own[2] < fp32[2]


def test_each_gpu_shows_its_own_precision(cli: Cli) -> None:
    command = ("predict", "resnet50", "--on", "rtx-3090", "--on", "v100-sxm2-16gb")
    shown = cli(*command).stdout
    assert "(fp32 or tf32, ddp)" in shown
    assert "│ tf32" in shown and "│ fp32" in shown
    document = json.loads(cli(*command, "--json").stdout)
    assert document["precision"] is None
    assert [cluster["precision"] for cluster in document["clusters"]] == ["tf32", "fp32"]


def test_the_timeline_shows_the_precision_in_its_title(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    cli("predict", "resnet50", "--on", "dgx-a100", "--gpus", "8", "--why", "--svg", str(picture))
    root = ElementTree.fromstring(picture.read_text())  # noqa: S314 - our own file
    texts = " ".join(element.text or "" for element in root.iter())
    assert "(tf32, ddp)" in texts


def test_a_plan_searches_those_that_are_named(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "p.plan.yaml"
    path.write_text(
        "name: p\nworkload: {name: w, model: gpt2, batch_per_gpu: 8, dataset: {samples: 1000000}}\n"
        "runs_per_month: 4\nsearch: {gpus: [a10, t4], nodes: [1], ways: [on-demand]}\n"
    )
    document = json.loads(cli("plan", str(path), "--precision", "fp32,bf16", "--json").stdout)
    assert sorted(document["precisions"]) == ["bf16", "fp32"]
    assert document["winner"]["precision"] == "bf16"
    shown = cli("plan", str(path), "--why").stdout
    assert "trained in fp32." in shown and "Mixed precision was not tried" in shown
    assert (
        "no precision is called 'x'" in cli("plan", str(path), "--precision", "x", status=2).stderr
    )
