"""Find hardware by the names that people type: `H100`, `rtx3090`, `p4d.24xlarge`, `hdr`."""

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gpuyard.catalog.hardware import Gpu, Machine, gpus, links, machines
from gpuyard.catalog.prices import Price, prices
from gpuyard.errors import UserMistake
from gpuyard.specs.base import match_ids, match_spelling

# In the order in which they are preferred: from the V100 on, the boards of DGX and HGX machines, which clouds rent.
_COMMON_VARIANTS = (
    "p100-pcie-16gb", "v100-sxm2-16gb", "v100-sxm2-32gb", "v100-pcie-16gb",
    "a100-sxm4-80gb", "a100-sxm4-40gb", "a100-pcie-80gb",
    "a800-sxm4-80gb", "h100-sxm5-80gb", "h100-pcie-80gb", "h800-sxm5-80gb", "h200-sxm5-141gb", "h20-sxm5-96gb",
    "gh200-96gb",
)  # fmt: skip
VENDOR_WORDS = frozenset({
    "nvidia", "corporation", "amd", "geforce", "tesla", "graphics", "workstation", "server", "edition",
})  # fmt: skip
# words of tables and datasheets that do not distinguish catalog GPUs; each step drops more
_NOISE = (
    r"instinct|intel|habana|google|aws|gpus?|accelerator|tensor|core|generation|hgx|dgx|\d+w|hbm\w*|gddr\w*",
    r"\d+(?:gb|gib|g)",
    r"sxm\d?|pcie\d?|nvl\d*|oam|nvlink\d?",
)
_MAX_STATED_NAME = 200
SHORT_NAMES = frozenset(variant.partition("-")[0] for variant in _COMMON_VARIANTS)


@dataclass(frozen=True)
class HardwareName:
    """The catalog id behind a name, and a sentence if the name left something open."""

    kind: Literal["GPU", "machine", "instance"]
    id: str
    note: str = ""


def find_hardware(name: str) -> HardwareName | None:
    """Find a machine, a GPU, or a cloud instance by its id or a shorter name, in upper or lower case."""
    if name in gpus():
        return HardwareName("GPU", name)
    if (machine := match_spelling(name, machines().ids())) is not None:
        return HardwareName("machine", machine)
    if matches := match_ids(name, gpus().ids()):
        return _choose_variant(name, matches)
    if (instance := find_instance(name)) is not None:
        return instance
    words = name.lower().replace("_", "-").replace(" ", "-").split("-")
    model = "-".join(word for word in words if word not in VENDOR_WORDS)
    return find_hardware(model) if model and len(model) < len(name) else None


def find_gpu(name: str) -> Gpu:
    """Return the GPU with this id or shorter name."""
    hardware = find_hardware(name)
    if hardware is None or hardware.kind != "GPU":
        return gpus().get(name)
    return gpus().get(hardware.id)


@functools.lru_cache(maxsize=1024)
def find_stated_gpu(text: str) -> Gpu:
    """Return the GPU for a name as tables write it: h100-sxm-96gb-hbm2e-500w, 8x Tesla V100 (DGX-1), a3-ultragpu (H200)."""
    for name in _simplify(text[:_MAX_STATED_NAME]):
        hardware = find_hardware(name)
        if hardware is None:
            continue
        if hardware.kind == "GPU":
            return gpus().get(hardware.id)
        gpu = (
            machines().get(hardware.id).gpu
            if hardware.kind == "machine"
            else prices().get(hardware.id).gpu
        )
        if gpu is not None:
            return gpus().get(gpu)
    raise UserMistake(f"GPU {text[:80]!r} is not in the catalog")


def _simplify(text: str) -> Iterator[str]:
    """Yield simpler and simpler names: as written, without words that identify no GPU, and the text in parentheses."""
    lowered = re.sub(r"\([^()]*\bgcds?\b[^()]*\)", " gcd", text.lower())
    plain = re.sub(r"\([^()]*\)", " ", lowered)
    for part in (plain, plain.partition("/")[0], *re.findall(r"\(([^()]*)\)", lowered)):
        words = re.findall(r"[a-z0-9.]+", re.sub(r"^\s*\d+\s*[x×]\s*(?=[a-z])", "", part))
        if words:
            yield "-".join(words)
        for noise in _NOISE:
            words = [word for word in words if not re.fullmatch(noise, word)]
            if words:
                yield "-".join(words)


def find_link_id(name: str) -> str | None:
    """Return the id of a network link: `infiniband-hdr` for itself and for `HDR`; None if there is none."""
    lowered = name.strip().lower()
    return next((id for id in (lowered, f"infiniband-{lowered}") if id in links()), None)


def list_link_names() -> list[str]:
    """Return the ids of network links, and their short names like `hdr`."""
    ids = [link.id for link in links() if link.protocol != "peer"]
    return [*ids, *(id.removeprefix("infiniband-") for id in ids if id.startswith("infiniband-"))]


def find_instance_machine(price: Price) -> Machine | None:
    """Return the catalog machine of a cloud instance, if there is one."""
    name = f"{price.cloud}-{price.instance.replace('.', '-')}"
    return machines().get(name) if name in machines() else None


def _choose_variant(name: str, matches: list[str]) -> HardwareName:
    if len(matches) == 1:
        return HardwareName("GPU", matches[0])
    common = [variant for variant in _COMMON_VARIANTS if variant in matches]
    if not common:
        raise UserMistake(
            f"{name!r} fits several GPUs; choose one of: {', '.join(sorted(matches))}"
        )
    others = ", ".join(match for match in matches if match != common[0])
    return HardwareName(
        "GPU", common[0], f"{name} means {common[0]}, the most common variant (others: {others})."
    )


def find_instance(name: str) -> HardwareName | None:
    """Find a cloud instance by its id or its name; the name of several clouds' instances is a mistake."""
    lowered = name.lower()
    matches = [
        price.id
        for price in prices()
        if lowered in (price.id.lower(), price.instance.lower(), price.full_name)
    ]
    if len(matches) > 1:
        raise UserMistake(f"several clouds have {name!r}; choose one of: {', '.join(matches)}")
    return HardwareName("instance", matches[0]) if matches else None
