"""The kernel's filter of a cgroup v2 for devices: a BPF program of a few instructions, loaded and attached by bpf(2)."""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from gpuyard.share.isolation.devices import DeviceNumber

# linux/bpf.h
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_ATTACH = 15, 6
_ALLOW_MULTI = 2  # beside those of systemd and of groups around it: all must allow
_CHARACTER_DEVICE = 2
_SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280}
# opcodes: linux/bpf_common.h and bpf.h
_LOAD_WORD, _AND, _MOVE, _JUMP_UNLESS, _EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
_ALLOW, _DENY = 1, 0


def program(denied: Sequence[DeviceNumber]) -> bytes:
    """Refuses to open, read, write or make these devices, and nothing else."""
    code = [
        _instruction(_LOAD_WORD, 2, 1, 0),  # r2: what it is, and what is done with it
        _instruction(_AND, 2, constant=0xFFFF),
        _instruction(_LOAD_WORD, 3, 1, 4),  # r3: major
        _instruction(_LOAD_WORD, 4, 1, 8),  # r4: minor
    ]
    for major, minor in denied:
        code += [
            _instruction(_JUMP_UNLESS, 2, offset=4, constant=_CHARACTER_DEVICE),
            _instruction(_JUMP_UNLESS, 3, offset=3, constant=major),
            _instruction(_JUMP_UNLESS, 4, offset=2, constant=minor),
            _instruction(_MOVE, 0, constant=_DENY),
            _instruction(_EXIT),
        ]
    return b"".join([*code, _instruction(_MOVE, 0, constant=_ALLOW), _instruction(_EXIT)])


def _instruction(
    code: int, target: int = 0, source: int = 0, offset: int = 0, constant: int = 0
) -> bytes:
    return struct.pack("<BBhi", code, source << 4 | target, offset, constant)


def attach(group: str, denied: Sequence[DeviceNumber]) -> None:
    """To a cgroup; OSError where the kernel or the rights of this process don't allow it."""
    code = program(denied)
    instructions = ctypes.create_string_buffer(code, len(code))
    licence = ctypes.create_string_buffer(b"GPL")
    loaded = _bpf(
        _PROG_LOAD,
        struct.pack(
            "<IIQQIIQII",
            _CGROUP_DEVICE_PROGRAM,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(licence),
            *(0, 0, 0, 0, 0),  # no log
        ),
    )
    try:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            values = (directory, loaded, _CGROUP_DEVICE_ATTACH, _ALLOW_MULTI)
            _bpf(_PROG_ATTACH, struct.pack("<IIII", *values))
        finally:
            os.close(directory)
    finally:
        os.close(loaded)  # the group keeps it


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"bpf is not known for {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))
    )
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
