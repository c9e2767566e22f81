"""The device filter of a cgroup v2: a short BPF program that is loaded and attached with bpf(2)."""

import ctypes
import os
import platform
import struct
from collections.abc import Sequence

from gpuyard.share.models import DeviceNumber

# linux/bpf.h
_PROG_LOAD, _PROG_ATTACH = 5, 8
_CGROUP_DEVICE_PROGRAM, _CGROUP_DEVICE_ATTACH = 15, 6
_ALLOW_MULTI = 2  # in addition to the filters of systemd and parent groups: all must allow access
_CHARACTER_DEVICE = 2
_SYSCALL = {"x86_64": 321, "aarch64": 280, "ppc64le": 361, "riscv64": 280}
# opcodes: linux/bpf_common.h and bpf.h
_LOAD_WORD, _AND, _MOVE, _JUMP_UNLESS, _EXIT = 0x61, 0x57, 0xB7, 0x55, 0x95
_ALLOW, _DENY = 1, 0


def build_program(denied: Sequence[DeviceNumber]) -> bytes:
    """Build a program that refuses to open, read, write, or create these devices, and nothing else."""
    code = [
        _instruction(_LOAD_WORD, 2, 1, 0),  # r2: device type and access type
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


def attach_filter(group: str, denied: Sequence[DeviceNumber]) -> None:
    """Attach a filter to a cgroup; raise OSError if the kernel or the rights of this process do not allow it."""
    code = build_program(denied)
    instructions = ctypes.create_string_buffer(code, len(code))
    license_ = ctypes.create_string_buffer(b"GPL")
    program = _bpf(
        _PROG_LOAD,
        struct.pack(
            "<IIQQIIQII",
            _CGROUP_DEVICE_PROGRAM,
            len(code) // 8,
            ctypes.addressof(instructions),
            ctypes.addressof(license_),
            *(0, 0, 0, 0, 0),  # no log
        ),
    )
    try:
        directory = os.open(group, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            values = (directory, program, _CGROUP_DEVICE_ATTACH, _ALLOW_MULTI)
            _bpf(_PROG_ATTACH, struct.pack("<IIII", *values))
        finally:
            os.close(directory)
    finally:
        os.close(program)  # the group keeps a reference


def _bpf(command: int, attributes: bytes) -> int:
    number = _SYSCALL.get(platform.machine())
    if number is None:
        raise OSError(0, f"the number of the bpf system call is unknown for {platform.machine()}")
    buffer = ctypes.create_string_buffer(attributes, len(attributes))
    result: int = ctypes.CDLL(None, use_errno=True).syscall(
        ctypes.c_long(number), ctypes.c_int(command), buffer, ctypes.c_uint(len(attributes))
    )
    if result < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return result
