"""Junk input to every reader raises nothing but `GpuyardError`, within 2 s and 300 MB."""

import contextlib
import copy
import json
import re
import resource
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, Verbosity, given, settings
from hypothesis import strategies as st

from gpuyard.errors import GpuyardError
from gpuyard.specs.loading import read_yaml
from gpuyard.specs.schema import SPECS as KINDS_OF_SPECS
from tests.security.readers import READ_BY, READERS, SOURCE, SPECS, Reader

_MAX_BYTES = 300_000_000
_CPU_SECONDS = 10.0  # a busy machine makes CPU seconds longer; quadratic readers take minutes
_MAX_CHARACTERS = 2_000_000
_SOAK = settings().max_examples > settings.get_profile("gpuyard").max_examples
_EXAMPLES = settings().max_examples if _SOAK else 20

_WORDS = (
    "", " ", "\t", "\r", "\n", "\0", "\x1b]52;c;AAAA\x07", "\x85", "\u2028", "\ufeff", "\u202e", "\ud800", "\udcff",
    "�", "é", "漢字", "🖥️", "²", "٣", "１２", "½", "×", "–", "$", "%", "/", "|", ",", ";", ":", "=", "..", "@", "x",
    "0", "-1", "1e30", "1e308", "1e400", "-1e400", "1e-400", "nan", "inf", ".nan", "-.inf", "Infinity", "9" * 20,
    "9" * 400, "9" * 5000, "0x" + "f" * 400, "1_000", "0.1e", "2020-99-99", "9999-12-31", "0000-00-00", "NaT",
    "1 s", "1 MB", "10 Gbit/s", "$1/h", "true", "null", "~", "none", "None", "a.yaml", "../../etc/passwd", "/dev/zero",
    "&a ", "*a", "<<: *a", "&a [*a]", "&a {<<: *a}", "!!python/object:os.system", "!!timestamp 1", "---\n", "? ", "- ",
    "[", "]", "{", "}", "'", '"', "\\", "\\ud800", "#", "<", ">", "&#10;", "&amp;", "<a>", "</a>", "]]>", "<!--",
    "<!DOCTYPE a [<!ENTITY b 'c'>]>", "<object>", "GPU0", "GPU99", "GPU" + "9" * 400, "NV4", "NV999", "X", "SYS", "N/A",
    "gres/gpu=8", "SQLite format 3\0", "(", ")", "resnet50", "os:abort",
)  # fmt: skip
_VALUES: tuple[Any, ...] = (
    None, True, 0, -1, 1, 10**30, 10**39, 0.5, 1e300, float("inf"), float("nan"), [], {}, [[]], [None], {"": 0}, [0] * 999,
    {"a": {"b": 1}}, *_WORDS,
)  # fmt: skip
_READERS = {reader.name: reader for reader in READERS}


def test_every_spec_kind_is_tested() -> None:
    assert set(SPECS) == set(KINDS_OF_SPECS)


def test_every_module_that_reads_is_tested_or_exempt() -> None:
    reading = re.compile(
        r"\b(DictReader|ParserCreate|from_json|frombuffer|fromfile|fromstring|genfromtxt|loads?|loadtxt"
        r"|parse_json|model_validate_json|read_bytes|read_json|read_spec|read_text|read_yaml|reader)\("
    )
    readers = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if reading.search(path.read_text(encoding="utf-8").replace("def read_", ""))
    }
    listed = {name for name in READ_BY if name.endswith(".py")}
    folders = tuple(set(READ_BY) - listed)
    unknown = {name for name in readers - listed if not name.startswith(folders)}
    assert not unknown, (
        "add these to READ_BY (readers.py): the reader that tests them, or why none does"
    )
    assert listed <= readers, "remove these from READ_BY: they no longer read"
    named = {reader for reader in READ_BY.values() if " " not in reader}
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert named <= set(_READERS) | tests


def _repeat(text: str, times: int) -> str:
    return text * min(times, _MAX_CHARACTERS // max(1, len(text)))


@st.composite
def _changed_text(draw: st.DrawFn, examples: tuple[str, ...]) -> str:
    """Take a valid text and remove, repeat, or replace parts of it."""
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        junk = draw(st.sampled_from(_WORDS) | st.text(max_size=20))
        end = draw(st.sampled_from((start, min(start + 1, len(text)), end)))
        times = draw(st.sampled_from((1, 1, 2, 1000, 200_000)))
        inserted = draw(st.sampled_from((junk, junk, text[start:end])))
        text = (text[:start] + _repeat(inserted, times) + text[end:])[:_MAX_CHARACTERS]
    return text


@st.composite
def _changed_values(draw: st.DrawFn, examples: tuple[str, ...]) -> str:
    """Take a valid tree of values and replace some of them."""
    tree = {"": read_yaml(draw(st.sampled_from(examples)), "example")}
    for _ in range(draw(st.integers(1, 3))):
        holder: Any = tree
        key: Any = ""
        while isinstance(holder[key], dict | list) and holder[key]:
            holder, inside = holder[key], holder[key]
            keys = list(inside) if isinstance(inside, dict) else list(range(len(inside)))
            key = draw(st.sampled_from(keys))
            if draw(st.integers(0, 4)) == 0:
                break
        value = draw(st.sampled_from(_VALUES) | st.floats() | st.integers() | st.text())
        holder[key] = copy.deepcopy(value)  # the next change may be inside it
    return json.dumps(tree[""], ensure_ascii=draw(st.booleans()), default=str)


def _junk(reader: Reader) -> st.SearchStrategy[str]:
    kinds = [
        _changed_text(reader.examples),
        _changed_text(reader.examples),
        st.text(),
        st.tuples(st.sampled_from(_WORDS), st.sampled_from((1, 50, 5_000, 200_000))).map(
            lambda word: _repeat(*word)
        ),
    ]
    if reader.structured:
        kinds += [_changed_values(reader.examples)] * 3
    return st.one_of(kinds)


class _TimeExceeded(BaseException):
    pass


@contextlib.contextmanager
def _limit_resources(cpu_seconds: float = _CPU_SECONDS) -> Iterator[None]:
    """Limit CPU time and memory; exceeding them raises an exception other than `GpuyardError`."""

    def raise_time_exceeded(*_: object) -> None:
        raise _TimeExceeded(f"more than {cpu_seconds:g} s of CPU time")

    memory_limit, handler = (
        resource.getrlimit(resource.RLIMIT_AS),
        signal.signal(signal.SIGPROF, raise_time_exceeded),
    )
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        used = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MAX_BYTES, memory_limit[1]))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, memory_limit)
        signal.signal(signal.SIGPROF, handler)


def test_exceeding_the_limits_is_detected() -> None:
    with pytest.raises(_TimeExceeded), _limit_resources(cpu_seconds=0.1):
        while True:
            pass
    if sys.platform == "linux":
        with pytest.raises(MemoryError), _limit_resources():
            bytearray(2 * _MAX_BYTES)


def _read(reader: Reader, text: str) -> None:
    if not reader.reads_file:
        reader.read(text)
        return
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / f"junk.{reader.name}"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        reader.read(str(path))


def _is_read(reader: Reader, text: str) -> bool:
    try:
        _read(reader, text)
    except GpuyardError:
        return False
    return True


@pytest.mark.hypothesis  # like tests that `given` decorates, so `make soak` runs it too
# a long text that failed causes this warning
@pytest.mark.filterwarnings("ignore::hypothesis.errors.HypothesisWarning")
@pytest.mark.parametrize("name", _READERS)
def test_junk_raises_only_gpuyard_errors(name: str) -> None:
    reader = _READERS[name]
    # this also imports everything that the reader needs
    readable = [_is_read(reader, example) for example in reader.examples]
    assert any(readable)

    # a slow example would take far longer to shrink, and a long one is shortened in the error
    @settings(
        max_examples=_EXAMPLES,
        phases=(Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(_junk(reader))
    def check(text: str) -> None:
        try:
            with _limit_resources():
                _is_read(reader, text)
        except (Exception, _TimeExceeded) as error:
            excerpt = text if len(text) < 1000 else f"{text[:500]} … {text[-500:]}"
            raise AssertionError(f"{len(text):,} characters: {excerpt!r}") from error

    check()
