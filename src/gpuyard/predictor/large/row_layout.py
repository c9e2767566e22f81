"""The layout of one row in a table of published runs, in the spellings of different frameworks."""

import re
from collections.abc import Mapping

from gpuyard.errors import UserMistake
from gpuyard.predictor.large.layout import Layout
from gpuyard.predictor.large.row_numbers import read_integer
from gpuyard.predictor.large.row_software import parse_family
from gpuyard.specs.parallel import Recompute
from gpuyard.specs.transformer import TransformerShape

_RECOMPUTE: tuple[tuple[str, Recompute], ...] = (  # the first pattern that fits
    (r"^$|^(?:[-?0]|no|none|off|false|n/?a|unknown|disabled|without|see notes)(?!\w)|^not ", "none"),
    (r"[ :=](?:none|off|disabled|false|0)$|^(?:activation |cpu )?offload", "none"),
    (r"full|\ball\b|every|100 ?%", "full"),
    (r"select|\bsac\b|\bop\b|\bper[- ]op|norm|\bact\b|_act\b|attn|attention|mlp|mla|moe|swiglu|ffn", "selective"),
    (r"^(?:1|y|yes|on|true|enabled?)(?!\w)|checkpoint|recomput|remat|block|uniform|layer|\bac\b|\bgc\b|[ =](?:on|true|yes|1)$", "full"),
)  # fmt: skip
_ZERO = (
    (r"zero[\s_-]*([0-3])|stage[\s_-]*([0-3])|^\D*([0-3])(?!\d)", None),
    (r"full[_ -]?shard|hybrid[_ -]?shard|zero ?\+\+", 3),
    (r"shard[_ -]?grad", 2),
    (r"dist\w*[ _-]*opt|optimizer|os\b", 1),
    (r"no[_ -]?shard|none|\bno\b|off", 0),
)


def parse_recompute(text: str) -> Recompute:
    """Return what is recomputed; raise UserMistake for a text that could mean anything."""
    plain = text.lower().strip()
    for pattern, kind in _RECOMPUTE:
        if re.search(pattern, plain):
            return kind
    raise UserMistake(f"recompute {text[:60]!r} is not none, selective, or full")


def parse_layout(
    cells: Mapping[str, str], notes: str, count: int, shape: TransformerShape, per_node: int
) -> Layout:
    """Return the layout on `count` GPUs; a batch that is not stated is one sample per GPU."""
    kind = cells.get("dp_or_fsdp", "").lower()

    def degree(name: str) -> int:
        if not cells.get(name):
            match = re.search(rf"(?<![a-z]){name}[ _-]?[=:]?[ ]?(\d{{1,6}})", kind)
            match = match or re.search(rf"(?<![a-z]){name} ?[=:] ?(\d{{1,6}})", notes.lower())
            return int(match[1]) if match else 1
        return read_integer(cells, name, 1)

    tensor, pipeline, context = degree("tp"), degree("pp"), degree("cp")
    model_parallel = tensor * pipeline * context
    if not model_parallel or count % model_parallel:
        raise UserMistake(f"tp × pp × cp = {model_parallel} does not divide {count} GPUs")
    data = count // model_parallel
    zero = _parse_zero(cells, kind)
    micro = read_integer(cells, "micro_batch", 1)
    batch = read_integer(cells, "global_batch", micro * data)
    if "tok" in cells.get("global_batch", "").lower():
        batch = round(batch / shape.sequence)
    if "PP microbatches" in notes or (
        pipeline > 1 and micro * data == batch and micro % pipeline == 0 and "sdp" in kind
    ):
        micro //= pipeline
    shard = _parse_shard(kind, cells.get("zero_stage", "").lower(), data, per_node)
    return Layout(
        tensor=tensor,
        pipeline=pipeline,
        virtual_pipeline=max(1, degree("vp")),
        context=context,
        expert=max(1, degree("ep")) if shape.experts else 1,
        data=data,
        zero=zero if data * context > 1 else 0,
        shard=min(data, shard) * context if shard and data > 1 else None,
        micro_batch=max(1, min(micro, batch // data)),
        global_batch=max(batch, data),
        recompute=parse_recompute(cells.get("recompute", "")),
        family=parse_family(cells.get("framework", ""), zero),
    )


def _parse_zero(cells: Mapping[str, str], kind: str) -> int:
    """Return the ZeRO stage that the table states; FSDP shards everything, and plain data parallelism nothing."""
    stated, framework = cells.get("zero_stage", "").lower(), cells.get("framework", "").lower()
    if "sdp" not in stated:
        for pattern, stage in _ZERO:
            if match := re.search(pattern, stated):
                return stage if stage is not None else int(next(filter(None, match.groups())))
    named = re.search(r"(?:zero|stage)[\s_-]*([0-3])", kind)
    if named is None and not re.search(r"sdp", kind + stated):
        named = re.search(r"zero[\s_-]*([0-3])", framework)
    if named:
        return int(named[1])
    sharded = kind + stated + ("" if kind else framework)
    return 3 if re.search(r"fsdp|hsdp|full[_ -]?shard|hybrid[_ -]?shard", sharded) else 0


def _parse_shard(kind: str, stated: str, data: int, per_node: int) -> int | None:
    """Return the data-parallel ranks that share one copy; None: the table names no sharding."""
    if match := re.search(r"shard\D{0,3}(\d{1,6})", kind):
        return int(match[1])
    if not re.search(r"sdp|shard", kind + stated):
        return None
    product = re.search(r"(\d{1,6})\s*[x×*]\s*(\d{1,6})", kind)
    if product and int(product[1]) * int(product[2]) == data:
        return per_node if str(per_node) in product.groups() else int(product[2])
    size = re.search(r"sdp[\s=:_-]*(\d{1,6})", kind)
    hybrid = re.search(r"hsdp|hybrid", kind + stated) is not None
    if size is not None and (hybrid or int(size[1]) > 2) and int(size[1]) < data:
        return int(size[1])  # "fsdp2" on more GPUs is a version
    return per_node if hybrid else data
