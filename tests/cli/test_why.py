"""`gpuyard predict --why`: its text, its drawing, and its JSON."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gpuyard.cli.predict import predict
from gpuyard.predictor.scenario import Scenario
from gpuyard.predictor.table import Configurations, StepTable
from tests.conftest import Cli

CHOKED = ("predict", "vgg16", "--on", "examples/ethernet.cluster.yaml", "--gpus", "1,8", "--why")


def test_the_text_names_what_a_step_waits_for(cli: Cli) -> None:
    text = " ".join(cli(*CHOKED).stdout.split())
    assert "553 MB of gradients in 6 buckets over 10 Gbit/s (tcp)" in text
    assert "choke is the links between the machines" in text
    assert "The knee is at " in text
    assert "remedy" in text


def test_the_timeline_fits_into_100_columns(cli: Cli) -> None:
    lines = cli(*CHOKED).stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("one step"))
    end = next(i for i, line in enumerate(lines) if line.startswith("█ busy"))
    chart = lines[start : end + 1]  # a wrapped note may follow
    assert [line.split("  ")[0] for line in chart[1:5]] == [
        "forward", "backward", "hides exchange", "bucket 1",
    ]  # fmt: skip
    assert any(line.startswith("exposed exchange") for line in chart)
    assert max(map(len, chart)) <= 100
    assert "█" in chart[1]


def test_a_hundred_buckets_share_a_few_rows(cli: Cli) -> None:
    done = cli(
        "predict", "gpt2-large", "--on", "examples/apollo.cluster.yaml", "--gpus", "32", "--why"
    )
    rows = [line for line in done.stdout.splitlines() if line.startswith("bucket")]
    assert 2 <= len(rows) <= 12
    assert rows[0].startswith("buckets 1–")


def test_json_has_the_whole_explanation(cli: Cli) -> None:
    document = json.loads(cli(*CHOKED, "--batch", "16,64", "--json").stdout)
    why = document["why"]
    assert (why["gpus"], why["batch_per_gpu"]) == (8, 16)
    (same,) = [p for p in document["predictions"] if (p["gpus"], p["batch_per_gpu"]) == (8, 16)]
    assert why["choke"] == same["choke"] == "network"
    assert why["timeline"]["step_seconds"] == pytest.approx(sum(same["step"].values()))
    bars = why["timeline"]["bars"]
    assert {bar["lane"] for bar in bars} == {"compute", "window", "exchange", "wait"}
    assert max(bar["end_seconds"] for bar in bars) == pytest.approx(sum(same["step"].values()))
    gains = [remedy["gain"] for remedy in why["remedies"]]
    assert gains == sorted(gains, reverse=True)
    for remedy in why["remedies"]:
        rate = remedy["gain"] * same["samples_per_second"]
        assert remedy["samples_per_second"] == pytest.approx(rate)
    assert why["knee"]["current"]["threshold"] == 0.5
    assert why["knee"]["with_remedy"]["gpus"] >= why["knee"]["current"]["gpus"]
    assert why["sentences"]


def test_without_why_there_is_one_line_of_advice_and_no_explanation(cli: Cli) -> None:
    assert not {"why", "next_run"} & set(json.loads(cli(*CHOKED[:-1], "--json").stdout))
    plain = " ".join(cli(*CHOKED[:-1]).stdout.split())
    assert "8 GPUs, the choke is the links between" in plain
    assert "--why" in plain
    assert "What would help" not in plain


def test_plain_predict_builds_two_tables_beyond_those_it_shows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built: list[object] = []
    build_table = Scenario.build_table

    def count(scenario: Scenario, rows: Configurations) -> StepTable:
        built.append(rows)
        return build_table(scenario, rows)

    monkeypatch.setattr(Scenario, "build_table", count)
    predict("resnet50", on=["2x4xrtx-3090@10G"], json_output=True)
    assert len(built) == 4  # all placements, one GPU alone, the knees, and the advice


def test_the_knee_moves_with_the_threshold(cli: Cli) -> None:
    def knee(threshold: str) -> int:
        done = cli(*CHOKED, "--json", "--knee-threshold", threshold)
        return int(json.loads(done.stdout)["why"]["knee"]["current"]["gpus"])

    assert knee("90%") == 1
    assert knee("5%") == 8


def test_the_needed_and_available_bytes_are_shown_if_it_does_not_fit(cli: Cli) -> None:
    done = cli(
        "predict", "gpt2", "--on", "examples/workstation.cluster.yaml", "--gpus", "4", "--why"
    )
    text = " ".join(done.stdout.split())
    assert "a batch of 32 needs 45,232,083,200 bytes (45.2 GB)" in text
    assert "11,811,160,064 (11.8 GB)" in text
    assert "up to 6 would fit" in text


def test_a_batch_that_fits_is_proposed_instead_of_one_that_does_not(cli: Cli) -> None:
    command = ["predict", "gpt2", "--on", "2x4xrtx-3090@100G", "--batch"]
    text = " ".join(cli(*command, "32").stdout.split())
    assert "A batch of 32 does not fit" in text
    assert "it needs 45.2 GB, and a GPU has 25.8 GB" in text
    largest = re.search(r"\(--batch (\d+)\)", text)
    assert largest is not None
    assert "does not fit" not in cli(*command, largest[1]).stdout
    assert "would narrow the interval" not in " ".join(cli(*command, "32", "--why").stdout.split())
    explained = " ".join(cli(*command, largest[1], "--why").stdout.split())
    assert "would narrow the interval" in explained


def test_the_batch_that_would_fit_does(cli: Cli) -> None:
    def fits(batch: str) -> bool:
        done = cli(
            "predict", "gpt2", "--on", "examples/workstation.cluster.yaml",
            "--gpus", "4", "--batch", batch, "--json",
        )  # fmt: skip
        return bool(json.loads(done.stdout)["predictions"][0]["fits"])

    assert fits("6")
    assert not fits("7")


def test_one_gpu_alone_is_explained_too(cli: Cli) -> None:
    done = cli("predict", "resnet50", "--on", "dgx-a100", "--gpus", "1", "--why")
    assert "1 GPU at a batch of 32 each" in done.stdout
    assert "of gradients in" not in done.stdout


def test_the_timeline_as_svg(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    cli(*CHOKED, "--svg", str(picture))
    root = ElementTree.fromstring(picture.read_text())  # noqa: S314 - our own file
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"forward", "backward", "bucket 6", "exposed exchange"} <= texts
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert "file is a file" in cli(*CHOKED, "--svg", str(blocked / "x.svg"), status=2).stderr
    assert "add --why" in cli(*CHOKED[:-1], "--svg", str(picture), status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["resnet50", "--on", "dgx-a100", "--batch", "0"], "batch size: must be 1 or more, up to 1,000,000,000, got 0"),
        (["resnet50", "--on", "TWO", "--gpus", "3"], "3 GPUs at 2 per node need 2 nodes; the cluster has 1 × 2 GPUs"),
        (["resnet-49", "--on", "dgx-a100"], "did you mean 'resnet50'"),
        (["EMPTY", "--on", "dgx-a100"], "batch_per_gpu"),
        (["resnet50", "--on", "dgx-a100", "--knee-threshold", "half"], "'half' is not a share"),
        (["resnet50", "--on", "dgx-a100", "--knee-threshold", "200%"], "between 0% and 100%"),
        (["resnet50", "--on", "dgx-a100", "--strategy", "dataparallel", "--gpus", "9"], "need 2 nodes"),
    ],
)  # fmt: skip
def test_impossible_requests_fail_with_a_message(
    cli: Cli, tmp_path: Path, arguments: list[str], message: str
) -> None:
    two, empty = tmp_path / "two.cluster.yaml", tmp_path / "empty.workload.yaml"
    two.write_text("name: two\nmachine: {gpu: rtx-2080-ti, gpus: 2}\n")
    empty.write_text("name: empty\nmodel: resnet50\nbatch_per_gpu: 0\n")
    files = {"TWO": str(two), "EMPTY": str(empty)}
    done = cli("predict", *(files.get(word, word) for word in arguments), "--why", status=2)
    assert message in done.stderr
    assert not done.stdout
