"""`gpuyard data`: datasets that the built-in workloads train on."""

from pathlib import Path
from typing import Annotated

import typer

from gpuyard.choices import Dataset
from gpuyard.cli.output import JsonOption, progress_bar, show

app = typer.Typer(
    help="Fetch the datasets of the built-in workloads, or create images.", no_args_is_help=True
)


@app.command()
def fetch(
    dataset: Annotated[Dataset, typer.Argument(metavar="NAME", help="Dataset.")],
    *,
    from_directory: Annotated[
        Path | None,
        typer.Option("--from", metavar="SOURCE", help="Directory to import the clips from."),
    ] = None,
) -> None:
    """Fetch a dataset into gpuyard's home; the Free Spoken Digit Dataset is CC BY-SA 4.0.

    Example: gpuyard data fetch spoken-digits --from ~/free-spoken-digit-dataset/recordings
    """
    from gpuyard.files import dataset_directory
    from gpuyard.report.terminal import print_line
    from gpuyard.workloads.digit_clips import import_clips

    target = dataset_directory(dataset)
    if from_directory is not None:
        count = import_clips(from_directory, target)
    else:
        count = _download(target)
    print_line(f"{count} clips in {target}", stderr=False)


@app.command()
def make(
    directory: Annotated[
        Path, typer.Argument(help="Directory for the images; created if it does not exist.")
    ],
    *,
    images: Annotated[
        int, typer.Option(help="Number of images of 115 kB, ImageNet's average.", metavar="N")
    ] = 2048,
    json_output: JsonOption = False,
) -> None:
    """Create images of ImageNet's size, in archives that training and storage benches read.

    Existing images are kept, so you can run it again, even after it was killed.

    Example: gpuyard data make ./imagenet-shaped --images 512
    """
    from gpuyard.measure.progress import ProgressMeter
    from gpuyard.report.answer import Answer, Sentence
    from gpuyard.units import format_bytes
    from gpuyard.workloads.image_generation import generate_images

    meter = ProgressMeter([directory])
    with progress_bar("creating images") as on_progress:
        archive = generate_images(
            directory,
            images,
            lambda share: on_progress(meter.advance(directory, share, "creating images")),
        )
    size = f"{archive.images:,} images in {directory}, {format_bytes(archive.size_bytes)}"
    new = f"{archive.created:,} of them new" if archive.created else "all existed already"
    document = {
        "directory": str(directory),
        "images": archive.images,
        "created": archive.created,
        "bytes": archive.size_bytes,
    }
    show(Answer([Sentence(f"{size}; {new}.")], document, verb="data make"), json_output=json_output)


def _download(target: Path) -> int:
    from gpuyard.measure.progress import ProgressMeter, ProgressUpdate
    from gpuyard.units import format_bytes
    from gpuyard.workloads.digit_clips import fetch_clips

    meter = ProgressMeter([target])
    with progress_bar("fetching") as on_progress:

        def report(done: int, total: int | None) -> None:
            text = f"fetching: {format_bytes(done)}"
            on_progress(
                meter.advance(target, done / total, text) if total else ProgressUpdate(text)
            )

        return fetch_clips(target, report)
