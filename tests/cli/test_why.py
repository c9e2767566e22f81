"""`gpuyard predict --why`: as a person reads it, and as a program does."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.conftest import Cli

CHOKED = ("predict", "vgg16", "--on", "examples/ethernet.cluster.yaml", "--gpus", "1,8", "--why")


def test_it_says_in_words_what_is_waited_for(cli: Cli) -> None:
    text = " ".join(cli(*CHOKED).stdout.split())
    assert "is waiting for 553 MB of gradients in 6 buckets over 10 Gbit/s (tcp)" in text
    assert "The choke is the links between the machines" in text
    assert "The knee is at " in text
    assert "With the remedy that gets most out of them" in text


def test_the_time_line_fits_into_100_columns(cli: Cli) -> None:
    lines = cli(*CHOKED).stdout.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("one step"))
    end = next(i for i, line in enumerate(lines) if line.startswith("█ busy"))
    chart = lines[start : end + 1]  # a note in words may follow, which is wrapped where it is shown
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


def test_json_has_all_of_it(cli: Cli) -> None:
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
    assert why["knee"]["as_it_is"]["threshold"] == 0.5
    assert why["knee"]["relieved"]["gpus"] >= why["knee"]["as_it_is"]["gpus"]
    assert why["sentences"]


def test_without_why_json_is_as_it_was(cli: Cli) -> None:
    assert "why" not in json.loads(cli(*CHOKED[:-1], "--json").stdout)


def test_the_knee_moves_with_what_is_asked_of_a_gpu(cli: Cli) -> None:
    def knee(threshold: str) -> int:
        done = cli(*CHOKED, "--json", "--knee-threshold", threshold)
        return int(json.loads(done.stdout)["why"]["knee"]["as_it_is"]["gpus"])

    assert knee("90 %") == 1
    assert knee("5 %") == 8


def test_what_does_not_fit_says_how_many_bytes(cli: Cli) -> None:
    done = cli(
        "predict", "gpt2", "--on", "examples/workstation.cluster.yaml", "--gpus", "4", "--why"
    )
    text = " ".join(done.stdout.split())
    assert "It does not fit: a batch of 32 needs 43,326,086,400 bytes (43.3 GB)" in text
    assert "has 11,811,160,064 (11.8 GB); a batch of up to 7 would fit." in text


def test_no_run_is_proposed_that_does_not_fit_and_a_batch_that_does_is(cli: Cli) -> None:
    asked = ["predict", "gpt2", "--on", "2x4xrtx-3090@100G", "--batch"]
    text = " ".join(cli(*asked, "32").stdout.split())
    assert "One run would" not in text
    assert "A batch of 32 does not fit: it needs 43.3 GB of a GPU's 25.8 GB; up to" in text
    most = re.search(r"\(--batch (\d+)\)", text)
    assert most is not None
    assert "does not fit" not in cli(*asked, most[1]).stdout
    assert "One run would narrow" in " ".join(cli(*asked, most[1]).stdout.split())


def test_the_batch_that_would_fit_does(cli: Cli) -> None:
    def fits(batch: str) -> bool:
        done = cli(
            "predict", "gpt2", "--on", "examples/workstation.cluster.yaml",
            "--gpus", "4", "--batch", batch, "--json",
        )  # fmt: skip
        return bool(json.loads(done.stdout)["predictions"][0]["fits"])

    assert fits("7")
    assert not fits("8")


def test_one_gpu_alone_is_explained_too(cli: Cli) -> None:
    done = cli("predict", "resnet50", "--on", "dgx-a100", "--gpus", "1", "--why")
    assert "1 GPU at a batch of 32 each" in done.stdout
    assert "gradients" not in done.stdout


def test_the_time_line_as_a_picture(cli: Cli, tmp_path: Path) -> None:
    picture = tmp_path / "step.svg"
    cli(*CHOKED, "--svg", str(picture))
    root = ElementTree.fromstring(picture.read_text())  # noqa: S314 - our own file
    texts = {element.text for element in root.iter("{http://www.w3.org/2000/svg}text")}
    assert {"forward", "backward", "bucket 6", "exposed exchange"} <= texts
    blocked = tmp_path / "file"
    blocked.write_text("not a directory")
    assert "can't be written" in cli(*CHOKED, "--svg", str(blocked / "x.svg"), status=2).stderr
    assert "add --why" in cli(*CHOKED[:-1], "--svg", str(picture), status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["resnet50", "--on", "dgx-a100", "--batch", "0"], "batch size: must be 1 or more, up to 1,000,000,000, got 0"),
        (["resnet50", "--on", "TWO", "--gpus", "3"], "3 GPUs at 2 per node need 2 nodes; the cluster has 1 × 2 GPUs"),
        (["resnet-49", "--on", "dgx-a100"], "did you mean 'resnet50'"),
        (["EMPTY", "--on", "dgx-a100"], "batch_per_gpu"),
        (["resnet50", "--on", "dgx-a100", "--knee-threshold", "half"], "'half' is not a share"),
        (["resnet50", "--on", "dgx-a100", "--knee-threshold", "200 %"], "between 0 % and 100 %"),
        (["resnet50", "--on", "dgx-a100", "--strategy", "dataparallel", "--gpus", "9"], "need 2 nodes"),
    ],
)  # fmt: skip
def test_the_impossible_gets_a_sentence(
    cli: Cli, tmp_path: Path, arguments: list[str], sentence: str
) -> None:
    two, empty = tmp_path / "two.cluster.yaml", tmp_path / "empty.workload.yaml"
    two.write_text("name: two\nmachine: {gpu: rtx-2080-ti, gpus: 2}\n")
    empty.write_text("name: empty\nmodel: resnet50\nbatch_per_gpu: 0\n")
    files = {"TWO": str(two), "EMPTY": str(empty)}
    done = cli("predict", *(files.get(word, word) for word in arguments), "--why", status=2)
    assert sentence in done.stderr
    assert not done.stdout
