"""`gpuyard data`: datasets that the built-in workloads train on."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.cli.output import JsonOption, progress_bar, show
from gpuyard.errors import UnknownName

app = typer.Typer(
    help="Fetch the datasets of the built-in workloads, or make images.", no_args_is_help=True
)


@app.command()
def fetch(
    name: Annotated[str, typer.Argument(help="spoken-digits")],
    *,
    from_directory: Annotated[
        Path | None,
        typer.Option("--from", metavar="DIRECTORY", help="Import the clips from this directory."),
    ] = None,
) -> None:
    """Fetch a dataset into gpuyard's home; the Free Spoken Digit Dataset is CC BY-SA 4.0.

    Example: gpuyard data fetch spoken-digits --from ~/free-spoken-digit-dataset/recordings
    """
    if name != "spoken-digits":
        raise UnknownName("dataset", name, ["spoken-digits"])
    from gpuyard.files import dataset_directory
    from gpuyard.report.terminal import say
    from gpuyard.workloads.digit_clips import import_clips

    target = dataset_directory(name)
    if from_directory is not None:
        count = import_clips(from_directory, target)
    else:
        count = _download(target)
    say(f"{count} clips in {target}", stderr=False)


@app.command()
def make(
    directory: Annotated[Path, typer.Argument(help="Where they go; it is made if it is missing.")],
    *,
    images: Annotated[
        int, typer.Option(help="How many: 115 kB each, as ImageNet's are.", metavar="N")
    ] = 2048,
    json_output: JsonOption = False,
) -> None:
    """Make images of ImageNet's size, in archives that training and storage benches read.

    Images that exist already are kept, so it can be run again, also after it was killed.

    Example: gpuyard data make ./imagenet-shaped --images 512
    """
    from gpuyard.measure.progress import ProgressMeter
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.units import format_bytes
    from gpuyard.workloads.made_images import make_images

    meter = ProgressMeter([directory])
    with progress_bar("making images") as tell:
        found = make_images(
            directory, images, lambda share: tell(meter.at(directory, share, "making images"))
        )
    words = f"{found.images:,} images in {directory}, {format_bytes(found.size_bytes)}"
    new = "all were there" if not found.made else f"{found.made:,} of them new"
    document = {
        "directory": str(directory),
        "images": found.images,
        "made": found.made,
        "bytes": found.size_bytes,
    }
    show(
        Answer([Sentence(f"{words}; {new}.")], document, verb="data make"), json_output=json_output
    )


def _download(target: Path) -> int:
    from gpuyard.measure.progress import ProgressMeter, ProgressUpdate
    from gpuyard.units import format_bytes
    from gpuyard.workloads.digit_clips import fetch_clips

    meter = ProgressMeter([target])
    with progress_bar("fetching") as tell:

        def arrived(done: int, total: int | None) -> None:
            what = f"fetching: {format_bytes(done)}"
            tell(meter.at(target, done / total, what) if total else ProgressUpdate(what))

        return fetch_clips(target, arrived)
