"""`gpuyard predict` on clusters that no file describes, as they are wired, and several at once."""

import contextlib
import fcntl
import json
import os
import struct
import subprocess
import sys
import termios
from typing import Any

import pytest

from tests.conftest import ROOT, Cli

MATRIX = ROOT / "tests" / "hardware" / "recorded" / "topo-m" / "rtx4090-8gpu-sys-2nic-no-legend.txt"


def predicted(cli: Cli, *arguments: str) -> Any:
    return json.loads(cli("predict", *arguments, "--json").stdout)


def rates(document: Any) -> dict[int, float]:
    return {p["gpus"]: p["samples_per_second"] for p in document["predictions"]}


def test_one_gpu_is_a_cluster(cli: Cli) -> None:
    document = predicted(cli, "resnet50", "--on", "rtx-3090")
    assert list(rates(document)) == [1]
    assert "clusters" not in document


def test_without_numbers_of_gpus_they_double_up_to_all(cli: Cli) -> None:
    assert list(rates(predicted(cli, "resnet50", "--on", "3x4xrtx-3090@10G"))) == [1, 2, 4, 8, 12]
    each = predicted(cli, "resnet50", "--on", "4x8xrtx-3090@10G", "--gpus-per-node", "2")
    assert list(rates(each)) == [2, 4, 8]
    shared = predicted(cli, "resnet50", "--on", "8xrtx-3090", "--other-jobs", "1")
    assert list(rates(shared)) == [1, 2, 4]
    alone = predicted(cli, "vgg16", "--on", "2x4xrtx-3090@10G", "--strategy", "dataparallel")
    assert list(rates(alone)) == [1, 2, 4]


def test_a_cluster_in_a_few_characters_is_predicted_like_its_file(cli: Cli) -> None:
    file = predicted(cli, "vgg16", "--on", "examples/ethernet.cluster.yaml", "--gpus", "1,8")
    short = predicted(cli, "vgg16", "--on", "8x1xgtx-1080-ti@10G", "--gpus", "1,8")
    assert rates(short)[1] == pytest.approx(rates(file)[1])
    assert rates(short)[8] == pytest.approx(rates(file)[8], rel=0.02)  # only the latency differs


def test_machines_are_predicted_as_they_are_wired(cli: Cli) -> None:
    usual = rates(predicted(cli, "vgg16", "--on", "8xrtx-4090"))
    wired = rates(predicted(cli, "vgg16", "--on", "8xrtx-4090", "--topo", str(MATRIX)))
    # every pair of that machine crosses sockets, which costs copies through host memory nothing
    assert wired[4] >= usual[4]
    assert wired[8] >= usual[8]
    direct = rates(predicted(cli, "vgg16", "--on", "8xgtx-1080-ti", "--topo", str(MATRIX)))
    assert direct[4] < rates(predicted(cli, "vgg16", "--on", "8xgtx-1080-ti"))[4]
    done = cli("predict", "vgg16", "--on", "8xrtx-4090", "--topo", str(MATRIX), "--why")
    assert "2 NUMA nodes" in done.stdout


def test_several_clusters_are_shown_side_by_side(cli: Cli) -> None:
    command = ("resnet50", "--on", "2x4xrtx-3090@10G", "--on", "dgx-a100", "--on", "rtx-4090")
    document = predicted(cli, *command, "--batch", "32,64")
    assert document["workload"] == "resnet50"
    first, second, third = document["clusters"]
    assert first == predicted(cli, "resnet50", "--on", "2x4xrtx-3090@10G", "--batch", "32,64")
    assert list(rates(second)) == [1, 2, 4, 8]
    assert list(rates(third)) == [1]
    shown = cli("predict", *command, "--batch", "32,64").stdout
    assert "samples/s at a batch of 32 per GPU (tf32, ddp)" in shown
    (row,) = [line for line in shown.partition("of 64")[0].splitlines() if "│ NVIDIA DGX" in line]
    for rate in [p["samples_per_second"] for p in second["predictions"][::2]]:
        assert f"{rate:,.1f}" in row


def test_one_gpu_keeps_its_speed_beside_larger_clusters_at_80_columns(cli: Cli) -> None:
    command = ("resnet50", "--on", "rtx-3090", "--on", "2x4xrtx-3090@10G", "--on", "dgx-h100")
    (rate,) = rates(predicted(cli, *command)["clusters"][0]).values()
    (row,) = [
        line for line in on_80_columns("predict", *command) if "│ 1 × GeForce RTX 3090" in line
    ]
    assert f"{rate:,.1f}" in row


def on_80_columns(*arguments: str) -> list[str]:
    """Return the lines that a terminal of 80 columns shows."""
    screen, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 80, 0, 0))
    environment = {k: v for k, v in os.environ.items() if k != "COLUMNS"} | {"TERM": "dumb"}
    line = [sys.executable, "-m", "gpuyard", *arguments]
    with subprocess.Popen(line, stdout=terminal, env=environment):
        os.close(terminal)
        shown = b""
        with contextlib.suppress(OSError):  # raised once the terminal has no writer
            while part := os.read(screen, 65536):
                shown += part
    os.close(screen)
    return shown.decode().splitlines()


def test_a_cluster_omits_gpu_counts_that_it_lacks(cli: Cli) -> None:
    command = ("resnet50", "--on", "4xrtx-3090", "--on", "dgx-a100", "--gpus", "4,8")
    few, many = predicted(cli, *command)["clusters"]
    assert (list(rates(few)), list(rates(many))) == ([4], [4, 8])
    none = cli(
        "predict", "resnet50", "--on", "rtx-3090", "--on", "dgx-a100", "--gpus", "8", status=2
    )
    assert "8 GPUs at 1 per node need 8 nodes" in none.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "e.g. --on 8xh100"),
        (("--on", "t4", "--on", "l4", "--topo", "x"), "pass only one --on"),
        (("--on", "t4", "--topo", "none.txt"), "none.txt: "),
        (("--on", "t4", "--on", "l4", "--why", "--svg", "x.svg"), "pass only one --on"),
    ],
)
def test_mistakes_name_the_option_and_the_fix(
    cli: Cli, options: tuple[str, ...], message: str
) -> None:
    assert message in " ".join(cli("predict", "resnet50", *options, status=2).stderr.split())


def test_a_study_accepts_short_cluster_names_too(cli: Cli, tmp_path: Any) -> None:
    study = tmp_path / "s.study.yaml"
    study.write_text(
        "name: s\nworkloads: [resnet50]\nmeasure: null\n"
        "clusters: [{cluster: 2x4xrtx-3090@10G, gpus: [4, 8]}]\n"
    )
    done = cli("study", str(study), "--output-dir", str(tmp_path / "out"), "--json")
    assert "2 × 4 × GeForce RTX 3090, 10 Gbit/s" in done.stdout
    study.write_text(study.read_text().replace("rtx-3090", "rtx-309"))
    wrong = cli("study", str(study), "--output-dir", str(tmp_path / "out"), status=2)
    assert ":4: clusters[0].cluster: " in wrong.stderr
    assert "'rtx-309'; did you mean" in wrong.stderr


def test_a_gpu_without_software_support_is_marked(cli: Cli) -> None:
    shown = cli("predict", "resnet50", "--on", "gtx-1080-ti").stdout
    assert "CUDA 13.0 (August 2025) dropped them" in shown
    assert predicted(cli, "resnet50", "--on", "gtx-1080-ti")["end_of_life"]["cuda_last"] == "12.9"
    assert predicted(cli, "resnet50", "--on", "rtx-3090")["end_of_life"] is None


def test_a_warning_about_several_clusters_is_shown_once(cli: Cli) -> None:
    command = ("resnet50", "--on", "gtx-1080-ti", "--on", "2x4xp40@10G", "--on", "rtx-4090")
    done = cli("predict", *command)
    assert done.stdout.count("Pascal GPUs") == 1
    largest = predicted(cli, *command)["clusters"][1]["predictions"][-1]
    assert f"{largest['low']:,.0f} – {largest['high']:,.0f}" in done.stdout


def test_three_numbers_are_one_too_many(cli: Cli) -> None:
    done = cli("predict", "resnet50", "--on", "4x4x4xrtx-3090@10G", status=2)
    assert "more than two numbers" in " ".join(done.stderr.split())
