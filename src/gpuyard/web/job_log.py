"""The log of a job for a page: all of it in parts of bounded size, or its end while it grows."""

import asyncio
import codecs
import contextlib
import json
import os
import re
import signal
import subprocess
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Any

from gpuyard.errors import UserMistake
from gpuyard.jobs.job import Handle
from gpuyard.printable import make_printable
from gpuyard.web.acting import Action, start_stream
from gpuyard.web.auth import Identity, may_continue

_CHUNK_BYTES = 65_536
_MAX_LINE = 1_000_000
_GATHER_SECONDS = 0.1
MAX_TAIL = 400_000
"""Bytes of a log that a page keeps."""
_CUT = "… earlier lines: see the whole log"
_TERMINAL_CODES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


def clean_log(text: str) -> str:
    """Remove what only a terminal understands."""
    plain = _TERMINAL_CODES.sub("", text).replace("\r\n", "\n").replace("\r", "\n")
    return make_printable(plain)


def clean_lines(chunks: Iterable[str], wanted: str) -> Iterator[str]:
    """Yield the cleaned lines with the wanted text, many at a time, so that a log of any length needs little memory."""
    partial_line = ""
    for chunk in chunks:
        complete, line_feed, partial_line = (partial_line + chunk).rpartition("\n")
        if len(partial_line) > _MAX_LINE:
            complete, line_feed, partial_line = f"{complete}{line_feed}{partial_line}", "\n", ""
        yield _select_lines(complete + line_feed, wanted)
    yield _select_lines(partial_line, wanted)


def _select_lines(text: str, wanted: str) -> str:
    cleaned = clean_log(text)
    if not wanted:
        return cleaned
    return "".join(line for line in cleaned.splitlines(keepends=True) if wanted in line.lower())


def read_log(owner: Identity, handle: str) -> Iterator[str]:
    parsed = Handle.parse(handle)
    if owner.is_own:
        from gpuyard.jobs.engines.base import load_engine

        yield from load_engine(parsed.engine).logs(parsed, False)
        return
    process = start_stream(owner, Action(("logs", str(parsed))))
    assert process.stdout is not None  # noqa: S101 - for the type checker
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    try:
        first = process.stdout.read(_CHUNK_BYTES)
        if len(first) < _CHUNK_BYTES and process.wait():
            raise UserMistake(first.decode(errors="replace").removeprefix("gpuyard: ").strip())
        yield decoder.decode(first)
        while chunk := process.stdout.read(_CHUNK_BYTES):
            yield decoder.decode(chunk)
    finally:
        stop_process(process)


def stop_process(process: "subprocess.Popen[bytes]") -> None:
    """Kill a stream's process group, and wait for its end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    if process.stdout is not None:
        process.stdout.close()
    process.wait()


async def follow_log(request: Any, process: "subprocess.Popen[bytes]") -> AsyncIterator[str]:
    """Yield what arrives as events, at most ten per second. If more arrives than a page keeps, only its end is sent.

    The caller then removes the loop's reader of the output, because a generator may be dropped before it ends.
    """
    assert process.stdout is not None  # noqa: S101 - for the type checker
    loop = asyncio.get_running_loop()
    descriptor = process.stdout.fileno()
    tail, arrived = LogTail(), asyncio.Event()
    os.set_blocking(descriptor, False)

    def read() -> None:
        with contextlib.suppress(BlockingIOError):
            chunk = os.read(descriptor, _CHUNK_BYTES)
            tail.add(chunk)
            if not chunk:
                loop.remove_reader(descriptor)
        arrived.set()

    loop.add_reader(descriptor, read)
    while may_continue(request):
        try:
            await asyncio.wait_for(arrived.wait(), 5.0)
        except TimeoutError:
            if await request.is_disconnected():
                return
            yield ": still there\n\n"
            continue
        await asyncio.sleep(_GATHER_SECONDS)
        arrived.clear()
        if text := clean_log(tail.take()):
            yield f"event: log\ndata: {json.dumps(text)}\n\n"
        if tail.is_complete:
            yield "event: end\ndata: end\n\n"
            return


class LogTail:
    """The end of what was read and not yet taken: a fast job and a slow reader must not fill the memory."""

    def __init__(self) -> None:
        self._bytes = bytearray()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._is_cut = False
        self.is_complete = False
        """True after the end of the file."""

    def add(self, chunk: bytes) -> None:
        """Add what was read; nothing is the end."""
        self.is_complete = not chunk
        self._bytes += chunk
        if len(self._bytes) > MAX_TAIL:
            del self._bytes[:-MAX_TAIL]
            self._is_cut = True

    def take(self) -> str:
        """Return the text since the last call; if some was left out, it begins with a whole line that says so."""
        content, is_cut = bytes(self._bytes), self._is_cut
        self._bytes.clear()
        self._is_cut = False
        if is_cut:
            self._decoder.reset()
            content = content[content.find(b"\n") + 1 :]
        text = self._decoder.decode(content, final=self.is_complete)
        return f"{_CUT}\n{text}" if is_cut else text
