"""Measurements as offline runs of Weights & Biases, which `wandb sync` uploads.

A run is a directory `offline-run-DATE-ID` with one file, `run-ID.wandb`: a header of 7 bytes, then records in LevelDB's
log format (https://github.com/google/leveldb/blob/main/doc/log_format.md, with zlib's CRC-32), each a protocol buffer
`Record` of wandb's `wandb_internal.proto`. The numbers below are those of its fields. Nothing is sent anywhere.
"""

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from gpuyard import __version__
from gpuyard.files import make_directory, replacing
from gpuyard.measure.export.runs import ExportedRun

_HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_BLOCK_BYTES = 32768
_ENTRY_BYTES = 7
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_OLDEST_READER = "0.70.0"  # what wandb itself writes: a version of the format, not of the package

# of Record
_NUM, _HISTORY, _SUMMARY, _CONTROL, _RUN, _EXIT, _HEADER_RECORD = 1, 2, 3, 16, 17, 18, 21
# of items of history, summary and config
_KEY, _VALUE_JSON = 1, 16


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 0x7F:
        written.append(value & 0x7F | 0x80)
        value >>= 7
    written.append(value)
    return bytes(written)


def _integer(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _message(field: int, content: bytes) -> bytes:
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _text(field: int, value: str) -> bytes:
    return _message(field, value.encode())


# a run and its end have an answer; without a slot for it (mailbox_slot) `wandb sync` waits for ever
_AWAITED = _message(_CONTROL, _text(4, "gpuyard"))


def write_wandb_runs(directory: Path, runs: Sequence[ExportedRun], project: str) -> list[Path]:
    """The directories of the runs; one that is there is written again, the same."""
    make_directory(directory)
    written = []
    for run in runs:
        started = datetime.fromtimestamp(run.started, UTC)
        place = directory / f"offline-run-{started:%Y%m%d_%H%M%S}-{run.id}"
        make_directory(place)
        make_directory(place / "files")
        with replacing(place / f"run-{run.id}.wandb") as file:
            for piece in log_of(_records(run, project)):
                file.write(piece)
        written.append(place)
    return written


def log_of(records: Iterable[bytes]) -> Iterator[bytes]:
    """The bytes of a file with these records: cut where a block ends."""
    yield _HEADER
    offset = len(_HEADER)
    for record in records:
        begun, left = False, record
        while left or not begun:
            room = _BLOCK_BYTES - offset % _BLOCK_BYTES
            if room < _ENTRY_BYTES:
                yield bytes(room)
                offset += room
                room = _BLOCK_BYTES
            piece, left = left[: room - _ENTRY_BYTES], left[room - _ENTRY_BYTES :]
            kind = (_MIDDLE if left else _LAST) if begun else (_FIRST if left else _FULL)
            yield struct.pack(
                "<IHB", zlib.crc32(piece, zlib.crc32(bytes([kind]))), len(piece), kind
            )
            yield piece
            offset += _ENTRY_BYTES + len(piece)
            begun = True


def _records(run: ExportedRun, project: str) -> Iterator[bytes]:
    bodies = [
        _message(_HEADER_RECORD, _message(1, _text(1, f"gpuyard {__version__}") + _text(2, _OLDEST_READER))),
        _message(_RUN, _run(run, project)) + _AWAITED,
    ]  # fmt: skip
    elapsed = 0.0
    for index, moment in enumerate(run.moments):
        elapsed += moment.seconds
        values = {
            **moment.values,
            "training_step": moment.step,
            "_step": index,
            "_runtime": elapsed,
            "_timestamp": run.started + elapsed,
        }
        items = b"".join(_message(1, _item(key, value)) for key, value in values.items())
        bodies.append(_message(_HISTORY, items + _message(2, _integer(1, index))))
    last = {
        **(run.moments[-1].values if run.moments else {}),
        **run.figures,  # of the whole run, where its last seconds have the same
        "_runtime": elapsed,
        "_step": max(0, len(run.moments) - 1),
    }
    updates = b"".join(_message(1, _item(key, value)) for key, value in last.items())
    bodies += [_message(_SUMMARY, updates), _message(_EXIT, b"") + _AWAITED]
    for number, body in enumerate(bodies, 1):
        yield _integer(_NUM, number) + body


def _run(run: ExportedRun, project: str) -> bytes:
    config = {**run.facts, "gpuyard_id": run.id}
    seconds = int(run.started)
    nanoseconds = int((run.started - seconds) * 1e9)
    return b"".join(
        (
            _text(1, run.id),
            _text(3, project),
            _message(4, b"".join(_message(1, _item(key, value)) for key, value in config.items())),
            _text(7, run.kind),
            _text(8, run.name),
            _text(10, "gpuyard"),
            _text(13, str(run.facts.get("host", ""))),
            _message(17, _integer(1, seconds) + _integer(2, nanoseconds)),
        )
    )


def _item(key: str, value: str | float) -> bytes:
    return _text(_KEY, key) + _text(_VALUE_JSON, json.dumps(value))
