"""Ansible module `nvidia_gpus`: reports the NVIDIA GPUs, NVSwitches, and RDMA cards of clouds on the PCI bus, and
what could block a driver.

It reads only sysfs, so it works before a driver or lspci is installed.
"""

from pathlib import Path
from typing import Any

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # the base class of display controllers: VGA and 3D
_TURING = 0x1E00  # PCI device ids of Turing and later start here; Volta's end at 0x1dff
# NVSwitches of A100 and of H100 and H200 machines. Other NVIDIA bridges are chipsets.
_NVSWITCHES = ("0x1af1", "0x22a3")
# B200 and B300 machines manage their NVSwitches through a ConnectX-7 whose vital product data has this word.
_MELLANOX = "0x15b3"
_SWITCH_MANAGEMENT = b"SW_MNG"
_AMAZON, _EFA = "0x1d0f", "0xefa"
_GOOGLE = "Google Compute Engine"
_NETWORK = "0x02"  # the base class of network controllers
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def scan_gpus(sysfs: Path = Path("/sys")) -> dict[str, Any]:
    """Return everything on which the roles base their decisions."""
    devices = sorted((sysfs / "bus/pci/devices").glob("*"))
    gpus = [gpu for device in devices if (gpu := _read_gpu(device)) is not None]
    managed = bool(gpus) and any(map(_manages_switches, devices))
    return {
        "gpus": gpus,
        "nvswitches": managed or any(map(_is_switch, devices)),
        # these switches also need NVIDIA's subnet manager
        "managed_switches": managed,
        "efa": any(map(_is_fabric_adapter, devices)),
        "google_rdma": _read(sysfs / "class/dmi/id/product_name") == _GOOGLE
        and any(map(_is_mellanox_card, devices)),
        # NVIDIA's open kernel modules support Turing and later, and one driver serves all GPUs of a machine.
        "open_modules": all(int(gpu["device"], 16) >= _TURING for gpu in gpus),
        "nouveau": (sysfs / "module/nouveau").is_dir(),
        "loaded": _read(sysfs / "module/nvidia/version"),
        "secure_boot": _has_secure_boot(sysfs / _SECURE_BOOT),
    }


def _read_gpu(device: Path) -> "dict[str, str] | None":
    if _read(device / "vendor") != _NVIDIA or not _read(device / "class").startswith(_DISPLAY):
        return None
    return {"address": device.name, "device": _read(device / "device")}


def _is_switch(device: Path) -> bool:
    return _read(device / "vendor") == _NVIDIA and _read(device / "device") in _NVSWITCHES


def _manages_switches(device: Path) -> bool:
    if _read(device / "vendor") != _MELLANOX:
        return False
    try:
        return _SWITCH_MANAGEMENT in (device / "vpd").read_bytes()
    except OSError:  # it has none
        return False


def _is_fabric_adapter(device: Path) -> bool:
    return _read(device / "vendor") == _AMAZON and _read(device / "device").startswith(_EFA)


def _is_mellanox_card(device: Path) -> bool:
    return _read(device / "vendor") == _MELLANOX and _read(device / "class").startswith(_NETWORK)


def _has_secure_boot(variable: Path) -> bool:
    try:
        return variable.read_bytes()[-1:] == b"\x01"  # after four bytes of attributes
    except OSError:  # no EFI
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def main() -> None:
    from ansible.module_utils.basic import AnsibleModule

    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **scan_gpus())


if __name__ == "__main__":
    main()
