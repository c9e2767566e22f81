"""What comes over a network is whole, of a sane size, and what was meant; what was there before stays otherwise."""

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


class _Answers(socketserver.ThreadingTCPServer):
    """Answers every request with the same bytes, headers and all."""

    daemon_threads = True
    answer = b""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/x"


class _Handler(socketserver.StreamRequestHandler):
    server: _Answers

    def handle(self) -> None:
        while self.rfile.readline().strip():
            pass
        self.wfile.write(self.server.answer)


@pytest.fixture
def server() -> Iterator[_Answers]:
    with _Answers(("127.0.0.1", 0), _Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def answer(body: bytes, *headers: str, length: str | None = None) -> bytes:
    lines = [
        "HTTP/1.1 200 OK",
        f"Content-Length: {len(body) if length is None else length}",
        *headers,
    ]
    return "\r\n".join([*lines, "Connection: close", "", ""]).encode() + body


def test_every_truncated_table_is_refused(server: _Answers) -> None:
    whole = SHIPPED.encode()
    for cut in range(1, len(whole), len(whole) // 40):
        server.answer = answer(whole[:cut], length=str(len(whole)))
        with pytest.raises(GpuyardError, match="bytes came; try again"):
            read_source(server.address)
    server.answer = answer(whole)
    assert read_source(server.address) == SHIPPED


@pytest.mark.parametrize("length", ["abc", "-5", "1e3", "²", "", "9" * 5000, "12, 12"])
def test_a_length_that_is_none_is_a_sentence(server: _Answers, tmp_path: Path, length: str) -> None:
    server.answer = answer(b"x" * 12, length=length)
    with pytest.raises(
        GpuyardError, match=r"the server says that its length is .*expected a number"
    ):
        read_source(server.address)
    with pytest.raises(GpuyardError, match=r"the server says that its length is .*with --from"):
        fetch_clips(tmp_path / "clips", url=server.address, schemes=("http",))


def test_a_length_that_nobody_says(server: _Answers) -> None:
    server.answer = b"HTTP/1.0 200 OK\r\n\r\n" + SHIPPED.encode()
    with pytest.raises(GpuyardError, match="does not say how long it is"):
        read_source(server.address)
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(row), row) for row in map(str.encode, [HEAD, *ROWS]))
    server.answer = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"
    assert read_source(server.address) == SHIPPED
    server.answer = server.answer[: len(server.answer) // 2]
    with pytest.raises(GpuyardError, match="can't be fetched"):
        read_source(server.address)


def test_no_more_is_read_than_can_be_meant(server: _Answers) -> None:
    server.answer = answer(b"", length="999999999999")
    with pytest.raises(UserMistake, match="larger than 20 MB"):
        read_source(server.address)
    server.answer = (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffff\r\n" + b"x" * 3_000_000
    )
    arrived = io.BytesIO()
    with pytest.raises(UserMistake, match="larger than 1 MB"):
        download(server.address, arrived, most_bytes=1_000_000)
    assert len(arrived.getvalue()) <= 1_000_000


@pytest.mark.parametrize(
    "address", ["http://[", "http://x:y/", "https://\x1b]52;c;AA\x07/", "http://" + "a" * 3000]
)
def test_an_address_that_is_none_is_a_sentence(address: str) -> None:
    with pytest.raises(GpuyardError, match=r"this is no address|can't be fetched"):
        read_source(address)


def test_a_checksum_is_kept_to(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(SHIPPED)
    right = hashlib.sha256(path.read_bytes()).hexdigest()
    take = ["prices", "update", "--from", str(path), "--checksum"]
    assert "expected 64 hexadecimal digits" in cli(*take, "abc", status=2).stderr
    assert f"its SHA-256 is {right}, expected" in cli(*take, "0" * 64, status=1).stderr
    assert not files.prices_file().exists()
    assert f'"sha256": "{right}"' in cli(*take, right.upper(), "--json").stdout


def test_a_cut_file_is_refused_wherever_it_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    for cut in range(len(HEAD) + 5, len(HEAD) + 400):
        part = SHIPPED[:cut]
        path.write_text(part)
        if part.endswith("\n"):
            continue  # whole lines: that there are fewer is asked about
        with pytest.raises(UserMistake, match="its last line has no end"):
            read_source(str(path))
    with pytest.raises(UserMistake, match=":2: fewer cells than the header has columns"):
        read_price_table(HEAD + ROWS[0].rsplit(",", 2)[0] + "\n", "p.csv")


def test_a_table_that_lost_rows_is_taken_only_when_that_is_said(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "prices.csv"
    path.write_text(HEAD + "".join(ROWS[-39:]))
    take = ["prices", "update", "--from", str(path), "--older"]
    refused = cli(*take, status=2).stderr
    assert (
        f"it has 39 prices, the table in use has {len(ROWS)}: {len(ROWS) - 39} would be lost"
        in refused
    )
    assert "would be used" in cli(*take, "--dry-run").stdout
    assert not files.prices_file().exists()
    assert "39 prices" in cli(*take, "--fewer").stdout


def test_a_price_of_a_day_to_come_is_refused(cli: Cli, tmp_path: Path) -> None:
    table = read_price_table(SHIPPED, "p.csv")
    first = next(iter(table))
    path = tmp_path / "prices.csv"
    path.write_text(HEAD + ROWS[0].replace(str(first.date), "2099-01-01") + "".join(ROWS[1:]))
    said = cli("prices", "update", "--from", str(path), status=2).stderr
    assert f"{first.id} has the date 2099-01-01, which is still to come" in said


@pytest.mark.parametrize(
    ("cell", "sentence"),
    [
        ("x\x1b]52;c;AAAA\x07", ":2: note: can't have control characters"),
        ("x" * 5_000, ":2: note: takes at most 1000 characters"),
        ("x" * 140_000, "this is not a table of CSV: field larger than field limit"),
        ('"x', "this is not a table of CSV: unexpected end of data"),
    ],
)  # fmt: skip
def test_cells_of_a_price_table(cell: str, sentence: str) -> None:
    row = f"{ROWS[0].rstrip().rsplit(',', 1)[0]},{cell}\n"
    with pytest.raises(UserMistake, match=sentence):
        read_price_table(HEAD + row, "p.csv")


def test_a_table_of_many_rows(tmp_path: Path) -> None:
    with pytest.raises(UserMistake, match="more than 20,000 lines"):
        read_price_table(HEAD + ROWS[0] * 30_000, "p.csv")


def _archive(members: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in members.items():
            member = tarfile.TarInfo(f"digits/recordings/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return packed.getvalue()


@pytest.mark.parametrize(
    ("body", "sentence"),
    [
        (
            gzip.compress(bytes(150_000_000), 1),
            "its clips are not those of the release",
        ),
        (_archive({"0_theo_0.wav": bytes(2_000_000)}), "'0_theo_0.wav' in it is no clip"),
        (_archive({"../../x.wav": b"RIFF"}), "its clips are not those of the release"),
        (_archive({"0_theo_0.wav": b"RIFF"}), "its clips are not those of the release"),
        (_archive({"0_theo_0.wav": b"RIFF"})[:60] + b"\0" * 99, "the archive is damaged"),
        (b"\x1f\x8b\x08\x00" + bytes(100), "the archive is damaged"),
    ],
    ids=["bomb", "large clip", "climbs", "others", "damaged", "header"],
)
def test_an_archive_that_is_not_the_dataset_is_a_sentence(
    server: _Answers, tmp_path: Path, body: bytes, sentence: str
) -> None:
    server.answer = answer(body)
    target = tmp_path / "datasets" / "clips"
    with pytest.raises(GpuyardError, match=sentence):
        fetch_clips(target, url=server.address, schemes=("http",))
    assert list(target.parent.iterdir()) == []


def test_an_archive_that_unpacks_to_too_much(server: _Answers, tmp_path: Path) -> None:
    member = tarfile.TarInfo("digits/README.md")
    member.size = 900_000_000
    header = member.tobuf()
    server.answer = answer(gzip.compress(header + bytes(150_000_000), 1))
    with pytest.raises(GpuyardError, match="unpacked, it is larger than 100 MB"):
        fetch_clips(tmp_path / "clips", url=server.address, schemes=("http",))


@pytest.mark.parametrize(
    ("column", "price", "words"),
    [
        ("usd_per_hour", "1e-9", "a GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "1e300", "a GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "inf", "expected"),
        ("usd_per_hour", "nan", "expected"),
        ("spot_usd_per_hour", "1e-9", "a GPU-hour; expected $0.001 to $1000"),
        ("usd_per_hour", "0.5", "look at it with --dry-run, or take it with --large-changes"),
    ],
)
def test_a_price_that_nobody_asks_for_is_not_taken(
    cli: Cli, tmp_path: Path, column: str, price: str, words: str
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
    assert words in " ".join(refused.stderr.split())
    if "large" in words:
        assert (
            "Changed prices"
            in cli("prices", "update", "--from", str(table), "--large-changes").stdout
        )
