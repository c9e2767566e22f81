"""Large models through the API and the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

import gpuyard as gy
from gpuyard.errors import UserMistake
from tests.conftest import Cli

FIXED_KEYS = {
    "tokens_per_second", "tokens_per_second_per_gpu", "tflops_per_gpu", "mfu", "layout",
    "micro_batch", "global_batch", "memory", "fits",
}  # fmt: skip


def test_a_model_too_large_for_one_gpu_is_offered_sharding(cli: Cli) -> None:
    first = cli("predict", "gpt2-xl", "--on", "8xrtx-3090", "--batch", "64").stdout.splitlines()[0]
    assert "--strategy auto" in first
    assert (
        "--strategy auto"
        not in cli("predict", "vgg16", "--on", "8xrtx-3090", "--batch", "4,096").stdout
    )


def test_python_and_the_command_line_agree(cli: Cli) -> None:
    answer = gy.predict("llama-3-8b", on="4xdgx-h100", gpus=[8, 32], strategy="auto")
    printed = json.loads(
        cli(
            "predict",
            "llama-3-8b",
            "--on",
            "4xdgx-h100",
            "--gpus",
            "8,32",
            "--strategy",
            "auto",
            "--json",
        ).stdout
    )
    assert printed == answer.to_dict()
    rows: list[Any] = list(answer)
    assert [row.low < row.samples_per_second < row.high for row in rows] == [True, True]
    for row, attributes in zip(printed["predictions"], rows, strict=True):
        assert all(getattr(attributes, key) == value for key, value in row.items())
        assert attributes.layout.tensor * attributes.memory.total > 0
        assert set(row) >= FIXED_KEYS
        memory = row["memory"]
        assert memory["total"] == sum(size for part, size in memory.items() if part != "total")
        layout = row["layout"]
        sizes = [layout[name] for name in ("tensor", "pipeline", "context", "data")]
        assert sizes[0] * sizes[1] * sizes[2] * sizes[3] == row["gpus"]


def test_a_config_beside_a_workload_file_is_found(cli: Cli, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "num_hidden_layers": 16, "hidden_size": 2048,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 8192,
        "vocab_size": 128256,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    spec = tmp_path / "mine.workload.yaml"
    spec.write_text(
        "name: mine\nmodel: config.json\nparallel: {strategy: fsdp, tp: 1}\n", encoding="utf-8"
    )
    (row,) = json.loads(
        cli("predict", str(spec), "--on", "8xh100", "--gpus", "8", "--json").stdout
    )["predictions"]
    assert row["strategy"] == "fsdp"
    assert row["fits"]


def test_wrong_layouts_are_refused_in_a_sentence(cli: Cli) -> None:
    model = ("predict", "llama-3-8b", "--on", "8xh100", "--gpus", "8")
    assert "tp" in cli(*model, "--layout", "xy=2", status=2).stderr
    assert "tp=1" in cli(*model, "--layout", "tp=two", status=2).stderr
    assert "0 to 3" in cli(*model, "--layout", "zero=4", status=2).stderr
    assert "20B" in cli(*model, "--tokens", "many", status=2).stderr
    assert "exclude" in cli(*model, "--lora", "16", "--qlora", "16", status=2).stderr
    assert "fp8" in cli(*model, "--precision", "nvfp4", status=2).stderr


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"sequence": 0}, "sequence"),
        ({"global_batch": 0}, "global_batch"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"micro_batch": 1.5}, "micro_batch"),
        ({"lora": -1}, "lora"),
        ({"lora": 0}, "lora"),
        ({"optimizer": "adm"}, "did you mean 'adam'"),
        ({"offload": "states"}, "optimizer or parameters"),
        ({"recompute": "ful"}, "did you mean 'full'"),
        ({"lora": 1_000_000}, "4,096"),
    ],
)
def test_python_values_are_checked_like_options(options: dict[str, Any], named: str) -> None:
    with pytest.raises(UserMistake) as raised:
        gy.predict("llama-3-8b", on="8xh100", gpus=8, **options)
    assert named in str(raised.value)


def test_layout_mistakes_name_the_nearest_that_works(cli: Cli) -> None:
    model = ("predict", "llama-3-8b", "--on", "8xh100", "--gpus", "8", "--layout")
    assert "pp=4" in cli(*model, "pp=5", status=2).stderr
    assert "tp=8" in cli(*model, "tp=16", status=2).stderr
    assert "tp" in cli(*model, "tp=2,tp=4", status=2).stderr
    assert "no experts" in cli(*model, "ep=2", status=2).stderr


@pytest.mark.parametrize(
    ("options", "instead"),
    [
        (("--gpus-per-node", "4"), "4x4xh100"),
        (("--batch", "8"), "--micro-batch"),
        (("--accumulate", "2"), "--global-batch"),
        (("--other-jobs", "1"), "leave it out"),
        (("--compress", "powersgd"), "leave it out"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    cli: Cli, options: tuple[str, str], instead: str
) -> None:
    error = cli("predict", "llama-3-8b", "--on", "8xh100", *options, status=2).stderr
    assert options[0] in error
    assert instead in error


def test_a_gpu_without_bf16_trains_in_fp16() -> None:
    (row,) = gy.predict("llama-3-8b", on="8xv100-sxm2-32gb", gpus=8, strategy="auto").rows
    assert row.precision == "fp16"


def test_a_figure_makes_no_offer_faster_than_its_gpus(cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "mine.workload.yaml"
    spec.write_text(
        "name: mine\nmodel: llama-3-70b\ntokens: 100B\nparallel:\n  global_batch: 512\n  measured:\n"
        "    - {gpu: h100-sxm5-80gb, gpus: 64, tokens_per_second: 45000, tp: 8, pp: 4,\n"
        "       micro_batch: 1, global_batch: 256}\n",
        encoding="utf-8",
    )
    output = cli("predict", str(spec), "--on", "16xp5.48xlarge", "--gpus", "128", "--json").stdout
    days = json.loads(output)["predictions"][0]["days"]
    offer = json.loads(output)["cheapest_offer"]
    # a tensor group of 8 is far slower on the offered machines with 4 GPUs, which did not measure it
    assert 0.5 * days < offer["run_seconds"] / 86400 < 1.5 * days


def test_a_figure_above_the_peak_is_refused(cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "mine.workload.yaml"
    spec.write_text(
        "name: mine\nmodel: llama-3-8b\nparallel:\n  measured:\n"
        "    - {gpu: h100-sxm5-80gb, gpus: 8, tokens_per_second: 48000000}\n",
        encoding="utf-8",
    )
    error = cli("predict", str(spec), "--on", "8xh100", status=2).stderr
    assert "peak" in error
    assert "8 GPUs together" in error


@pytest.mark.parametrize("model", ["llama-3-8b", "llama-3-70b"])
def test_a_model_that_does_not_fit_gets_a_way_out_that_works(model: str) -> None:
    refused: Any = gy.predict(model, on="rtx-4090")[0]
    assert not refused.fits
    words = refused.remedy.split()
    options: dict[str, Any] = {
        name.removeprefix("--"): int(value) if value.isdecimal() else value
        for name, value in zip(words[::2], words[1::2], strict=True)
    }
    assert gy.predict(model, on="rtx-4090", **options)[0].fits


@pytest.mark.parametrize("gpu", ["h100", "rtx-4090", "mi300x"])
def test_both_16_bit_precisions_are_as_fast_on_a_gpu_with_the_same_peak(gpu: str) -> None:
    rates = [
        gy.predict("gpt2", on=f"8x{gpu}", gpus=8, strategy="fsdp", precision=precision)[
            0
        ].samples_per_second
        for precision in ("fp16", "bf16")
    ]
    assert rates[0] == pytest.approx(rates[1], rel=0.02)


def test_mistakes_in_a_shape_are_said_in_words(cli: Cli, tmp_path: Path) -> None:
    config = {
        "model_type": "llama", "hidden_size": -1, "intermediate_size": 400, "num_hidden_layers": 2,
        "num_attention_heads": 1, "vocab_size": 1000,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    error = cli("predict", "config.json", "--on", "h100", status=2, cwd=tmp_path).stderr
    assert "config.json: hidden: must be above 0, got -1" in error
    spec = tmp_path / "odd.workload.yaml"
    shape = "{layers: 16, hidden: 2048, heads: 31, ffn: 8192, vocabulary: 1000}"
    spec.write_text(f"name: odd\nmodel: {shape}\n", encoding="utf-8")
    error = cli("predict", str(spec), "--on", "h100", status=2).stderr
    assert "model: hidden 2048" in error


def test_a_dense_model_with_a_trillion_parameters_is_refused(cli: Cli, tmp_path: Path) -> None:
    spec = tmp_path / "huge.workload.yaml"
    shape = "{layers: 200, hidden: 20480, heads: 160, ffn: 56000, vocabulary: 100000}"
    spec.write_text(f"name: huge\nmodel: {shape}\n", encoding="utf-8")
    error = cli("predict", str(spec), "--on", "8xh100", status=2).stderr
    assert "T parameters" in error
    assert gy.predict("kimi-k2", on="8xh200", gpus=8)[0].gpus == 8
