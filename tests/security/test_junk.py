"""Junk for everything that reads: nothing but a `GpuyardError` ever comes of it, in 2 s and 300 MB."""

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

_MOST_BYTES = 300_000_000
_CPU_SECONDS = 2.0
_LARGEST = 2_000_000  # characters
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


def test_every_spec_is_here() -> None:
    assert set(SPECS) == set(KINDS_OF_SPECS)


def test_everything_that_reads_is_here_or_says_why_not() -> None:
    reading = re.compile(
        r"\b(DictReader|ParserCreate|from_json|frombuffer|fromfile|fromstring|genfromtxt|loads?|loadtxt"
        r"|json_of|model_validate_json|read_bytes|read_json|read_spec|read_text|read_yaml|reader)\("
    )
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if reading.search(path.read_text(encoding="utf-8").replace("def read_", ""))
    }
    listed = {name for name in READ_BY if name.endswith(".py")}
    rooms = tuple(set(READ_BY) - listed)
    unknown = {name for name in found - listed if not name.startswith(rooms)}
    assert not unknown, "say in READ_BY (readers.py) which reader comes to them, or why none does"
    assert listed <= found, "these read nothing any more"
    named = {where for where in READ_BY.values() if " " not in where}
    tests = {path.name for path in Path(__file__).parent.glob("test_*.py")}
    assert named <= set(_READERS) | tests


def _repeated(text: str, times: int) -> str:
    return text * min(times, _LARGEST // max(1, len(text)))


@st.composite
def _changed_text(draw: st.DrawFn, examples: tuple[str, ...]) -> str:
    """A text that somebody meant, and then some of it lost, doubled, moved or replaced."""
    text = draw(st.sampled_from(examples))
    for _ in range(draw(st.integers(1, 4))):
        start, end = sorted(draw(st.tuples(*[st.integers(0, len(text))] * 2)))
        junk = draw(st.sampled_from(_WORDS) | st.text(max_size=20))
        end = draw(st.sampled_from((start, min(start + 1, len(text)), end)))
        many = draw(st.sampled_from((1, 1, 2, 1000, 200_000)))
        again = draw(st.sampled_from((junk, junk, text[start:end])))
        text = (text[:start] + _repeated(again, many) + text[end:])[:_LARGEST]
    return text


@st.composite
def _changed_values(draw: st.DrawFn, examples: tuple[str, ...]) -> str:
    """The tree of values that somebody meant, with some of them replaced."""
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
        holder[key] = copy.deepcopy(value)  # the next change may be inside of it
    return json.dumps(tree[""], ensure_ascii=draw(st.booleans()), default=str)


def _junk(reader: Reader) -> st.SearchStrategy[str]:
    kinds = [
        _changed_text(reader.examples),
        _changed_text(reader.examples),
        st.text(),
        st.tuples(st.sampled_from(_WORDS), st.sampled_from((1, 50, 5_000, 200_000))).map(
            lambda word: _repeated(*word)
        ),
    ]
    if reader.structured:
        kinds += [_changed_values(reader.examples)] * 3
    return st.one_of(kinds)


class _TooLong(BaseException):
    pass


@contextlib.contextmanager
def _bounded(cpu_seconds: float = _CPU_SECONDS) -> Iterator[None]:
    """No more CPU time and memory than that, else an exception that is no `GpuyardError`."""

    def too_long(*_: object) -> None:
        raise _TooLong(f"more than {cpu_seconds:g} s of CPU time")

    before, was = resource.getrlimit(resource.RLIMIT_AS), signal.signal(signal.SIGPROF, too_long)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        used = pages * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + _MOST_BYTES, before[1]))
    signal.setitimer(signal.ITIMER_PROF, cpu_seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.signal(signal.SIGPROF, was)


def test_what_takes_too_long_or_too_much_is_seen() -> None:
    with pytest.raises(_TooLong), _bounded(cpu_seconds=0.1):
        while True:
            pass
    if sys.platform == "linux":
        with pytest.raises(MemoryError), _bounded():
            bytearray(2 * _MOST_BYTES)


def _read(reader: Reader, text: str) -> None:
    if not reader.of_file:
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


@pytest.mark.hypothesis  # as those are that `given` decorates: `make soak` runs it too
@pytest.mark.filterwarnings(
    "ignore::hypothesis.errors.HypothesisWarning"
)  # of a long text that failed
@pytest.mark.parametrize("name", _READERS)
def test_junk_is_a_mistake_and_nothing_else(name: str) -> None:
    reader = _READERS[name]
    # some are read, and now everything is imported that this needs
    read = [_is_read(reader, example) for example in reader.examples]
    assert any(read)

    # what takes too long would take far longer to shrink, and what is long is shown by its ends
    @settings(
        max_examples=_EXAMPLES,
        phases=(Phase.reuse, Phase.generate),
        suppress_health_check=list(HealthCheck),
        verbosity=Verbosity.quiet,
    )
    @given(_junk(reader))
    def check(text: str) -> None:
        try:
            with _bounded():
                _is_read(reader, text)
        except (Exception, _TooLong) as error:
            shown = text if len(text) < 1000 else f"{text[:500]} … {text[-500:]}"
            raise AssertionError(f"{len(text):,} characters: {shown!r}") from error

    check()
