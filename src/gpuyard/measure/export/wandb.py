"""Writes measurements as Weights & Biases offline runs, which `wandb sync` uploads; gpuyard itself sends nothing.

A run is a directory `offline-run-DATE-ID` with one file, `run-ID.wandb`. The file has a 7-byte header, then records in
LevelDB's log format (https://github.com/google/leveldb/blob/main/doc/log_format.md, with zlib's CRC-32). Each record is a
`Record` protocol buffer from wandb's `wandb_internal.proto`, whose field numbers appear below.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpuyard.files import create_directory, replace_file
from gpuyard.measure.export.runs import ExportedRun
from gpuyard.version import __version__

_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_BLOCK_BYTES = 32768
_ENTRY_HEADER_BYTES = 7
_ENTRY_KINDS = {  # by whether the record started earlier, and whether it continues
    (False, False): 1,  # full
    (False, True): 2,  # first
    (True, True): 3,  # middle
    (True, False): 4,  # last
}
_MIN_CONSUMER = "0.70.0"  # the value that wandb writes: a version of the format, not of the package

# field numbers of Record
_NUM, _HISTORY, _SUMMARY, _CONTROL, _RUN, _EXIT, _HEADER_RECORD = 1, 2, 3, 16, 17, 18, 21
# field numbers of the items of history, summary, and config
_KEY, _VALUE_JSON = 1, 16


def _encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _encode_integer(field: int, value: int) -> bytes:
    return _encode_varint(field << 3) + _encode_varint(value)


def _encode_message(field: int, content: bytes) -> bytes:
    return _encode_varint(field << 3 | 2) + _encode_varint(len(content)) + content


def _encode_text(field: int, value: str) -> bytes:
    return _encode_message(field, value.encode())


# `wandb sync` waits forever for the reply to a run or exit record that has no mailbox_slot
_MAILBOX_SLOT = _encode_message(_CONTROL, _encode_text(4, "gpuyard"))


def write_wandb_runs(directory: Path, runs: Sequence[ExportedRun], project: str) -> list[Path]:
    """Write each run to its own directory, replacing an earlier export of it, and return the directories."""
    create_directory(directory)
    run_directories = []
    for run in runs:
        started = datetime.fromtimestamp(run.started, UTC)
        run_directory = directory / f"offline-run-{started:%Y%m%d_%H%M%S}-{run.id}"
        create_directory(run_directory)
        create_directory(run_directory / "files")
        with replace_file(run_directory / f"run-{run.id}.wandb") as file:
            for chunk in encode_log(_encode_records(run, project)):
                file.write(chunk)
        run_directories.append(run_directory)
    return run_directories


def encode_log(records: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a log file with these records, split at block boundaries."""
    yield _HEADER
    offset = len(_HEADER)
    for record in records:
        started, remaining = False, record
        while remaining or not started:
            free = _BLOCK_BYTES - offset % _BLOCK_BYTES
            if free < _ENTRY_HEADER_BYTES:
                yield bytes(free)
                offset += free
                free = _BLOCK_BYTES
            size = free - _ENTRY_HEADER_BYTES
            chunk, remaining = remaining[:size], remaining[size:]
            kind = _ENTRY_KINDS[started, bool(remaining)]
            checksum = zlib.crc32(chunk, zlib.crc32(bytes([kind])))
            yield struct.pack("<IHB", checksum, len(chunk), kind)
            yield chunk
            offset += _ENTRY_HEADER_BYTES + len(chunk)
            started = True


def _encode_records(run: ExportedRun, project: str) -> Iterator[bytes]:
    version = _encode_text(1, f"gpuyard {__version__}") + _encode_text(2, _MIN_CONSUMER)
    bodies = [
        _encode_message(_HEADER_RECORD, _encode_message(1, version)),
        _encode_message(_RUN, _encode_run(run, project)) + _MAILBOX_SLOT,
    ]
    elapsed = 0.0
    for index, moment in enumerate(run.history):
        elapsed += moment.seconds
        values = {
            **moment.values,
            "training_step": moment.step,
            "_step": index,
            "_runtime": elapsed,
            "_timestamp": run.started + elapsed,
        }
        step = _encode_message(2, _encode_integer(1, index))
        bodies.append(_encode_message(_HISTORY, _encode_items(values) + step))
    summary = {
        **(run.history[-1].values if run.history else {}),
        **run.metrics,  # the whole run's value wins over that of its last window
        "_runtime": elapsed,
        "_step": max(0, len(run.history) - 1),
    }
    bodies += [
        _encode_message(_SUMMARY, _encode_items(summary)),
        _encode_message(_EXIT, b"") + _MAILBOX_SLOT,
    ]
    for number, body in enumerate(bodies, 1):
        yield _encode_integer(_NUM, number) + body


def _encode_run(run: ExportedRun, project: str) -> bytes:
    config = {**run.parameters, "gpuyard_id": run.id}
    seconds = int(run.started)
    nanoseconds = int((run.started - seconds) * 1e9)
    return b"".join(
        (
            _encode_text(1, run.id),
            _encode_text(3, project),
            _encode_message(4, _encode_items(config)),
            _encode_text(7, run.kind),
            _encode_text(8, run.name),
            _encode_text(10, "gpuyard"),
            _encode_text(13, str(run.parameters.get("host", ""))),
            _encode_message(17, _encode_integer(1, seconds) + _encode_integer(2, nanoseconds)),
        )
    )


def _encode_items(values: Mapping[str, str | float]) -> bytes:
    return b"".join(
        _encode_message(1, _encode_text(_KEY, key) + _encode_text(_VALUE_JSON, json.dumps(value)))
        for key, value in values.items()
    )
