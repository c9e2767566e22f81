"""The shape of a transformer in one row of a table of published runs."""

import re
from collections.abc import Mapping
from functools import lru_cache

from gpuyard.catalog.transformers import transformers
from gpuyard.errors import UserMistake
from gpuyard.predictor.large.model import describe_model
from gpuyard.predictor.large.row_numbers import read_integer, read_number
from gpuyard.specs.transformer import TransformerShape

_MAX_DIFFERENCE = 0.15  # between a shape's parameters and those that the row states
_IGNORED = re.compile(
    r"\b(meta|instruct|chat|base|hf|dense|moe|pretrain\w*|sft|finetun\w*|q?lora)\b"
)


def parse_shape(cells: Mapping[str, str], notes: str) -> TransformerShape:
    """Return the shape that a row states, completed by the catalog's model of that name.

    Raise UserMistake if a shape is missing, or if its parameters are not those that the row states.
    """
    known_shape = _find_known(cells)
    complete = all(re.search(r"\d", cells.get(name, "")) for name in ("layers", "hidden", "heads"))
    experts = re.search(r"\bexperts=\d", notes)
    if known_shape and not (
        complete and (experts or not known_shape.experts) and cells.get("kv_heads")
    ):
        shape = known_shape
    else:
        shape = _build_shape(cells, notes)
    target = _read_parameters(cells.get("params_b", ""))
    for candidate in (shape, known_shape):
        parameters = float(describe_model(candidate).parameters) / 1e9 if candidate else 0.0
        if not target or abs(parameters / target - 1) <= _MAX_DIFFERENCE:
            return candidate or shape
    parameters = float(describe_model(shape).parameters) / 1e9
    raise UserMistake(
        f"the shape has {parameters:.3g} B parameters, but params_b is {target:.3g}; "
        "experts are given as experts=8;topk=2;moe_ffn=14336 in notes"
    )


def _find_known(cells: Mapping[str, str]) -> TransformerShape | None:
    """Return the catalog's model of this name with the row's sequence, if its stated width is the same."""
    shape = _shapes_by_name().get(_squeeze(cells["model"]))
    if shape is None:
        return None
    for name, value in (("hidden", shape.hidden), ("heads", shape.heads)):
        if read_integer(cells, name, value) != value:
            return None
    layers = read_integer(cells, "layers", shape.layers)
    sequence = read_integer(cells, "seq", kilo=1024)
    return TransformerShape.model_validate(
        {**shape.model_dump(), "layers": layers, "sequence": sequence}
    )


@lru_cache(maxsize=1)
def _shapes_by_name() -> dict[str, TransformerShape]:
    return {_squeeze(model.id): model.shape for model in transformers()}


def _squeeze(name: str) -> str:
    """Return a model's name without its publisher, separators, and variants: "llama3.1-8b" is "Llama-3.1-8B-Instruct"."""
    plain = re.sub(r"\(.*?\)", "", name.lower().rpartition("/")[2])
    return re.sub(r"[^a-z0-9.]", "", _IGNORED.sub("", plain.replace("_", "-")))


def _read_parameters(text: str) -> float | None:
    """Return billions of parameters: 70.6, 70B, or 350M."""
    number = read_number(text)
    unit = re.search(r"[\d.]\s*([kmb])", text.lower())
    if number is None:
        return None
    return number / 1e9 if unit or number >= 1e5 else number


def _build_shape(cells: Mapping[str, str], notes: str) -> TransformerShape:
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
        "sequence": read_integer(cells, "seq", kilo=1024),
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
    billions = _read_parameters(cells.get("params_b", ""))
    ffn = read_integer(cells, "ffn", 0) or expert_ffn
    old = re.match(
        r"gpt|bert|opt|bloom|megatron|turing|falcon|phi-1|stablelm", cells["model"].lower()
    )
    guesses = [(not old or bool(experts), False)]
    if billions and not experts:
        guesses = [(gated, tied) for gated in (not old, bool(old)) for tied in (False, True)]
    candidates = [
        TransformerShape.model_validate(
            {**values, "ffn": ffn or 4 * hidden, "gated": gated, "tied_embeddings": tied}
        )
        for gated, tied in guesses
    ]
    if not billions:
        return candidates[0]
    return min(
        candidates, key=lambda shape: abs(float(describe_model(shape).parameters) / 1e9 - billions)
    )
