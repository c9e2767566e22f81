"""The documentation is correct: its commands run, its links resolve, and its tables are complete."""

import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import typer
from ruamel.yaml import YAML

from gpuyard.api.predict import predict
from gpuyard.catalog.specfiles import read_deployment
from gpuyard.cli.app import app
from gpuyard.deploy.targets import TARGETS
from gpuyard.predictor import STRATEGIES, constants
from gpuyard.predictor.constants import Constant, load_tuning
from gpuyard.specs.schema import SPECS
from tests.command_line import Done, run_here, run_program
from tests.conftest import MACHINE

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
MEASURING = ("gpuyard accept", "gpuyard bench", "gpuyard lab", "gpuyard study", "gpuyard train")
LINKING = [*PAGES, ROOT / "ARCHITECTURE.md", ROOT / "CHANGELOG.md"]

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ROOT_MARK = re.compile(r"<!-- needs root -->\s*\Z")
_FILE_MARK = re.compile(r"<!-- file: (\S+) -->\s*\Z")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Fence:
    """A fenced block, with a file name if the page tells the reader to write that file."""

    line: int
    language: str
    text: str
    file: str | None
    needs_root: bool = False


@dataclass(frozen=True)
class Step:
    """A command in a console block, and the output lines that the page shows for it."""

    command: str
    shown: tuple[str, ...]


def fences(page: Path) -> list[Fence]:
    text = page.read_text(encoding="utf-8")
    blocks = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()]
        mark = _FILE_MARK.search(before)
        line = before.count("\n") + 1
        needs_root = _ROOT_MARK.search(before) is not None
        blocks.append(Fence(line, match[1], match[2], mark[1] if mark else None, needs_root))
    return blocks


def steps(block: Fence) -> list[Step]:
    parsed: list[Step] = []
    for line in block.text.splitlines():
        if line.startswith("$ "):
            parsed.append(Step(line[2:], ()))
        else:
            assert parsed, f"a console block must start with a command, got {line!r}"
            parsed[-1] = Step(parsed[-1].command, (*parsed[-1].shown, line))
    return parsed


def named(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def measures(command: str) -> bool:
    return command.startswith(MEASURING) and "--dry-run" not in command


CONSOLE_BLOCKS = [
    pytest.param(
        page,
        block,
        id=f"{named(page)}:{block.line}",
        marks=[MACHINE] if any(measures(step.command) for step in steps(block)) else [],
    )
    for page in PAGES
    for block in fences(page)
    if block.language == "console"
]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Create the reader's directory with the examples."""
    directory = tmp_path / "checkout"
    shutil.copytree(ROOT / "examples", directory / "examples")
    return directory


@pytest.mark.parametrize(("page", "block"), CONSOLE_BLOCKS)
def test_console_block_runs_and_prints_what_is_shown(
    page: Path, block: Fence, checkout: Path, request: pytest.FixtureRequest
) -> None:
    if block.needs_root:
        request.getfixturevalue("can_make_labs")
    for fence in fences(page):
        if fence.file is not None:
            (checkout / fence.file).write_text(fence.text, encoding="utf-8")
    for step in steps(block):
        done = run(step.command, checkout)
        output = done.stdout + done.stderr
        fails = any(line.startswith("gpuyard:") for line in step.shown)
        assert (done.returncode != 0) == fails, f"{step.command}: {done.returncode}\n{output}"
        assert "Traceback" not in output
        for line in step.shown:
            for piece in line.split("…"):  # the text around an ellipsis must be present
                assert piece.strip() in output, f"{piece!r} is not in\n{output}"


def run(command: str, directory: Path) -> Done:
    """Run a command without a shell; only comments and `> FILE` are supported."""
    words = shlex.split(command, comments=True)
    target = None
    if ">" in words:
        words, (_, target) = words[: words.index(">")], words[words.index(">") :]
    # the pages show a machine without GPUs; an outer `make` passes its flags to an inner one
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    # pages say `python`, which many systems have only in a virtual environment
    path = f"{Path(sys.executable).parent}{os.pathsep}{environment['PATH']}"
    environment |= {"CUDA_VISIBLE_DEVICES": "", "NO_COLOR": "1", "PATH": path}
    match words[0]:
        case "gpuyard":
            done = run_here(*words[1:], cwd=directory, environment=environment)
        case "make":
            # a dry run only checks that the target exists, because `make test` would run this test again
            done = run_program("make", "-n", *words[1:], cwd=ROOT, environment=environment)
        case "cat":
            done = run_program(*words, cwd=directory, environment=environment)
        case program:
            pytest.fail(f"the tests don't run {program}: put it into an `sh` block")
    if target is not None:
        (directory / target).write_text(done.stdout, encoding="utf-8")
    return done


def test_the_first_commands_of_the_readme() -> None:
    first = next(block for block in fences(ROOT / "README.md") if block.language == "console")
    assert [step.command for step in steps(first)] == ["make study", "make test"]


def sections(page: Path) -> dict[str, str]:
    parts = re.split(r"^## (.+)\n", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def test_the_readme_quotes_the_interval_of_a_default_prediction() -> None:
    largest = predict("resnet50", on="8xh100")[-1]
    low, high = (bound / largest.samples_per_second - 1 for bound in (largest.low, largest.high))
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"−{-low:.0%} to +{high:.0%}" in readme


def commands(command: Any, path: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every command and group with the names of its options."""
    names = {n for p in command.params if p.param_type_name == "option" for n in p.opts}
    negations = {n for p in command.params for n in p.secondary_opts}
    yield path, names | negations
    if hasattr(command, "list_commands"):
        context = typer.Context(command)
        for name in command.list_commands(context):
            yield from commands(command.get_command(context, name), f"{path} {name}")


COMMANDS = dict(commands(typer.main.get_command(app), "gpuyard"))
DEFAULT_COMMANDS = {"gpuyard facility": "design", "gpuyard reserve": "new"}


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_only_shown_exist_with_their_options(page: Path) -> None:
    for block in fences(page):
        if block.language != "sh":
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            words = shlex.split(re.split(r" (?:--|[|&]+) ", line)[0], comments=True)
            if " ".join(words[:2]) in DEFAULT_COMMANDS and " ".join(words[:3]) not in COMMANDS:
                words.insert(2, DEFAULT_COMMANDS[" ".join(words[:2])])
            if words[:1] != ["gpuyard"]:
                continue
            prefixes = [" ".join(words[:length]) for length in (4, 3, 2, 1)]
            command = next(prefix for prefix in prefixes if prefix in COMMANDS)
            options = {word.partition("=")[0] for word in words if word.startswith("--")}
            assert options <= COMMANDS[command] | {"--help"}, f"{named(page)}: {line}"


def test_the_reference_is_current() -> None:
    command = [sys.executable, str(ROOT / "scripts" / "write_reference.py"), "--check"]
    done = run_program(*command, cwd=ROOT, environment=dict(os.environ))
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("spec", SPECS)
def test_every_key_of_a_spec_has_a_meaning(spec: str) -> None:
    section = sections(DOCS / "reference" / "specs.md")[spec.capitalize()]
    rows = re.findall(r"^\| `([^`]+)` \|[^|]*\| ([^|]*)", section, re.MULTILINE)
    assert len(rows) >= len(SPECS[spec].model_fields)
    assert [key for key, meaning in rows if not meaning.strip()] == []


def all_constants() -> Iterator[Constant]:
    for value in vars(constants).values():
        for entry in value.values() if isinstance(value, dict) else [value]:
            if isinstance(entry, Constant):
                yield entry
    for strategy in STRATEGIES.values():
        yield from strategy.constants
        yield from (strategy.overlap(load_tuning()), strategy.overlap_between(load_tuning()))
        yield from strategy.slowdowns(load_tuning())


@pytest.mark.parametrize(
    "constant", sorted(set(all_constants()), key=str), ids=lambda c: f"{c.name}={c.value:g}"
)
def test_the_page_on_predictions_has_every_constant(constant: Constant) -> None:
    section = sections(DOCS / "reference" / "predict.md")["Constants"]
    rows = re.findall(rf"^\| `{constant.name}` \| (.*?) \|", section, re.MULTILINE)
    value = constant.value
    forms = {f"{value:g}", f"{value / 2**20:g} MiB", f"{value * 1e6:g} µs"}
    forms |= {"1/3"} if value == 1 / 3 else set()
    assert any(re.search(rf"(?<![\d.]){re.escape(f)}(?![\d.])", row) for row in rows for f in forms)


@pytest.mark.parametrize("page", LINKING, ids=named)
def test_every_link_and_image_exists(page: Path) -> None:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in _LINK.findall(re.sub(r"`[^`\n]*`", "", text)):
        if target.startswith("https://"):
            continue
        path, _, fragment = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        assert linked.exists(), f"{named(page)} links to {target}"
        if DOCS in page.parents:
            assert DOCS in linked.parents, f"{target} is not part of the site"
        if fragment:
            assert fragment in anchors(linked), f"{named(page)} links to {target}"


def anchors(page: Path) -> set[str]:
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title).strip().lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("kind", sorted(TARGETS))
def test_every_deploy_target_has_a_page_with_a_complete_example(kind: str, tmp_path: Path) -> None:
    page = DOCS / f"deploy-{kind}.md"
    shown = next(fence.text for fence in fences(page) if fence.language == "yaml")
    named_file = shown.split()[1]
    (tmp_path / named_file).write_text(shown, encoding="utf-8")
    described = read_deployment(tmp_path / named_file)
    assert described.target.kind == kind
    assert described == read_deployment(ROOT / "examples" / named_file)


def test_the_site_has_every_page() -> None:
    def pages(entry: Any) -> Iterator[str]:
        if isinstance(entry, str):
            yield entry
        else:
            for inner in entry.values() if isinstance(entry, dict) else entry:
                yield from pages(inner)

    site = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    in_nav = list(pages(site["nav"]))
    assert sorted(in_nav) == sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))


def test_no_level_of_the_site_has_more_than_nine_entries() -> None:
    def levels(entries: list[Any]) -> Iterator[list[Any]]:
        yield entries
        for entry in entries:
            if isinstance(entry, dict) and isinstance(inner := next(iter(entry.values())), list):
                yield from levels(inner)

    site = YAML(typ="safe").load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert max(len(level) for level in levels(site["nav"])) <= 9


def test_no_text_names_a_path_of_one_machine() -> None:
    path_of_one_machine = re.compile(r"(?<![\w.~-])/(?:root|home|Users|work)/|\.\./shared")
    texts = [*LINKING, *(p for p in (ROOT / "src").rglob("*") if p.is_file())]
    matches = [
        f"{named(path)}: {match[0]}"
        for path in texts
        if "__pycache__" not in path.parts
        for match in path_of_one_machine.finditer(path.read_text(encoding="utf-8", errors="ignore"))
    ]
    assert not matches
