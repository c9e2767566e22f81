"""`gpuyard predict` with the exchange options of a training script."""

import json

import pytest

from tests.conftest import Cli

CHOKED = ("predict", "vgg16", "--on", "examples/ethernet.cluster.yaml", "--gpus", "8")


def test_every_choice_is_in_the_json_and_in_the_title(cli: Cli) -> None:
    chosen = ("--accumulate", "4", "--compress", "powersgd:4", "--bucket-mb", "50")
    (p,) = json.loads(cli(*CHOKED, *chosen, "--json").stdout)["predictions"]
    assert (p["accumulate"], p["compress"], p["bucket_bytes"]) == (4, "powersgd:4", 50 * 2**20)
    assert (p["local_sgd"], p["hierarchical"], p["other_jobs"]) == (1, False, 0)
    title = cli(*CHOKED, *chosen).stdout.splitlines()[1].strip()
    assert title.endswith("(fp32, ddp, exchange every 4 passes, powersgd:4, buckets of 50 MiB)")


def test_other_jobs_slow_a_job_down(cli: Cli) -> None:
    def rate(other_jobs: str) -> float:
        (p,) = json.loads(
            cli("predict", "vgg16", "--on", "examples/apollo.cluster.yaml", "--gpus", "8",
                "--gpus-per-node", "4", "--hierarchical", "--other-jobs", other_jobs, "--json").stdout
        )["predictions"]  # fmt: skip
        return float(p["samples_per_second"])

    assert rate("1") < rate("0")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--compress", "zip"), "--compress: expected fp16"),
        (("--compress", "powersgd:0"), "got 'powersgd:0'"),
        (("--bucket-mb", "0"), "--bucket-mb: must be above 0, got 0"),
        (("--strategy", "dataparallel", "--accumulate", "2"), "accumulate needs ddp or horovod"),
        (("--local-sgd", "2", "--compress", "powersgd:2"), "use fp16 or bf16"),
        (("--knee-threshold", "90%"), "add --why"),
        (("--other-jobs", "1"), "each machine has 1"),
    ],
)
def test_mistakes_name_the_option_and_the_fix(
    cli: Cli, options: tuple[str, ...], message: str
) -> None:
    result = cli(*CHOKED, *options, status=2)
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
