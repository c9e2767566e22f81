"""Results: measured runs and sweeps, each as a page and as one file, and predictions against published measurements."""

import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import BaseModel, Field

import gpuyard as gy
from gpuyard.report.answer import Answer
from gpuyard.report.html import find_numeric_columns, list_column_names, render_page
from gpuyard.report.kept import list_reports, read_report
from gpuyard.table import Table
from gpuyard.web.acting import NotPermitted
from gpuyard.web.auth import Identity
from gpuyard.web.page import Computed, render, render_json
from gpuyard.web.work_limit import heavy

router = APIRouter()
_VALIDATION = "validation"
_ID = re.compile(r"[0-9a-f]{6,64}")
_MAX_ROWS = 500


class ResultsQuery(BaseModel):
    """The parameters of the list."""

    kind: Annotated[str, Field(max_length=20, description="default: the first with results")] = ""
    workload: Annotated[str, Field(max_length=200)] = ""


def list_results(query: ResultsQuery, identity: Identity) -> tuple[Answer, Computed]:
    """Return the list as `gpuyard results list` prints it."""
    _check_owner(identity)
    kind = choose_kind(query)
    answer = gy.results.list(kind, workload=query.workload or None).answer
    words = ["results", "list", "--kind", kind]
    words += ["--workload", query.workload] if query.workload else []
    return answer, Computed(
        words,
        ("The page shows the newest first; the command, the oldest first.",),
        "docs/measure.md",
    )


def choose_kind(query: ResultsQuery) -> str:
    """Return the kind of the query, or the first that has results."""
    from gpuyard.measure.registry import get_result_kind

    return get_result_kind(query.kind or next(iter(gy.results.count()), "train")).name


def _check_owner(identity: Identity) -> None:
    """Results belong to the user who measured them."""
    if not identity.is_own:
        raise NotPermitted(
            "these are the results of the user who runs this server; see yours with: gpuyard results list"
        )


@router.get("/results", include_in_schema=False)
def show_results(request: Request, query: Annotated[ResultsQuery, Query()]) -> Response:
    from gpuyard.measure.registry import RESULT_KINDS

    answer, computed = list_results(query, request.state.identity)
    table = next((part for part in answer.parts if isinstance(part, Table)), None)
    ids = [row.get("id", "") for row in answer.document]
    kind = choose_kind(query)
    rows = list(zip(ids, table.rows if table else (), strict=False))[-_MAX_ROWS:]
    return render(
        request,
        "results.html.jinja",
        view="results",
        title="Results",
        title_of_kind=table.title if table else "",
        columns=list_column_names(table) if table else (),
        numeric=find_numeric_columns(table) if table else (),
        rows=rows[::-1],
        total=len(ids),
        computed=computed,
        query=query,
        kind=kind,
        kinds=list(RESULT_KINDS),
        counts=gy.results.count(),
        reports=list_reports(),
        command=RESULT_KINDS[kind].command,
    )


@router.get("/results.json", summary="Stored measurements of a kind")
def get_results(request: Request, query: Annotated[ResultsQuery, Query()]) -> Response:
    """Return what `gpuyard results list --json` prints."""
    return render_json(list_results(query, request.state.identity)[0].document)


IdQuery = Annotated[str, Query(pattern=_ID.pattern, max_length=64, description="ID of a result")]


def _read_result(id_: str, identity: Identity) -> tuple[Answer, Computed]:
    _check_owner(identity)
    computed = Computed(("results", "show", id_), ("With its provenance.",), "docs/measure.md")
    return gy.results.show(id_).answer, computed


@router.get("/result", include_in_schema=False)
def show_result(request: Request, id: IdQuery) -> Response:
    answer, computed = _read_result(id, request.state.identity)
    return _render_report(request, answer, computed, f"Result {id}", f"/result/page.html?id={id}")


@router.get("/result.json", summary="One stored measurement")
def get_result(request: Request, id: IdQuery) -> Response:
    """Return what `gpuyard results show --json` prints."""
    return render_json(_read_result(id, request.state.identity)[0].document)


@router.get("/result/page.html", include_in_schema=False)
def download_result(request: Request, id: IdQuery) -> Response:
    return _download(_read_result(id, request.state.identity)[0], f"result-{id}.html")


def _read_report(id_: str, identity: Identity) -> Answer:
    _check_owner(identity)
    return read_report(id_)


@router.get("/report", include_in_schema=False)
def show_report(request: Request, id: IdQuery) -> Response:
    answer = _read_report(id, request.state.identity)
    command = next((report.command for report in list_reports() if report.id == id), ())
    computed = Computed(
        command or (answer.verb, "--help"),
        ("This report is shown as it was written; the command may give other numbers today.",),
        "docs/study.md" if answer.verb == "study" else "",
    )
    return _render_report(request, answer, computed, answer.title, f"/report/page.html?id={id}")


@router.get("/report.json", summary="One kept report")
def get_report(request: Request, id: IdQuery) -> Response:
    """Return the document that the command printed with `--json` when it wrote the report."""
    return render_json(_read_report(id, request.state.identity).document)


@router.get("/report/page.html", include_in_schema=False)
def download_report(request: Request, id: IdQuery) -> Response:
    return _download(_read_report(id, request.state.identity), f"report-{id}.html")


def _validate() -> Answer:
    from gpuyard.api.validation import validate

    answer: Answer = heavy.run((_VALIDATION,), validate).answer
    return answer


_HOW_VALIDATED = Computed(
    ("validate",),
    ("Each row of a published table is predicted from its table's one-GPU figure.",),
    "docs/validation.md",
)


@router.get("/results/validation", include_in_schema=False)
def show_validation(request: Request) -> Response:
    return _render_report(
        request, _validate(), _HOW_VALIDATED, "Predicted and measured", "/results/validation.html"
    )


@router.get("/results/validation.json", summary="Predictions against published measurements")
def get_validation() -> Response:
    """Return what `gpuyard validate --json` prints."""
    return render_json(_validate().document)


@router.get("/results/validation.html", include_in_schema=False)
def download_validation() -> Response:
    return _download(_validate(), "validation.html")


def _render_report(
    request: Request, answer: Answer, computed: Computed, title: str, file_url: str
) -> Response:
    return render(
        request,
        "report.html.jinja",
        view="results",
        title=title,
        answer=answer,
        computed=computed,
        file_url=file_url,
    )


def _download(answer: Answer, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(render_page(answer), media_type="text/html; charset=utf-8", headers=headers)
