"""Shapes of transformers: parameters as published, and configurations of Hugging Face."""

import json
from pathlib import Path

import pytest

from gpuyard.catalog.transformers import transformers
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.model import describe_model
from gpuyard.workloads.hugging_face import read_hugging_face_config

LLAMA = {
    "model_type": "llama", "num_hidden_layers": 32, "hidden_size": 4096,
    "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
    "vocab_size": 128256, "max_position_embeddings": 8192,
}  # fmt: skip
DEEPSEEK = {
    "model_type": "deepseek_v3", "num_hidden_layers": 61, "hidden_size": 7168,
    "num_attention_heads": 128, "intermediate_size": 18432, "vocab_size": 129280,
    "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1,
    "moe_intermediate_size": 2048, "first_k_dense_replace": 3,
}  # fmt: skip


@pytest.mark.parametrize("name", transformers().ids())
def test_parameters_agree_with_the_published_number(name: str) -> None:
    model = transformers().get(name)
    counted = float(describe_model(model.shape).parameters) / 1e9
    assert counted == pytest.approx(model.parameters_billion, rel=0.01)


def write(directory: Path, config: object) -> Path:
    path = directory / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(("config", "name"), [(LLAMA, "llama-3-8b"), (DEEPSEEK, "deepseek-v3")])
def test_a_config_gives_the_shape_of_the_catalog(
    tmp_path: Path, config: dict[str, object], name: str
) -> None:
    read = describe_model(read_hugging_face_config(write(tmp_path, config)))
    assert read.parameters == describe_model(transformers().get(name).shape).parameters


def test_a_config_may_leave_out_the_defaults_of_transformers(tmp_path: Path) -> None:
    """The file of Gemma 3 4B has only these numbers of its text model."""
    text = {
        "model_type": "gemma3_text", "hidden_size": 2560, "intermediate_size": 10240,
        "num_hidden_layers": 34, "sliding_window": 1024,
    }  # fmt: skip
    config = {"model_type": "gemma3", "text_config": text}
    assert (
        read_hugging_face_config(write(tmp_path, config)) == transformers().get("gemma-3-4b").shape
    )


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"max_position_embeddings": None}, "max_position_embeddings"),
        ({"max_position_embeddings": "abc"}, "max_position_embeddings"),
        ({"max_position_embeddings": float("inf")}, "max_position_embeddings"),
        ({"model_type": "vit", "image_size": 224, "patch_size": 0}, "patch_size"),
        ({"model_type": "vit", "image_size": 224, "patch_size": "16"}, "patch_size"),
        (
            {"model_type": "qwen2_moe", "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 512,
             "shared_expert_intermediate_size": "1024"},
            "shared_expert_intermediate_size",
        ),
        ({"model_type": "bloom", "hidden_size": [1]}, "hidden"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_a_number_is_named(
    tmp_path: Path, changes: dict[str, object], key: str
) -> None:
    with pytest.raises(UserMistake, match=key):
        read_hugging_face_config(write(tmp_path, {**LLAMA, **changes}))


def test_a_config_without_model_type_says_so(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"without model_type.*LlamaForCausalLM.*layers:"):
        read_hugging_face_config(write(tmp_path, {"architectures": ["LlamaForCausalLM"]}))


def test_an_unknown_architecture_is_named_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match=r"config\.json.*'mamba'.*layers:"):
        read_hugging_face_config(write(tmp_path, {"model_type": "mamba"}))


def test_a_missing_number_is_named(tmp_path: Path) -> None:
    config = {key: value for key, value in LLAMA.items() if key != "hidden_size"}
    with pytest.raises(UserMistake, match="hidden_size"):
        read_hugging_face_config(write(tmp_path, config))


@pytest.mark.parametrize("text", ["[]", "{", "[" * 100_000, '"text"'])
def test_junk_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserMistake, match=r"config\.json"):
        read_hugging_face_config(path)


def test_a_huge_file_is_refused_without_reading_it(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    with path.open("wb") as file:
        file.truncate(50 * 2**20)
    with pytest.raises(UserMistake, match="bytes"):
        read_hugging_face_config(path)
