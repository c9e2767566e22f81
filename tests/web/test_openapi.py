"""The documented API: schemathesis sends what the OpenAPI document allows, and no answer is a defect."""

from pathlib import Path

import pytest

from tests.web.conftest import Serve

schemathesis = pytest.importorskip("schemathesis")
_EXAMPLES = 6
_SLOW = ("/buy.json", "/results/validation.json")


def test_every_json_route_is_documented(serve: Serve, share: Path) -> None:
    document = serve().get("/openapi.json").json()
    views = ("now", "jobs", "history", "scale", "buy", "room", "machine", "results")
    assert {f"/{view}.json" for view in views} <= set(document["paths"])
    for path, methods in document["paths"].items():
        for method in methods.values():
            assert method.get("summary"), path


@pytest.mark.timeout(600)
def test_no_documented_request_is_a_defect(serve: Serve, share: Path) -> None:
    from hypothesis import HealthCheck, Phase, given, settings
    from schemathesis.checks import not_a_server_error

    site = serve()
    schema = schemathesis.openapi.from_url(f"{site.address}openapi.json")
    tested = 0
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in _SLOW:
            continue

        @given(case=operation.as_strategy())
        @settings(
            max_examples=_EXAMPLES,
            deadline=None,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )
        def check(case: object) -> None:
            response = case.call(base_url=site.address)  # type: ignore[attr-defined]
            if response.status_code == 503:  # it cannot be done here, which is not a defect
                return
            case.validate_response(response, checks=[not_a_server_error])  # type: ignore[attr-defined]

        check()
        tested += 1
    assert tested >= 10
