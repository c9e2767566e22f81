"""The results of the API: rows with attributes, which print, draw, and export themselves."""

import io
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, is_dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from gpuyard.errors import MissingRequirement, UserMistake
from gpuyard.report.answer import Answer, format_json, replace_nonfinite

if TYPE_CHECKING:
    import pandas

    from gpuyard.api.plotting import Plot

R = TypeVar("R")
_MAX_TERMINAL_COLUMNS = 120


class Row(Mapping[str, Any]):
    """A part of a JSON document whose keys are also attributes: `row.cost.total_usd`."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in self._document:
            raise AttributeError(f"no {name!r} here; there are: {', '.join(self._document)}")
        return wrap(self._document[name])

    def __getitem__(self, name: str) -> Any:
        return wrap(self._document[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._document)

    def __len__(self) -> int:
        return len(self._document)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._document]

    def __repr__(self) -> str:
        return f"Row({dict(self._document)!r})"


def wrap(value: Any) -> Any:
    """Give the keys of mappings as attributes, also inside lists."""
    if isinstance(value, Mapping):
        return Row(value)
    return [wrap(item) for item in value] if isinstance(value, list | tuple) else value


class Result(Generic[R]):
    """The answer to a question, as the command line also gives it.

    Iterate over it for its rows. All keys of the command's `--json` are attributes, and `print` shows the text that the
    command prints, with parameters instead of options.
    """

    def __init__(
        self,
        answer: Answer,
        rows: Sequence[R] = (),
        *,
        plot: "Callable[[], Plot] | None" = None,
        explain: "Callable[[], Result[Any]] | None" = None,
        draw: Callable[[], str] | None = None,
    ) -> None:
        self.answer = answer
        self.rows = rows
        self._plot, self._explain, self._draw = plot, explain, draw

    def to_dict(self) -> Any:
        """Return the document that the command prints with `--json`."""
        return replace_nonfinite(self.answer.document)

    def to_json(self) -> str:
        """Return the text that the command prints with `--json`."""
        return format_json(self.answer.document)

    def to_pandas(self) -> "pandas.DataFrame":
        """Return the rows as a pandas table; nested keys are joined with a dot."""
        document = self.to_dict()
        one = [document] if isinstance(document, Mapping) else []
        return table_from_records([row_document(row) for row in self.rows] or one)

    def plot(self) -> Any:
        """Plot the result with matplotlib (returns its axes) or, without it, with plotly (returns a figure)."""
        if self._plot is None:
            raise UserMistake("this answer has no plot; to_pandas() gives its rows")
        from gpuyard.api.plotting import draw_plot

        return draw_plot(self._plot())

    def why(self) -> "Result[Any]":
        """Return the explanation of this result."""
        if self._explain is None:
            raise UserMistake("this answer has no further explanation")
        return self._explain()

    def svg(self) -> str:
        """Return the drawing of this result."""
        if self._draw is None:
            raise UserMistake("this answer has no drawing")
        return self._draw()

    def _repr_html_(self) -> str:
        from gpuyard.api.parameters import answer_with_parameters
        from gpuyard.report.html import render_fragment

        return render_fragment(answer_with_parameters(self.answer))

    def __str__(self) -> str:
        from gpuyard.api.parameters import answer_with_parameters
        from gpuyard.report.terminal import print_answer, text_console

        text = io.StringIO()
        columns = min(shutil.get_terminal_size().columns, _MAX_TERMINAL_COLUMNS)
        print_answer(answer_with_parameters(self.answer), out=text_console(text, columns))
        return text.getvalue().rstrip("\n").replace("(--wide)", "(.to_pandas() has them)")

    __repr__ = __str__

    def __getattr__(self, name: str) -> Any:
        document = self.__dict__["answer"].document if "answer" in self.__dict__ else {}
        if not name.startswith("__") and isinstance(document, Mapping) and name in document:
            return wrap(document[name])
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __dir__(self) -> list[str]:
        document = self.answer.document
        return [*super().__dir__(), *(document if isinstance(document, Mapping) else ())]

    def __iter__(self) -> Iterator[R]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> R: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[R]: ...
    def __getitem__(self, index: int | slice) -> R | Sequence[R]:
        return self.rows[index]

    def __bool__(self) -> bool:
        return True  # an answer without rows is still an answer


def row_document(row: Any) -> dict[str, Any]:
    """Return a row as the dictionary that `--json` prints."""
    if is_dataclass(row) and not isinstance(row, type):
        return asdict(row)
    return dict(row._document) if isinstance(row, Row) else dict(row)


def table_from_records(records: Sequence[Mapping[str, Any]]) -> "pandas.DataFrame":
    """Return a pandas table, or say how to get pandas."""
    try:
        import pandas
    except ImportError:
        raise MissingRequirement(
            "to_pandas() needs pandas, which is not installed: pip install pandas"
        ) from None
    return pandas.json_normalize([dict(record) for record in records])
