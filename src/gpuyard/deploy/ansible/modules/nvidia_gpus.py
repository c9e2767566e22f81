"""Ansible module `nvidia_gpus`: reports the NVIDIA GPUs on the PCI bus, and what could block a driver.

It reads only sysfs, so it works before a driver or lspci is installed.
"""

from pathlib import Path
from typing import Any

_NVIDIA = "0x10de"
_DISPLAY = "0x03"  # the base class of display controllers: VGA and 3D
_TURING = 0x1E00  # PCI device ids of Turing and later start here; Volta's end at 0x1dff
_SECURE_BOOT = "firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"


def scan_gpus(sysfs: Path = Path("/sys")) -> dict[str, Any]:
    """Return everything on which the roles base their decisions."""
    gpus = [
        gpu
        for device in sorted((sysfs / "bus/pci/devices").glob("*"))
        if (gpu := _read_gpu(device)) is not None
    ]
    return {
        "gpus": gpus,
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
