"""`gpuyard goodput` and the lines about losses in other answers."""

import json
import re
from pathlib import Path

import pytest

import gpuyard as gy
from gpuyard.draw.goodput import choose_floor
from tests.conftest import Cli

ARGUMENTS = ("goodput", "llama-3-70b", "--on", "32xp5.48xlarge", "--tokens", "1T")


def test_the_first_line_says_what_to_do(cli: Cli) -> None:
    first = cli(*ARGUMENTS).stdout.splitlines()[0]
    assert "Checkpoint every" in first
    assert "% goodput" in first
    assert "spot saves" in first


def test_python_and_the_command_line_agree(cli: Cli) -> None:
    printed = json.loads(cli(*ARGUMENTS, "--json").stdout)
    answer = gy.goodput("llama-3-70b", on="32xp5.48xlarge", tokens="1T")
    assert printed == answer.to_dict()
    assert printed["gpus"] == 256
    assert printed["days"] == pytest.approx(printed["useful_days"] / printed["goodput"])
    assert printed["days_low"] < printed["days"] < printed["days_high"]
    assert printed["usd_low"] < printed["usd"] < printed["usd_high"]
    spot = printed["spot"]
    assert spot["goodput"] < printed["goodput"]
    assert spot["saving"] == pytest.approx(1 - spot["usd"] / printed["usd"])
    assert answer.spot.saving == spot["saving"]


def test_given_times_replace_the_assumed_ones() -> None:
    answer = gy.goodput(
        "resnet50", on="8xh100", days=3, checkpoint_time="2 min", restart="10 min",
        mean_gpu_hours=160, checkpoint_every="1 h", checkpoint_size="0 GB",
    )  # fmt: skip
    assert answer.mean_hours_between_interruptions == pytest.approx(20)
    assert answer.checkpoint_seconds == 120
    assert answer.checkpoint_every_seconds == 3600
    assert answer.days == pytest.approx(3 / answer.goodput)


def test_pictures(cli: Cli, tmp_path: Path) -> None:
    svg, page = tmp_path / "g.svg", tmp_path / "g.html"
    cli("goodput", "resnet50", "--on", "8xh100", "--svg", str(svg), "--html", str(page))
    assert svg.read_text(encoding="utf-8").count("<polyline") == 2
    assert "Goodput by checkpoint interval" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("more", "named"),
    [
        (("--tokens", "1T", "--days", "3"), "--tokens"),
        (("--storage", "lustre"), "lustre-nvme"),
        (("--restart-time", "soon"), "soon"),
        (("--gpus", "4096"), "256 GPUs"),
    ],
)
def test_mistakes_are_sentences(cli: Cli, more: tuple[str, ...], named: str) -> None:
    arguments = ("goodput", "llama-3-70b", "--on", "32xp5.48xlarge", *more)
    assert named in cli(*arguments, status=2).stderr


def test_tokens_need_a_transformer(cli: Cli) -> None:
    command = ("goodput", "resnet50", "--on", "8xh100", "--tokens", "1B")
    assert "--days" in cli(*command, status=2).stderr


def test_a_workstation_writes_to_its_own_drive_and_says_what_does_not_fit(cli: Cli) -> None:
    printed = cli("goodput", "llama-3-8b", "--on", "1xrtx-4090").stdout
    assert "local-nvme" in printed
    assert "does not fit" in printed
    answer = gy.goodput("llama-3-8b", on="1xrtx-4090")
    assert answer.checkpoint_seconds == pytest.approx(answer.checkpoint_bytes / 3.5e9)
    assert answer.to_dict()["fits"] is False
    large = gy.goodput("llama-3-8b", on="4xdgx-h100")
    assert large.to_dict()["fits"] is True
    assert "lustre-nvme" in large.storage


def test_shares_in_one_answer_have_the_same_digits(cli: Cli) -> None:
    rows = re.findall(r"│ +[\d,]+ +│.*?│ +>?([\d.]+)%", cli(*ARGUMENTS).stdout)
    assert len(rows) > 3
    assert {len(share.partition(".")[2]) for share in rows} == {1}


def test_the_charts_are_zoomed_to_the_best_interval() -> None:
    shares = [point.share for _, point in gy.goodput("resnet50", on="8xh100").result.by_interval]
    floor = choose_floor(iter(shares))
    assert 0.9 < floor < min(shares)
    assert choose_floor([0.3, 0.9]) == 0
    assert choose_floor([1.0, 1.0]) < 1


def test_predict_counts_losses_if_the_length_is_known(cli: Cli) -> None:
    command = ("predict", "llama-3-8b", "--on", "4xdgx-h100", "--strategy", "auto", "--gpus", "32")
    with_tokens, without = (
        json.loads(cli(*command, *more, "--json").stdout)["predictions"][0]
        for more in (("--tokens", "1T"), ())
    )
    assert with_tokens["expected_days"] == pytest.approx(
        with_tokens["days"] / with_tokens["goodput"]["goodput"]
    )
    assert without["goodput"] is without["expected_days"] is None


def test_cost_of_an_instance_counts_losses(cli: Cli) -> None:
    command = ("cost", "--buy", "$300000", "--json", "--rent")
    known, given = (json.loads(cli(*command, rent).stdout) for rent in ("aws/p5.48xlarge", "$50/h"))
    assert 0.9 < known["spot_goodput"] < known["goodput"] < 1
    assert known["spot_usd_per_useful_hour"] > 20.28  # the listed price
    assert given["goodput"] is None
    assert (
        "published spot interruptions (aws-p5)"
        in cli(*command[:3], "--rent", "aws/p5.48xlarge").stdout
    )
    unpublished = cli(*command[:3], "--rent", "azure/Standard_NC48ads_A100_v4").stdout
    assert "assumed spot interruptions" in unpublished


def test_the_precision_is_one_that_the_gpu_has() -> None:
    answer = gy.goodput("gpt2-xl", on="8xv100", tokens="1B")
    assert answer.to_dict()["useful_days"] > 0
