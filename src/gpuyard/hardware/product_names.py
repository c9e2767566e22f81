"""Find the catalog entry of a GPU by the product name that its driver reports."""

import re

from gpuyard.catalog import Gpu, gpus
from gpuyard.catalog.short_names import VENDOR_WORDS

# names that the driver shortens so much that they match several entries
_SHORT_NAMES = {
    frozenset({"h100", "80gb", "hbm3"}): "h100-sxm5-80gb",
    frozenset({"h200"}): "h200-sxm5-141gb",
    frozenset({"h800"}): "h800-sxm5-80gb",
    frozenset({"h20"}): "h20-sxm5-96gb",
    frozenset({"gh200", "480gb"}): "gh200-96gb",  # the 480 GB are the CPU's
}
_MAX_NAME_LENGTH = 200


def find_catalog_gpu(product_name: str) -> Gpu | None:
    """Return the GPU of a product name like "NVIDIA A100-SXM4-80GB"; None if no entry or several match."""
    if len(product_name) > _MAX_NAME_LENGTH:
        return None
    # the PCI database writes "NVIDIA Corporation GK210GL [Tesla K80]"
    bracketed = re.search(r"\[(.+)\]", product_name)
    words = _split_words(bracketed[1] if bracketed else product_name)
    if not words:
        return None
    if words in _SHORT_NAMES:
        return gpus().get(_SHORT_NAMES[words])
    entries = [(gpu, _split_words(gpu.name)) for gpu in gpus()]
    exact = [gpu for gpu, name in entries if name == words]
    partial = [gpu for gpu, name in entries if words < name]
    matches = exact or partial
    return matches[0] if len(matches) == 1 else None


def _split_words(name: str) -> frozenset[str]:
    without_parentheses = re.sub(r"\(.*?\)", " ", name.lower())
    with_joined_units = re.sub(r"(\d+)\s+gb\b", r"\1gb", without_parentheses)
    return frozenset(re.findall(r"[a-z0-9]+", with_joined_units)) - VENDOR_WORDS
