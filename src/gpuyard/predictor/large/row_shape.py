"""The shape of a transformer in one row of a table of published runs."""

import re
from collections.abc import Mapping

from gpuyard.errors import UserMistake
from gpuyard.predictor.large.model import describe_model
from gpuyard.specs.transformer import TransformerShape

_MAX_NUMBER = 10**12


def read_integer(cells: Mapping[str, str], name: str, default: int | None = None) -> int:
    """Return the first number in a cell."""
    text = cells.get(name, "")
    match = re.search(r"\d[\d,]*", text)
    if match is None or (default is not None and text.startswith(">")):
        if default is None:
            raise UserMistake(f"{name} is missing")
        return default
    number = int(match[0].replace(",", "")[:30])
    if number > _MAX_NUMBER:
        raise UserMistake(f"{name} is larger than {_MAX_NUMBER:,}")
    return number


def parse_shape(cells: Mapping[str, str], notes: str) -> TransformerShape:
    """Return the shape; whether it is gated and tied follows from the number of parameters, if that is given."""
    numbers = {key: int(value) for key, value in re.findall(r"\b([a-z_]+)=(\d+)", notes)}
    hidden, heads, layers = (read_integer(cells, name) for name in ("hidden", "heads", "layers"))
    experts = numbers.get("experts", 0)
    expert_ffn = numbers.get("moe_ffn") or numbers.get("expert_ffn")
    kv = cells.get("kv_heads", "")
    mla = kv.upper() == "MLA" or "MLA" in notes
    values: dict[str, object] = {
        "layers": layers,
        "hidden": hidden,
        "heads": heads,
        "vocabulary": read_integer(cells, "vocab", 50_257),
        "sequence": read_integer(cells, "seq"),
    }
    if "head_dim" in numbers and not mla:
        values["head_size"] = numbers["head_dim"]
    if mla:
        values |= {
            "attention": "mla", "head_size": numbers.get("qk_nope", 128),
            "query_rank": numbers.get("q_lora_rank", 1536), "kv_rank": numbers.get("kv_lora_rank", 512),
            "rope_head_size": 64, "value_head_size": 128,
        }  # fmt: skip
    else:
        values["kv_heads"] = read_integer(cells, "kv_heads", heads)
    if window := re.search(r"sliding window (\d+)", notes):
        values |= {"attention": "sliding-window", "window": int(window[1])}
        if "alternating" in notes:
            values["full_attention_every"] = 2
    if experts:
        dense = re.search(r"first (\d+) layers? dense", notes)
        values |= {
            "experts": experts, "active_experts": numbers.get("topk", numbers.get("active", 1)),
            "shared_experts": numbers.get("shared", 0),
            "dense_layers": int(dense[1]) if dense else numbers.get("dense_layers", 0),
        }  # fmt: skip
        if expert_ffn:
            values["expert_ffn"] = expert_ffn
    if re.match(r"bert|vit", cells["model"].lower()):
        values["causal"] = False
    given = re.search(r"[\d.]+", cells.get("params_b", ""))
    ffn = read_integer(cells, "ffn", 0) or expert_ffn
    old = re.match(
        r"gpt|bert|opt|bloom|megatron|turing|falcon|phi-1|stablelm", cells["model"].lower()
    )
    guesses = [(not old or bool(experts), False)]
    if given and not experts:
        guesses = [(gated, tied) for gated in (not old, bool(old)) for tied in (False, True)]
    candidates = [
        TransformerShape.model_validate(
            {**values, "ffn": ffn or 4 * hidden, "gated": gated, "tied_embeddings": tied}
        )
        for gated, tied in guesses
    ]
    if not given:
        return candidates[0]
    target = float(given[0]) * 1e9
    return min(candidates, key=lambda shape: abs(float(describe_model(shape).parameters) - target))
