"""A download must be complete, not too large, and of the expected kind; otherwise the previous data stays."""

import csv
import gzip
import hashlib
import io
import socketserver
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard import files
from gpuyard.catalog.download import download
from gpuyard.catalog.price_update import read_source
from gpuyard.catalog.prices import read_price_table
from gpuyard.errors import GpuyardError, UserMistake
from gpuyard.workloads.digit_clips import fetch_clips
from tests.conftest import ROOT, Cli

SHIPPED = (ROOT / "src/gpuyard/catalog/data/prices.csv").read_text(encoding="utf-8")
HEAD, *ROWS = SHIPPED.splitlines(keepends=True)


class _FixedResponseServer(socketserver.ThreadingTCPServer):
    """Send the same bytes, including headers, for every request."""

    daemon_threads = True
    response = b""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/x"


class _Handler(socketserver.StreamRequestHandler):
    server: _FixedResponseServer

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(self.server.response)


@pytest.fixture
def server() -> Iterator[_FixedResponseServer]:
    with _FixedResponseServer(("127.0.0.1", 0), _Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def build_response(body: bytes, *headers: str, length: str | None = None) -> bytes:
    lines = [
        "HTTP/1.1 200 OK",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def test_every_truncated_table_is_refused(server: _FixedResponseServer) -> None:
    whole = SHIPPED.encode()
    for cut in range(1, len(whole), len(whole) // 40):
        server.response = build_response(whole[:cut], length=str(len(whole)))
        with pytest.raises(GpuyardError, match=r"received only .* bytes; try again"):
            read_source(server.address)
    server.response = build_response(whole)
    assert read_source(server.address) == SHIPPED


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", "²", "", "9" * 5000, "12, 12"])
def test_an_invalid_content_length_is_reported(
    server: _FixedResponseServer, tmp_path: Path, length: str
) -> None:
    server.response = build_response(b"x" * 12, length=length)
    with pytest.raises(GpuyardError, match=r"Content-Length is .*expected a number"):
        read_source(server.address)
    with pytest.raises(GpuyardError, match=r"Content-Length is .*with --from"):
        fetch_clips(tmp_path / "clips", url=server.address, schemes=("http",))


def test_a_download_without_a_length_needs_chunks(server: _FixedResponseServer) -> None:
    server.response = b"HTTP/1.0 200 OK\r\n\r\n" + SHIPPED.encode()
    with pytest.raises(GpuyardError, match="does not report the length"):
        read_source(server.address)
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(row), row) for row in map(str.encode, [HEAD, *ROWS]))
    server.response = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    )
    assert read_source(server.address) == SHIPPED
    server.response = server.response[: len(server.response) // 2]
    with pytest.raises(GpuyardError, match="cannot be downloaded"):
        read_source(server.address)


def test_a_download_stops_at_its_size_limit(server: _FixedResponseServer) -> None:
    server.response = build_response(b"", length="999999999999")
    with pytest.raises(UserMistake, match="larger than 20 MB"):
        read_source(server.address)
    server.response = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 3_000_000
    )
    arrived = io.BytesIO()
    with pytest.raises(UserMistake, match="larger than 1 MB"):
        download(server.address, arrived, max_bytes=1_000_000, max_seconds=60)
    assert len(arrived.getvalue()) <= 1_000_000


@pytest.mark.parametrize(
    "address", ["http://[", "http://x:y/", "https://\x1b]52;c;AA\x07/", "http://" + "a" * 3000]
)
def test_an_invalid_address_is_reported(address: str) -> None:
    with pytest.raises(GpuyardError, match=r"address|cannot be downloaded"):
        read_source(address)


def test_a_checksum_is_verified(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(SHIPPED)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    update = ["prices", "update", "--from", str(path), "--checksum"]
    assert "expected 64 hexadecimal digits" in cli(*update, "abc", status=2).stderr
    assert f"SHA-256 is {right}, expected" in cli(*update, "0" * 64, status=1).stderr
    assert not files.prices_file().exists()
    assert f'"sha256": "{right}"' in cli(*update, right.upper(), "--json").stdout


def test_a_truncated_file_is_refused_at_any_position(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    for cut in range(len(HEAD) + 5, len(HEAD) + 400):
        part = SHIPPED[:cut]
        path.write_text(part)
        if part.endswith("\n"):
            continue  # complete lines; another test covers missing rows
        with pytest.raises(UserMistake, match="last line has no newline"):
            read_source(str(path))
    with pytest.raises(UserMistake, match=":2: fewer cells than the header has columns"):
        read_price_table(HEAD + ROWS[0].rsplit(",", 2)[0] + "\n", "p.csv")


def test_a_table_with_fewer_rows_needs_an_option(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(HEAD + "".join(ROWS[-39:]))
    update = ["prices", "update", "--from", str(path), "--older"]
    refused = cli(*update, status=2).stderr
    assert f"{len(ROWS) - 39} would be lost" in refused
    assert "would be used" in cli(*update, "--dry-run").stdout
    assert not files.prices_file().exists()
    assert "39 prices" in cli(*update, "--fewer").stdout


def test_a_price_from_the_future_is_refused(cli: Cli, tmp_path: Path) -> None:
    table = read_price_table(SHIPPED, "p.csv")
    first = next(iter(table))
    path = tmp_path / "prices.csv"
    path.write_text(HEAD + ROWS[0].replace(str(first.date), "2099-01-01") + "".join(ROWS[1:]))
    output = cli("prices", "update", "--from", str(path), status=2).stderr
    assert f"{first.id} has the date 2099-01-01, which is in the future" in output


@pytest.mark.parametrize(
    ("cell", "fragment"),
    [
        ("x\x1b]52;c;AAAA\x07", ":2: note: cannot contain control characters"),
        ("x" * 5_000, ":2: note: must have at most 1000 characters"),
        ("x" * 140_000, "this is not a CSV table: field larger than field limit"),
        ('"x', "this is not a CSV table: unexpected end of data"),
    ],
)  # fmt: skip
def test_cells_of_a_price_table(cell: str, fragment: str) -> None:
    row = f"{ROWS[0].rstrip().rsplit(',', 1)[0]},{cell}\n"
    with pytest.raises(UserMistake, match=fragment):
        read_price_table(HEAD + row, "p.csv")


def test_a_table_of_many_rows(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="more than 20,000 lines"):
        read_price_table(HEAD + ROWS[0] * 30_000, "p.csv")


def pack_recordings(members: dict[str, bytes]) -> bytes:
    """Return a release of the spoken digits with these files."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(f"digits/recordings/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("body", "fragment"),
    [
        (
            gzip.compress(bytes(150_000_000), 1),
            "its clips are not those of the release",
        ),
        (pack_recordings({"0_theo_0.wav": bytes(2_000_000)}), "0_theo_0.wav"),
        (pack_recordings({"../../x.wav": b"RIFF"}), "its clips are not those of the release"),
        (pack_recordings({"0_theo_0.wav": b"RIFF"}), "its clips are not those of the release"),
        (pack_recordings({"0_theo_0.wav": b"RIFF"})[:60] + b"\0" * 99, "the archive is damaged"),
        (b"\x1f\x8b\x08\x00" + bytes(100), "the archive is damaged"),
    ],
    ids=["bomb", "large clip", "climbs", "others", "damaged", "header"],
)
def test_an_archive_that_is_not_the_dataset_is_refused(
    server: _FixedResponseServer, tmp_path: Path, body: bytes, fragment: str
) -> None:
    server.response = build_response(body)
    target = tmp_path / "datasets" / "clips"
    with pytest.raises(GpuyardError, match=fragment):
        fetch_clips(target, url=server.address, schemes=("http",))
    assert list(target.parent.iterdir()) == []


def test_an_archive_that_unpacks_beyond_the_limit_is_refused(
    server: _FixedResponseServer, tmp_path: Path
) -> None:
    member = tarfile.TarInfo("digits/README.md")
    member.size = 900_000_000
    header = member.tobuf()
    server.response = build_response(gzip.compress(header + bytes(150_000_000), 1))
    with pytest.raises(GpuyardError, match="unpacked, it is larger than 100 MB"):
        fetch_clips(tmp_path / "clips", url=server.address, schemes=("http",))


@pytest.mark.parametrize(
    ("column", "price", "fragment"),
    [
        ("usd_per_hour", "1e-9", "per GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "1e300", "per GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "inf", "expected"),
        ("usd_per_hour", "nan", "expected"),
        ("spot_usd_per_hour", "1e-9", "per GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "0.5", "check it with --dry-run, or add --large-changes"),
    ],
)
def test_an_implausible_price_is_refused(
    cli: Cli, tmp_path: Path, column: str, price: str, fragment: str
) -> None:
    rows = list(csv.DictReader(io.StringIO(SHIPPED)))
    big = next(row for row in rows if float(row["usd_per_hour"]) > 50)
    big[column] = price
    table = tmp_path / "prices.csv"
    with table.open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    refused = cli("prices", "update", "--from", str(table), status=2)
    assert fragment in " ".join(refused.stderr.split())
    if "large" in fragment:
        assert (
            "Changed prices"
            in cli("prices", "update", "--from", str(table), "--large-changes").stdout
        )
