"""From the name that a driver gives a GPU to its row in the catalog."""

import re

from gpuyard.catalog import Gpu, gpus

_VENDOR_WORDS = {
    "nvidia", "corporation", "amd", "geforce", "tesla", "graphics",
    "workstation", "server", "edition",
}  # fmt: skip
# names that the driver shortens so far that another row would fit as well
_SHORTENED = {
    frozenset({"h100", "80gb", "hbm3"}): "h100-sxm5-80gb",
    frozenset({"h200"}): "h200-sxm5-141gb",
}


_LONGEST = 200  # characters


def catalog_gpu(product_name: str) -> Gpu | None:
    """The GPU of a name like "NVIDIA A100-SXM4-80GB"; None where no row or several would fit."""
    if len(product_name) > _LONGEST:
        return None
    # the PCI database writes "NVIDIA Corporation GK210GL [Tesla K80]"
    inner = re.search(r"\[(.+)\]", product_name)
    words = _words(inner[1] if inner else product_name)
    if not words:
        return None
    if words in _SHORTENED:
        return gpus().get(_SHORTENED[words])
    rows = [(gpu, _words(gpu.name)) for gpu in gpus()]
    same = [gpu for gpu, name in rows if name == words]
    wider = [gpu for gpu, name in rows if words < name]
    return (same or wider)[0] if len(same or wider) == 1 else None


def _words(name: str) -> frozenset[str]:
    bare = re.sub(r"\(.*?\)", " ", name.lower())
    joined = re.sub(r"(\d+)\s+gb\b", r"\1gb", bare)
    return frozenset(re.findall(r"[a-z0-9]+", joined)) - _VENDOR_WORDS
