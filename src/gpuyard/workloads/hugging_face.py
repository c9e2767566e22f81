"""Read a Hugging Face `config.json` as the shape of a transformer. Only numbers and names are read, never code."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from gpuyard.errors import UserMistake
from gpuyard.specs.spec_errors import explain_value
from gpuyard.specs.transformer import TransformerShape

_MAX_BYTES = 2**20
Values = dict[str, Any]


def read_hugging_face_config(path: Path) -> TransformerShape:
    """Return the shape that a `config.json` describes."""
    return parse_hugging_face_config(_read(path), str(path))


def parse_hugging_face_config(text: str, name: str) -> TransformerShape:
    """Return the shape that the text of a `config.json` describes; errors name it."""
    config = _parse(text, name)
    # a model for text and images has the numbers of its text model in a separate object
    inner = config.get("text_config")
    if isinstance(inner, dict):
        config = {**inner, "model_type": inner.get("model_type", config.get("model_type"))}
    kind = str(config.get("model_type") or "")
    reader = _READERS.get(kind)
    if reader is None:
        architectures = config.get("architectures") or "unknown"
        what = (
            f"model_type {kind!r}" if kind else f"without model_type, architectures {architectures}"
        )
        raise UserMistake(
            f"{name}: {what} is not supported; known are {', '.join(sorted(_READERS))}. Describe the model "
            "by its shape instead: model: {layers: 32, hidden: 4096, heads: 32, kv_heads: 8, ffn: 14336, "
            "vocabulary: 128256}"
        )
    values = _ReadValues(_DEFAULTS.get(kind, {}) | config)
    try:
        return TransformerShape.model_validate(reader(values))
    except KeyError as missing:
        raise UserMistake(f"{name}: {missing.args[0]} is missing") from None
    except ValidationError as problem:
        first = problem.errors()[0]
        where = ": ".join([name, *map(str, first["loc"])])
        raise UserMistake(f"{where}: {explain_value(first)}") from None
    except (TypeError, ValueError, ArithmeticError):
        key = values.find_suspect()
        raise UserMistake(
            f"{name}: {key} must be a whole number above 0, got {config.get(key)!r}"
        ) from None


class _ReadValues(Mapping[str, Any]):
    """The values of a configuration, and which of them were read."""

    def __init__(self, values: Values) -> None:
        self._values = values
        self._read: list[str] = []

    def __getitem__(self, key: str) -> Any:
        value = self._values[key]
        self._read.append(key)
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def find_suspect(self) -> str:
        """Return the last key that was read and is not a number above 0."""
        bad = [key for key in self._read if not _is_positive(self._values[key])]
        return (bad or self._read)[-1]


def _is_positive(value: object) -> bool:
    return isinstance(value, int | float) and (isinstance(value, bool) or 0 < value < math.inf)


def _read(path: Path) -> str:
    try:
        size = path.stat().st_size
        if size > _MAX_BYTES:
            raise UserMistake(
                f"{path} has {size:,} bytes; a config.json has at most {_MAX_BYTES:,}. Is it the right file?"
            )
        return path.read_text(encoding="utf-8")
    except OSError as problem:
        raise UserMistake(f"cannot read {path}: {problem.strerror}") from None
    except UnicodeDecodeError as problem:
        raise UserMistake(f"{path} is not JSON: {problem}") from None


def _parse(text: str, name: str) -> Values:
    try:
        config = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise UserMistake(f"{name} is not JSON: {problem}") from None
    if not isinstance(config, dict):
        raise UserMistake(f"{name} must be a JSON object")
    return config


def _base(config: Mapping[str, Any]) -> Values:
    """Return the keys that Llama and most later models share."""
    values: Values = {
        "layers": config["num_hidden_layers"],
        "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"],
        "kv_heads": config.get("num_key_value_heads"),
        "head_size": config.get("head_dim"),
        "ffn": config["intermediate_size"],
        "vocabulary": config["vocab_size"],
        "tied_embeddings": bool(config.get("tie_word_embeddings", False)),
        "sequence": min(int(config.get("max_position_embeddings", 4096)), 8192),
    }
    window = config.get("sliding_window")
    if window and config.get("use_sliding_window", True):
        values |= {"attention": "sliding-window", "window": window}
    return values


def _tied(config: Mapping[str, Any]) -> Values:
    return {**_base(config), "tied_embeddings": bool(config.get("tie_word_embeddings", True))}


def _plain(config: Mapping[str, Any]) -> Values:
    return {**_base(config), "gated": False}


def _experts(config: Mapping[str, Any]) -> Values:
    experts = config.get("num_local_experts") or config.get("num_experts")
    if not experts:
        raise KeyError("num_experts")
    values = _base(config) | {
        "experts": experts,
        "active_experts": config["num_experts_per_tok"],
    }
    if width := config.get("moe_intermediate_size"):
        values["expert_ffn"] = width
    if shared := config.get("shared_expert_intermediate_size"):
        values["shared_experts"] = max(1, round(shared / (width or shared)))
    return values


def _gpt_oss(config: Mapping[str, Any]) -> Values:
    return _experts(config) | {"full_attention_every": 2}


def _gemma2(config: Mapping[str, Any]) -> Values:
    return _tied(config) | {"full_attention_every": 2}


def _gemma3(config: Mapping[str, Any]) -> Values:
    return _tied(config) | {"full_attention_every": config.get("sliding_window_pattern", 6)}


def _deepseek(config: Mapping[str, Any]) -> Values:
    values = _base(config)
    for key in ("kv_heads", "window"):
        values.pop(key, None)
    return values | {
        "attention": "mla",
        "head_size": config["qk_nope_head_dim"],
        "query_rank": config.get("q_lora_rank") or 0,
        "kv_rank": config["kv_lora_rank"],
        "rope_head_size": config["qk_rope_head_dim"],
        "value_head_size": config["v_head_dim"],
        "experts": config["n_routed_experts"],
        "active_experts": config["num_experts_per_tok"],
        "shared_experts": config.get("n_shared_experts") or 0,
        "expert_ffn": config["moe_intermediate_size"],
        "dense_layers": config.get("first_k_dense_replace", 0),
    }


def _gpt2(config: Mapping[str, Any]) -> Values:
    hidden = config["n_embd"]
    return {
        "layers": config["n_layer"], "hidden": hidden, "heads": config["n_head"],
        "ffn": config.get("n_inner") or 4 * hidden, "gated": False,
        "vocabulary": config["vocab_size"], "tied_embeddings": True,
        "sequence": config.get("n_positions", 1024), "positions": config.get("n_positions", 1024),
    }  # fmt: skip


def _bloom(config: Mapping[str, Any]) -> Values:
    hidden = config.get("hidden_size") or config["n_embed"]
    return {
        "layers": config.get("n_layer") or config["num_hidden_layers"], "hidden": hidden,
        "heads": config.get("n_head") or config["num_attention_heads"], "ffn": 4 * hidden,
        "gated": False, "vocabulary": config["vocab_size"], "tied_embeddings": True,
        "sequence": config.get("seq_length", 2048),
    }  # fmt: skip


def _falcon(config: Mapping[str, Any]) -> Values:
    hidden, heads = config["hidden_size"], config["num_attention_heads"]
    new = config.get("new_decoder_architecture", False)
    kv = config.get("num_kv_heads") or (1 if config.get("multi_query") and not new else heads)
    return {
        "layers": config["num_hidden_layers"], "hidden": hidden, "heads": heads, "kv_heads": kv,
        "ffn": config.get("ffn_hidden_size") or 4 * hidden, "gated": False,
        "vocabulary": config["vocab_size"], "tied_embeddings": True, "sequence": 2048,
    }  # fmt: skip


def _opt(config: Mapping[str, Any]) -> Values:
    positions = config.get("max_position_embeddings", 2048)
    return {
        "layers": config["num_hidden_layers"], "hidden": config["hidden_size"],
        "heads": config["num_attention_heads"], "ffn": config["ffn_dim"], "gated": False,
        "vocabulary": config["vocab_size"], "tied_embeddings": True, "sequence": positions,
        "positions": positions,
    }  # fmt: skip


def _bert(config: Mapping[str, Any]) -> Values:
    positions = config.get("max_position_embeddings", 512)
    hidden = config["hidden_size"]
    return _plain(config) | {
        "causal": False, "tied_embeddings": True, "sequence": positions, "positions": positions,
        "other_parameters": hidden * hidden + hidden,
    }  # fmt: skip


def _t5(config: Mapping[str, Any]) -> Values:
    layers = config["num_layers"]
    return {
        "layers": config.get("num_decoder_layers") or layers, "encoder_layers": layers,
        "hidden": config["d_model"], "heads": config["num_heads"], "head_size": config["d_kv"],
        "ffn": config["d_ff"], "gated": "gated" in str(config.get("feed_forward_proj", "")),
        "vocabulary": config["vocab_size"],
        "tied_embeddings": bool(config.get("tie_word_embeddings", True)), "sequence": 512,
    }  # fmt: skip


def _vit(config: Mapping[str, Any]) -> Values:
    hidden, patch = config["hidden_size"], config["patch_size"]
    tokens = (config["image_size"] // patch) ** 2 + 1
    return {
        "layers": config["num_hidden_layers"], "hidden": hidden,
        "heads": config["num_attention_heads"], "ffn": config["intermediate_size"], "gated": False,
        "vocabulary": max(2, len(config.get("id2label") or ()) or 1000), "tied_embeddings": True,
        "causal": False, "sequence": tokens, "positions": tokens,
        "other_parameters": config.get("num_channels", 3) * patch * patch * hidden,
    }  # fmt: skip


_READERS: dict[str, Callable[[Mapping[str, Any]], Values]] = {
    "llama": _base, "mistral": _base, "qwen2": _base, "qwen3": _base, "phi3": _base,
    "gemma": _tied, "gemma2": _gemma2, "gemma3": _gemma3, "gemma3_text": _gemma3,
    "mixtral": _experts, "qwen2_moe": _experts, "qwen3_moe": _experts, "gpt_oss": _gpt_oss,
    "deepseek_v2": _deepseek, "deepseek_v3": _deepseek, "kimi_k2": _deepseek,
    "gpt2": _gpt2, "gpt_neox": _plain, "phi": _plain, "opt": _opt, "bloom": _bloom,
    "falcon": _falcon, "bert": _bert, "roberta": _bert, "t5": _t5, "mt5": _t5, "vit": _vit,
}  # fmt: skip

# files of Gemma 3 leave out what equals a default of Gemma3TextConfig in transformers
_GEMMA3_DEFAULTS: Values = {
    "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "sliding_window": 4096,
    "max_position_embeddings": 131072,
}  # fmt: skip
_DEFAULTS: dict[str, Values] = {"gemma3": _GEMMA3_DEFAULTS, "gemma3_text": _GEMMA3_DEFAULTS}
