"""`gpuyard predict` with what a training script may choose about its exchange."""

import json

import pytest

from tests.conftest import Cli

CHOKED = ("predict", "vgg16", "--on", "examples/ethernet.cluster.yaml", "--gpus", "8")


def test_every_choice_is_in_the_json_and_in_the_title(cli: Cli) -> None:
    chosen = ("--accumulate", "4", "--compress", "powersgd:4", "--bucket-mb", "50")
    (p,) = json.loads(cli(*CHOKED, *chosen, "--json").stdout)["predictions"]
    assert (p["accumulate"], p["compress"], p["bucket_bytes"]) == (4, "powersgd:4", 50 * 2**20)
    assert (p["local_sgd"], p["hierarchical"], p["beside"]) == (1, False, 0)
    title = cli(*CHOKED, *chosen).stdout.splitlines()[0].strip()
    assert title.endswith("(fp32, ddp, exchange every 4 passes, powersgd:4, buckets of 50 MiB)")


def test_jobs_beside_it_take_their_share(cli: Cli) -> None:
    def rate(beside: str) -> float:
        (p,) = json.loads(
            cli("predict", "vgg16", "--on", "examples/apollo.cluster.yaml", "--gpus", "8",
                "--gpus-per-node", "4", "--hierarchical", "--other-jobs", beside, "--json").stdout
        )["predictions"]  # fmt: skip
        return float(p["samples_per_second"])

    assert rate("1") < rate("0")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--compress", "zip"), "--compress: expected fp16, bf16 or powersgd:RANK"),
        (("--compress", "powersgd:0"), "got 'powersgd:0'"),
        (("--bucket-mb", "0"), "--bucket-mb: must be above 0, got 0"),
        (("--strategy", "dataparallel", "--accumulate", "2"), "accumulate needs ddp or horovod"),
        (("--local-sgd", "2", "--compress", "powersgd:2"), "take fp16 or bf16 with it"),
        (("--knee-threshold", "90 %"), "--knee-threshold is about what --why explains: add --why"),
        (("--other-jobs", "1"), "2 jobs of 1 GPU a machine need 2; each machine has 1"),
    ],
)
def test_mistakes_are_sentences(cli: Cli, options: tuple[str, ...], says: str) -> None:
    done = cli(*CHOKED, *options, status=2)
    assert says in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
