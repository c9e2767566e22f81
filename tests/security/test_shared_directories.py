"""In directories where all users may write, like /tmp, gpuyard does not write through another user's link."""

import os
from pathlib import Path

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.files import replace_file, write_text
from tests.conftest import Cli
from tests.share.conftest import needs_root

NOBODY = 65534


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """Create a directory like /tmp: every user may write, but change only their own files."""
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o1777)
    return directory


def plant_link(link: Path, target: Path, uid: int = NOBODY) -> Path:
    link.symlink_to(target)
    os.chown(link, uid, uid, follow_symlinks=False)
    return link


@needs_root
@pytest.mark.parametrize("name", ["out.html", "results/out.html", "again/out.html"])
def test_another_users_link_is_not_followed(shared: Path, tmp_path: Path, name: str) -> None:
    """The kernel's fs.protected_symlinks does not cover paths that were resolved before."""
    own = tmp_path / "own"
    own.mkdir()
    (own / "out.html").write_text("mine")
    plant_link(shared / "out.html", own / "out.html")
    plant_link(shared / "results", own)
    (tmp_path / "linked").symlink_to(shared / "results")
    (shared / "again").symlink_to(
        tmp_path / "linked"
    )  # root's own link, which leads to another user's
    with pytest.raises(GpuyardError, match="another user's link"):
        write_text(shared / name, "new")
    with pytest.raises(GpuyardError, match="another user's link"), replace_file(shared / name):
        pass
    assert (own / "out.html").read_text() == "mine"


@needs_root
def test_commands_report_another_users_link(shared: Path, tmp_path: Path, cli: Cli) -> None:
    own = tmp_path / "own.svg"
    own.write_text("mine")
    plant_link(shared / "out.svg", own)
    error = cli("topo", "--preset", "nvswitch", "--svg", str(shared / "out.svg"), status=1).stderr
    assert "another user's link" in " ".join(error.split()) and own.read_text() == "mine"


@needs_root
def test_the_users_own_link_and_links_elsewhere_are_followed(shared: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    for link in (
        plant_link(shared / "own", target, os.geteuid()),
        plant_link(tmp_path / "elsewhere", target),
    ):
        write_text(link, link.name)
        assert target.read_text() == link.name and link.is_symlink()


def test_generated_images_do_not_overwrite_a_links_target(tmp_path: Path) -> None:
    from gpuyard.workloads.image_generation import generate_images

    images, elsewhere = tmp_path / "images", tmp_path / "backup.tar"
    generate_images(images, 1, lambda _: None)
    elsewhere.write_bytes(b"mine")
    (images / "00000.tar").unlink()
    (images / "00000.tar").symlink_to(elsewhere)
    with pytest.raises(GpuyardError, match=r"00000.tar"):
        generate_images(images, 1, lambda _: None)
    assert elsewhere.read_bytes() == b"mine"
