"""Tables of published runs as strangers write them: every spelling is read, and no row ends the run."""

import csv
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gpuyard.errors import UserMistake
from gpuyard.predictor.large.row_layout import parse_recompute
from gpuyard.predictor.large.rows import PublishedRow, parse_row
from gpuyard.predictor.large.validation import TableScores, judge_table

ROW = {
    "source": "someone", "model": "my-8b", "params_b": "8.03", "layers": "32", "hidden": "4096", "heads": "32",
    "kv_heads": "8", "ffn": "14336", "vocab": "128256", "seq": "8192", "gpu": "h100-sxm-80gb", "gpus": "64",
    "gpus_per_node": "8", "interconnect": "", "framework": "torchtitan", "tp": "1", "pp": "1", "vp": "", "cp": "1",
    "ep": "", "dp_or_fsdp": "fsdp64", "zero_stage": "3", "micro_batch": "1", "global_batch": "64",
    "precision": "BF16", "recompute": "full", "attention": "flash2", "metric": "tokens/s/gpu", "value": "6000",
    "notes": "quality=A",
}  # fmt: skip


def read(**cells: str) -> PublishedRow:
    return parse_row(1, ROW | cells)


def judge(path: Path, *rows: Mapping[str, str]) -> TableScores:
    with path.open("w", encoding="utf-8", newline="", errors="surrogateescape") as file:
        writer = csv.DictWriter(file, list(ROW))
        writer.writeheader()
        writer.writerows(rows)
    return judge_table(path)


@pytest.mark.parametrize("precision", ["FP8", "mxfp8", "NVFP4"])
def test_a_precision_that_the_gpu_lacks_skips_only_its_row(tmp_path: Path, precision: str) -> None:
    a100 = ROW | {"gpu": "a100-sxm4-80gb"}
    scores = judge(tmp_path / "runs.csv", a100, a100 | {"precision": precision})
    assert scores.overall is not None
    assert scores.overall.rows == 1
    assert [skipped.row for skipped in scores.skipped] == [2]
    assert precision.lower() in scores.skipped[0].reason


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.lists(
        st.dictionaries(
            st.sampled_from(list(ROW)),
            st.one_of(
                st.sampled_from(
                    ["", "0", "-1", "1e308", "nan", "inf", "OOM", "8x8", "1" * 40, "tpu-v5e", "fsdp", "9" * 12,
                     "experts=8;topk=9", "experts=8;topk=2", "MLA", "nvfp4", "16GB", "\x00", "a,b\n\"c"]
                ),
                st.text(max_size=12),
                st.integers(min_value=-5, max_value=10**7).map(str),
            ),
            max_size=6,
        ),
        max_size=4,
    )
)  # fmt: skip
def test_no_row_ends_the_run(tmp_path: Path, junk: list[dict[str, str]]) -> None:
    scores = judge(tmp_path / "runs.csv", ROW, *(ROW | cells for cells in junk))
    assert scores.overall is not None
    json.dumps(scores.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("tokens_per_second_per_gpu", "6000"), ("tokens/s/GPU", "~6000"), ("tokens/s per GPU", "6k"),
        ("TGS", "6,000"), ("tokens/gpu/s", "6000"), ("Tokens/sec/device", "6.0k"), ("tok/s", "384000"),
        ("tokens/s total", "384k"), ("samples/s/gpu", str(6000 / 8192)), ("sequences/s", str(64 * 6000 / 8192)),
        ("step time (ms)", str(8192 / 6)), ("s/it", str(8192 / 6000)), ("it/s", str(6000 / 8192)),
    ],
)  # fmt: skip
def test_throughput_in_every_spelling(metric: str, value: str) -> None:
    assert read(metric=metric, value=value).tokens_per_second_per_gpu() == pytest.approx(6000)


@pytest.mark.parametrize(
    ("metric", "value"),
    [
        ("tflops", "400"), ("TFLOP/s/GPU", "400"), ("achieved_tflops/gpu", "400"), ("tflops", "25600"),
        ("PFLOP/s total", "25.6"), ("hw_tflops/gpu", str(400 * 4 / 3)), ("mfu", str(400 / 989.4)),
        ("MFU", f"{100 * 400 / 989.4}%"), ("mfu_percent", str(100 * 400 / 989.4)),
    ],
)  # fmt: skip
def test_flops_in_every_spelling(metric: str, value: str) -> None:
    usual = read(metric="model_tflops/gpu", value="400").tokens_per_second_per_gpu()
    assert read(metric=metric, value=value).tokens_per_second_per_gpu() == pytest.approx(usual)


@pytest.mark.parametrize("value", ["", "nan", "inf", "0", "-3", "fast"])
def test_a_value_that_is_no_measurement_is_a_mistake(value: str) -> None:
    with pytest.raises(UserMistake, match="value"):
        read(value=value)


@pytest.mark.parametrize(
    ("metric", "value", "gib"),
    [
        ("peak_mem_gib", "60", 60.0), ("peak memory (GB)", "60", 60e9 / 2**30),
        ("peak_mem_mib", "61440", 60.0), ("peak_mem_bytes", str(60 * 2**30), 60.0),
        ("memory_allocated", "60", 60.0), ("max memory", "61440", 60.0),
    ],
)  # fmt: skip
def test_memory_in_every_unit(tmp_path: Path, metric: str, value: str, gib: float) -> None:
    from gpuyard.predictor.large.published_table import published_bytes

    assert published_bytes(read(metric=metric, value=value)) == pytest.approx(gib * 2**30)


def test_rows_that_ran_out_of_memory_judge_the_fit(tmp_path: Path) -> None:
    huge = ROW | {"micro_batch": "64", "global_batch": "4096", "recompute": "none"}
    scores = judge(
        tmp_path / "runs.csv", ROW, huge | {"value": "OOM"}, huge | {"value": "out of memory"}
    )
    assert scores.memory is not None
    assert (scores.memory["rows"], scores.memory["fits_right"]) == (2, 1.0)


def test_a_table_of_memory_says_what_it_skips(tmp_path: Path) -> None:
    path = tmp_path / "memory.csv"
    judge(path, ROW, ROW | {"metric": "peak_mem_gib", "value": "60"}, ROW | {"gpu": "abacus"})
    memory = judge_table(path, path).memory
    assert memory is not None
    assert [skipped["row"] for skipped in memory["skipped"]] == [1, 3]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "none"), ("none (not stated)", "none"), ("not stated", "none"), ("off", "none"), ("False", "none"),
        ("0", "none"), ("no", "none"), ("activation checkpointing: off", "none"), ("activation offload 40 layers", "none"),
        ("yes", "full"), ("on", "full"), ("True", "full"), ("1", "full"), ("gradient checkpointing", "full"),
        ("activation checkpointing", "full"), ("every layer", "full"), ("block", "full"), ("uniform", "full"),
        ("full (uniform)", "full"), ("on (recipe default)", "full"), ("AC", "full"),
        ("selective", "selective"), ("SAC", "selective"), ("selective activation checkpointing", "selective"),
        ("core_attn", "selective"), ("norm, act", "selective"),
    ],
)  # fmt: skip
def test_recomputation_in_every_spelling(text: str, kind: str) -> None:
    assert parse_recompute(text) == kind


def test_a_recomputation_that_could_mean_anything_is_a_mistake() -> None:
    with pytest.raises(UserMistake, match="recompute"):
        parse_recompute("like last year")


@pytest.mark.parametrize(
    ("cells", "zero", "shard"),
    [
        ({"dp_or_fsdp": "hsdp", "zero_stage": ""}, 3, 8),
        ({"dp_or_fsdp": "hsdp16", "zero_stage": ""}, 3, 16),
        ({"dp_or_fsdp": "hsdp 4x16", "zero_stage": ""}, 3, 16),
        ({"dp_or_fsdp": "fsdp2", "zero_stage": ""}, 3, 64),
        ({"dp_or_fsdp": "fsdp8", "zero_stage": ""}, 3, 8),
        ({"dp_or_fsdp": "FSDP full_shard", "zero_stage": ""}, 3, 64),
        ({"dp_or_fsdp": "dp64", "zero_stage": "zero-3"}, 3, None),
        ({"dp_or_fsdp": "ZeRO3", "zero_stage": ""}, 3, None),
        ({"dp_or_fsdp": "deepspeed zero 2", "zero_stage": ""}, 2, None),
        ({"dp_or_fsdp": "", "zero_stage": "", "framework": "DeepSpeed ZeRO-2"}, 2, None),
        ({"dp_or_fsdp": "", "zero_stage": "", "framework": "PyTorch FSDP2"}, 3, None),
        ({"dp_or_fsdp": "dp64", "zero_stage": "distributed optimizer"}, 1, None),
        ({"dp_or_fsdp": "3d", "zero_stage": ""}, 0, None),
        ({"dp_or_fsdp": "ddp", "zero_stage": ""}, 0, None),
    ],
)  # fmt: skip
def test_sharding_in_every_spelling(cells: dict[str, str], zero: int, shard: int | None) -> None:
    layout = read(**cells).layout
    assert (layout.zero, layout.shard) == (zero, shard)


def test_degrees_that_have_no_column_of_their_own() -> None:
    layout = read(tp="", pp="", dp_or_fsdp="tp=8;pp=4;dp=2", zero_stage="1").layout
    assert (layout.tensor, layout.pipeline, layout.data) == (8, 4, 2)


def test_a_missing_micro_batch_is_the_largest_that_fits(tmp_path: Path) -> None:
    from gpuyard.predictor.large.row_batches import infer_micro_batches

    row = read(micro_batch="", global_batch="1024")
    [inferred] = infer_micro_batches([row])
    assert 1 < inferred.layout.micro_batch <= 16
    assert infer_micro_batches([read(micro_batch="1")])[0].layout.micro_batch == 1


def test_a_model_of_the_catalog_needs_no_shape() -> None:
    blank = dict.fromkeys(("layers", "hidden", "heads", "kv_heads", "ffn", "vocab", "params_b"), "")
    shape = read(model="meta-llama/Llama-3-8B-Instruct", seq="32k", **blank).shape
    assert (shape.layers, shape.kv_heads, shape.sequence) == (32, 8, 32768)


def test_experts_that_a_row_leaves_out_come_from_the_catalog() -> None:
    cells = {
        "layers": "56",
        "hidden": "6144",
        "heads": "48",
        "ffn": "16384",
        "vocab": "32768",
        "params_b": "141",
    }
    assert read(model="Mixtral-8x22B", **cells).shape.experts == 8
    with pytest.raises(UserMistake, match="params_b"):
        read(model="someone's moe", **cells)


def test_a_shape_that_cannot_be_has_a_short_reason(tmp_path: Path) -> None:
    scores = judge(tmp_path / "runs.csv", ROW, ROW | {"heads": "31", "kv_heads": "31"})
    assert "31 heads" in scores.skipped[0].reason
    assert "http" not in scores.skipped[0].reason
