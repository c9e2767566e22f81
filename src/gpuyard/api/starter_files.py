"""Write first spec files with comments, and copy the examples that are shipped with gpuyard."""

from collections.abc import Mapping
from pathlib import Path

from gpuyard import units
from gpuyard.api.starter_templates import (
    IMAGE_MODELS,
    IMAGENET_BYTES_PER_SAMPLE,
    SAMPLE_OF_CODE,
    TEMPLATES,
    VALUES,
)
from gpuyard.catalog import models, transformers
from gpuyard.catalog.short_names import find_gpu
from gpuyard.catalog.specfiles import known_names
from gpuyard.errors import UnknownName, UserMistake
from gpuyard.files import write_text
from gpuyard.specs.loading import parse_spec
from gpuyard.specs.schema import SPECS


def create_spec(kind: str, values: Mapping[str, str], file: Path | None = None) -> Path:
    """Write a spec file of this kind; values that are missing get their defaults. Return its path."""
    if kind not in VALUES:
        raise UnknownName("kind of file", kind, VALUES)
    defaults = {value.name: value.default for value in VALUES[kind]}
    for name in values:
        if name not in defaults:
            raise UserMistake(f"a {kind} has no {name!r}; it has: {', '.join(defaults)}")
    complete = {name.replace("-", "_"): value for name, value in {**defaults, **values}.items()}
    if "gpu" in complete:
        complete["gpu"] = find_gpu(complete["gpu"]).id
    path = file or Path(f"{complete['name']}.{kind}.yaml")
    model = complete.get("model", "")
    is_large = model in transformers() and model not in models()
    if is_large and (ignored := {"samples", "epochs", "batch"} & set(values)):
        raise UserMistake(
            f"--{min(ignored)} does not apply to {model}, whose runs are counted in tokens; set 'tokens' in the file"
        )
    template = TEMPLATES["large workload" if is_large and kind == "workload" else kind]
    text = template.format(
        file=path.name,
        sample=SAMPLE_OF_CODE if ":" in model else "",
        run=_describe_run(complete, is_large=is_large),
        **complete,
    )
    parse_spec(text, path, SPECS[kind], known_names())
    _check_absent(path)
    write_text(path, text)
    return path


def _describe_run(values: Mapping[str, str], *, is_large: bool) -> str:
    """Return the keys of a plan's workload that give the length of a run."""
    if is_large:
        return "  tokens: 20B"
    is_image = values.get("model", "").startswith(IMAGE_MODELS)
    stored = units.format_bytes(IMAGENET_BYTES_PER_SAMPLE)
    size = f", bytes_per_sample: {stored}" if is_image else ""
    samples, epochs = values.get("samples"), values.get("epochs")
    return f"  dataset: {{samples: {samples}{size}}}\n  epochs: {epochs}"


def _examples() -> Path:
    """Return the examples of the installed package, or those of a checkout."""
    package = Path(__file__).parent.parent
    shipped = package / "examples"
    return shipped if shipped.is_dir() else package.parent.parent / "examples"


def list_examples() -> list[str]:
    """List the example files."""
    return sorted(path.name for path in _examples().iterdir() if path.is_file())


def copy_example(name: str, directory: Path = Path()) -> list[Path]:
    """Copy an example and the files that it names; the part before the first dot suffices."""
    names = list_examples()
    chosen = [file for file in names if file == name] or [
        file for file in names if file.partition(".")[0] == name
    ]
    if not chosen:
        raise UnknownName("example", name, names)
    pending, copied = list(chosen), []
    while pending:
        file = pending.pop()
        if file in copied:
            continue
        copied.append(file)
        text = (_examples() / file).read_text(encoding="utf-8")
        pending += [other for other in names if other in text and other not in copied]
    paths = [directory / file for file in sorted(copied)]
    for path in paths:
        _check_absent(path)
    for path in paths:
        text = (_examples() / path.name).read_text(encoding="utf-8")
        lines = [line for line in text.splitlines() if "yaml-language-server" not in line]
        write_text(path, "\n".join(lines) + "\n")
    return paths


def _check_absent(path: Path) -> None:
    if path.exists():
        raise UserMistake(f"{path} already exists; name another file, or remove it first")
