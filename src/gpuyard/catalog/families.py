"""Families of models whose layers use a GPU in the same way, such as all ResNets.

A family comes from the model's name; a model with an unknown name has none.
"""

import re

# the start of a name → family; the longest match counts
_FAMILIES = {
    "bert": "bert", "electra": "bert", "roberta": "bert", "distilbert": "bert",
    "gpt": "gpt", "opt": "gpt", "llama": "gpt", "transformer": "gpt",
    "vit": "vit", "deit": "vit", "beit": "vit", "cait": "vit", "crossvit": "vit", "pit": "vit", "xcit": "vit",
    "levit": "levit", "swin": "swin", "twins": "swin",
    "mixer": "mlp", "resmlp": "mlp", "gmlp": "mlp", "poolformer": "mlp", "convnext": "convnext",
    "vgg": "vgg", "repvgg": "vgg", "alexnet": "vgg", "squeezenet": "squeezenet",
    "densenet": "densenet", "inception": "inception", "googlenet": "inception", "hrnet": "hrnet",
    "xception": "depthwise", "mobilenet": "depthwise", "efficientnet": "depthwise", "mnasnet": "depthwise",
    "ghostnet": "depthwise", "shufflenet": "depthwise", "nasnet": "depthwise", "pnasnet": "depthwise",
    "regnet": "grouped", "resnext": "grouped", "nfnet": "grouped", "senet": "grouped", "res2net": "grouped",
    "resnet": "resnet", "seresnet": "resnet", "wide-resnet": "resnet", "dla": "resnet", "darknet": "resnet",
    "cspdarknet": "resnet", "cspresnet": "resnet", "gernet": "resnet", "selecsls": "resnet",
    "gnmt": "rnn", "ssd": "ssd",
}  # fmt: skip
TRANSFORMERS = frozenset({"bert", "gpt", "vit", "swin", "levit"})
_LIBRARIES = re.compile(r"^(timm|torchvision|tf|dm|legacy)-")


def find_family(model: str) -> str | None:
    """Return the family of a catalog model or an importable `module:factory`, or None if its name is unknown."""
    name = model.rpartition(":")[2].lower().replace("_", "-").replace(".", "-")
    while match := _LIBRARIES.match(name):
        name = name[match.end() :]
    starts = [start for start in _FAMILIES if name.startswith(start)]
    return _FAMILIES[max(starts, key=len)] if starts else None
