"""Directories where everybody may write, like /tmp: what somebody else has put there is not written through."""

import os
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.files import replacing, write_text
from tests.conftest import Cli
from tests.share.conftest import needs_root

NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """As /tmp is: all may write, each only their own."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def planted(link: Path, target: Path, uid: int = NOBODY) -> Path:
    link.symlink_to(target)
    os.chown(link, uid, uid, follow_symlinks=False)
    return link


@needs_root
@pytest.mark.parametrize("name", ["out.html", "results/out.html", "again/out.html"])
def test_another_users_link_is_not_followed(shared: Path, tmp_path: Path, name: str) -> None:
    """The kernel does not either (fs.protected_symlinks), but it does not see a path that was resolved before."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "out.html").write_text("mine")
    planted(shared / "out.html", own / "out.html")
    planted(shared / "results", own)
    (tmp_path / "linked").symlink_to(shared / "results")
    (shared / "again").symlink_to(tmp_path / "linked")  # root's own, that leads to theirs
    with pytest.raises(GpuyardError, match="another user's link"):
        write_text(shared / name, "new")
    with pytest.raises(GpuyardError, match="another user's link"), replacing(shared / name):
        pass
    assert (own / "out.html").read_text() == "mine"


@needs_root
def test_commands_say_so(shared: Path, tmp_path: Path, cli: Cli) -> None:
    own = tmp_path / "own.svg"
    own.write_text("mine")
    planted(shared / "out.svg", own)
    said = cli("topo", "--preset", "nvswitch", "--svg", str(shared / "out.svg"), status=1).stderr
    assert "another user's link" in " ".join(said.split()) and own.read_text() == "mine"


@needs_root
def test_ones_own_link_and_links_elsewhere_are_followed(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for link in (
        planted(shared / "own", target, os.geteuid()),
        planted(tmp_path / "elsewhere", target),
    ):
        write_text(link, link.name)
        assert target.read_text() == link.name and link.is_symlink()


def test_made_images_replace_nothing_elsewhere(tmp_path: Path) -> None:
    from gpuyard.workloads.made_images import make_images

    images, elsewhere = tmp_path / "images", tmp_path / "backup.tar"
    make_images(images, 1, lambda _: None)
    elsewhere.write_bytes(b"mine")
    (images / "00000.tar").unlink()
    (images / "00000.tar").symlink_to(elsewhere)
    with pytest.raises(GpuyardError, match="writes through none"):
        make_images(images, 1, lambda _: None)
    assert elsewhere.read_bytes() == b"mine"
