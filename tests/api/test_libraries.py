"""Results in pandas, matplotlib, plotly, and a Jupyter kernel, each with the real library."""

import builtins
import json
import sys

import pytest

import gpuyard as gy
from tests.conftest import ROOT

COUNTS = [1, 2, 4]


class ZMQInteractiveShell:
    """The class by whose name libraries recognize a Jupyter kernel."""


@pytest.mark.soak
def test_a_table_has_the_keys_of_json_as_columns() -> None:
    import pandas

    table = gy.predict("resnet50", on="4xh100", gpus=COUNTS).to_pandas()
    assert isinstance(table, pandas.DataFrame)
    assert list(table["gpus"]) == COUNTS
    assert (table["low"] < table["samples_per_second"]).all()
    assert table["step.compute_seconds"].notna().all()
    one = gy.cost(rent="$1.50/h", buy="$8000").to_pandas()
    assert round(one["break_even_hours"][0]) == 5333
    assert len(gy.catalog.gpus().to_pandas()) == len(gy.catalog.gpus())
    assert gy.results.list().to_pandas().empty


@pytest.mark.soak
def test_matplotlib_draws_points_and_their_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPLBACKEND", "Agg")
    from matplotlib import pyplot

    axes = gy.predict("resnet50", on="4xh100", gpus=COUNTS).plot()
    (line,) = axes.lines
    assert list(line.get_xdata()) == COUNTS
    assert len(axes.collections) == 1
    axes.figure.canvas.draw()
    pyplot.close("all")


@pytest.mark.soak
def test_plotly_draws_if_matplotlib_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    figure = gy.predict("resnet50", on="4xh100", gpus=COUNTS).plot()
    (line,) = figure.data
    assert list(line.x) == COUNTS
    assert len(line.error_y.array) == len(COUNTS)
    assert "samples per second" in json.loads(figure.to_json())["layout"]["yaxis"]["title"]["text"]


def test_a_notebook_gets_text_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a kernel, rich displays what it should only format."""
    monkeypatch.setattr(builtins, "get_ipython", ZMQInteractiveShell, raising=False)
    text = str(gy.predict("resnet50", on="h100"))
    assert "1 GPU:" in text
    assert capsys.readouterr().out == ""


@pytest.mark.soak
def test_each_cell_of_the_tour_shows_one_output_in_a_real_kernel() -> None:
    import nbclient
    import nbformat

    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=600).execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    kinds = [[output.output_type for output in cell.outputs] for cell in cells]
    assert kinds == [["execute_result"]] * len(cells)
    assert sum("text/html" in cell.outputs[0].data for cell in cells) == len(cells) - 1
