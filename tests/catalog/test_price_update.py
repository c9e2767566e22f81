"""A newer price table is imported completely or not at all, from a file or over HTTP, and can be undone."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.catalog import prices
from gpuyard.catalog.price_update import compare_tables, read_source
from gpuyard.catalog.prices import newest_date, read_price_table, shipped_prices
from gpuyard.errors import GpuyardError, UnknownName, UserMistake

ROOT = Path(__file__).parents[2]
HEAD = "id,source,date,cloud,instance,region,gpu,gpu_name,gpus,vcpus,memory_gib,usd_per_hour,spot_usd_per_hour,note\n"
ROW = "aws/p4d.24xlarge,a list,2027-01-31,aws,p4d.24xlarge,us-east-1,a100-sxm4-40gb,A100,8,96,1152,19.5,9.5,\n"
NEW = ROW.replace("p4d.24xlarge", "p9.large")


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/prices.csv":
            self._answer(200, (HEAD + ROW).encode())
        elif self.path == "/file":
            self.send_response(302)
            self.send_header("Location", "file:///etc/hostname")
            self.end_headers()
        elif self.path == "/bytes":
            self._answer(200, b"\xff\xfe\x00\n")
        elif self.path == "/huge":
            self._answer(200, b"x" * 20_000_001)
        else:
            self._answer(404, b"")

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Handler) as running:
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{running.server_address[1]}"
        running.shutdown()
        thread.join()


def test_it_comes_over_http(server: str) -> None:
    assert read_source(f"{server}/prices.csv") == HEAD + ROW


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("/none", GpuyardError, "404"),
        ("/file", GpuyardError, "redirection to url"),
        ("/bytes", UserMistake, "not UTF-8 text"),
        ("/huge", UserMistake, "larger than 20 MB"),
    ],
)
def test_invalid_responses_are_refused(
    server: str, path: str, kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=r"(?i)" + message):
        read_source(server + path)


def test_other_addresses_are_refused(tmp_path: Path) -> None:
    for address in ("file:///etc/hostname", "ftp://127.0.0.1/x"):
        with pytest.raises(UserMistake, match="expected an http or https address, got"):
            read_source(address)
    with pytest.raises(UserMistake, match="not found"):
        read_source(str(tmp_path / "none.csv"))
    with pytest.raises(GpuyardError, match="cannot be downloaded"):
        read_source("http://127.0.0.1:1/prices.csv")


def test_changes_are_listed() -> None:
    update = compare_tables(shipped_prices(), read_price_table(HEAD + ROW + NEW, "new.csv"))
    assert update.added == ("aws/p9.large",)
    assert [c.id for c in update.changed] == ["aws/p4d.24xlarge"]
    assert len(update.removed) == len(shipped_prices()) - 1


def test_a_stored_table_stands_in_for_the_shipped_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUYARD_HOME", str(tmp_path))
    assert len(prices()) == len(shipped_prices())
    files.prices_file().write_text(HEAD + ROW)
    assert prices().ids() == ["aws/p4d.24xlarge"]
    assert newest_date(prices()).isoformat() == "2027-01-31"
    files.prices_file().write_text(HEAD + ROW + NEW)
    assert len(prices()) == 2
    files.prices_file().write_text("nonsense")
    with pytest.raises(GpuyardError, match="gpuyard prices reset"):
        prices()
    files.prices_file().unlink()
    assert len(prices()) == len(shipped_prices())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "p.csv:1: the columns id, source"),
        (HEAD, "p.csv: the table has no prices"),
        (HEAD + ROW.replace("19.5", "-1"), r"p.csv:2: usd_per_hour: must be above 0, got"),
        (HEAD + ROW.replace("19.5", "inf"), "usd_per_hour: expected a finite number"),
        (HEAD + ROW.replace("2027-01-31", "soon"), "p.csv:2: date"),
        (HEAD + ROW + ROW, "p.csv:3: duplicate id 'aws/p4d.24xlarge'"),
        (HEAD + ROW.replace(",9.5,", ",9.5,,,"), "more cells"),
    ],
)
def test_an_error_in_a_table_names_its_line(text: str, message: str) -> None:
    with pytest.raises(UserMistake, match=message):
        read_price_table(text, "p.csv")


def test_an_unknown_column_names_the_closest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'note'"):
        read_price_table(HEAD.replace("note", "notes") + ROW, "p.csv")


def test_the_shipped_table_passes_its_own_check() -> None:
    text = (ROOT / "src/gpuyard/catalog/data/prices.csv").read_text(encoding="utf-8")
    assert len(read_price_table(text, "prices.csv")) == len(shipped_prices())
