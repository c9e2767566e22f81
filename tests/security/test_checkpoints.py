"""A checkpoint that cannot be written or read is reported before training, and files of other programs stay."""

import io
import json
import pickle
import resource
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.measure.convergence import checkpoint as checkpoints
from gpuyard.measure.convergence.plan import ConvergencePlan, plan_convergence
from gpuyard.measure.convergence.run import run_convergence
from gpuyard.specs import Dataset, Workload
from tests.conftest import MACHINE
from tests.measure.conftest import tiny

__all__ = ["tiny"]
torch = pytest.importorskip("torch")
EPOCH = {
    "epoch": 1, "seconds": 1.0, "loss": 1.0, "training_accuracy": 0.5, "held_out_accuracy": 0.5,
    "parameter_checksum": "0",
}  # fmt: skip
WEIGHTS = {"weight": np.zeros((4, 16), np.float32), "bias": np.zeros(4, np.float32)}


@pytest.fixture
def workload(tiny: Any, monkeypatch: pytest.MonkeyPatch) -> Workload:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "measure"))
    workload = tiny("classifier", source="tiny_models:learnable")
    assert isinstance(workload, Workload)
    return workload


def encode_about(**other: object) -> Any:
    document = {"identity": "x", "workers": 1, "epochs": [EPOCH], **other}
    return np.frombuffer(json.dumps(document).encode(), np.uint8)


def create_npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    buffer = io.BytesIO()
    save(
        buffer,
        **{"about": encode_about(), **{f"model/{k}": v for k, v in WEIGHTS.items()}, **arrays},
    )
    return buffer.getvalue()


def create_archive(members: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return buffer.getvalue()


def build_array_header(shape: str) -> bytes:
    """Build the header of an array without any data."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


UNREADABLE = {
    "empty": b"",
    "text": b"my thesis",
    "begins like a zip": b"PK\x03\x04" + b"\0" * 100,
    "truncated": create_npz()[:-200],
    "cut in half": create_npz()[: len(create_npz()) // 2],
    "a changed byte in an array": create_npz().replace(b"identity", b"identitY"),
    "one array, no zip": b"\x93NUMPY\x01\x00" + b"v\0",
    "a pickle": pickle.dumps({"about": 1}),
    "a zip of something else": create_archive({"letter.txt": b"dear"}),
    "foreign npz": create_npz(about=np.zeros((3, 3))),
    "an npz without about": create_archive({"model/weight.npy": build_array_header("(0,)")}),
    "packed": create_npz(np.savez_compressed),
    "a claim of terabytes": create_archive({"about.npy": build_array_header("(1000000000000,)")}),
    "objects": create_npz(about=np.array([None], dtype=object)),
    "no epochs": create_npz(about=encode_about(epochs=[])),
    "epochs of another kind": create_npz(about=encode_about(epochs=[{}])),
    "no number of workers": create_npz(about=encode_about(workers=None)),
    "no JSON": create_npz(about=np.frombuffer(b"{", np.uint8)),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_file_that_is_no_complete_checkpoint_is_reported_before_training_and_stays(
    kind: str, fresh: bool, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thesis.npz"
    path.write_bytes(UNREADABLE[kind])
    plan = plan_convergence(workload, checkpoint=path, fresh=fresh)
    monkeypatch.setattr("gpuyard.measure.convergence.run.launch_ranks", None)
    with pytest.raises(GpuyardError, match=r"thesis\.npz.*--checkpoint") as raised:
        run_convergence(plan)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == UNREADABLE[kind]


def test_a_small_file_that_unpacks_to_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("about.npy", create_npz())
        with packed.open("model/weight.npy", "w", force_zip64=True) as array:
            array.write(build_array_header("(512000000,)"))
            for _ in range(2048):
                array.write(bytes(1_000_000))
    assert path.stat().st_size < 4_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GpuyardError, match="compressed, or larger than the file"):
        checkpoints.restore(path, torch.nn.Linear(2, 1), None)  # type: ignore[arg-type]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_arrays_that_share_their_bytes_are_larger_than_the_file(tmp_path: Path) -> None:
    array = np.zeros(1_000_000, np.float32)
    path = tmp_path / "shared.npz"
    with zipfile.ZipFile(path, "w") as packed:
        content = io.BytesIO()
        np.save(content, array)
        packed.writestr("model/0.npy", content.getvalue())
        packed.filelist *= 1000
    with pytest.raises(GpuyardError, match="compressed, or larger than the file"):
        checkpoints.read_header(path)


def test_fresh_deletes_a_damaged_checkpoint_in_gpuyards_directory_only(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUYARD_HOME", home.name)  # relative is fine
    path = checkpoints.default_directory() / "c.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut off")
    with pytest.raises(GpuyardError, match="--fresh"):
        checkpoints.read_header(path)
    checkpoints.delete(path)
    assert not path.exists()
    (tmp_path / "thesis.txt").write_text("mine")
    path.symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(GpuyardError, match="move it away"):
        checkpoints.delete(path)
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "arrays",
    [
        {"model/weight": np.zeros((9, 9), np.float32)},
        {"model/weight": np.zeros((4, 16), np.float16)},
        {"model/other": np.zeros(3, np.float32)},
        {"optimizer/x/momentum_buffer": np.zeros(4)},
        {"optimizer/7/momentum_buffer": np.zeros(4)},
        {"optimizer/0/momentum_buffer": np.zeros(5)},
    ],
)
def test_weights_of_another_shape_are_reported_in_one_line(
    arrays: dict[str, Any], tmp_path: Path
) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(create_npz(**arrays))
    module = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    before = module.weight.clone()
    with pytest.raises(GpuyardError, match=r"c\.npz.*--checkpoint") as raised:
        checkpoints.restore(path, module, optimizer)
    assert "\n" not in str(raised.value)
    assert torch.equal(module.weight, before)


def _create_foreign_checkpoint(plan: ConvergencePlan) -> bytes:
    other: dict[str, Any] = {"model/bias": np.zeros(5, np.float32)}
    return create_npz(about=encode_about(identity=plan.identity), **other)


@MACHINE
def test_a_rank_reports_weights_of_another_model_in_one_line(
    workload: Workload, tmp_path: Path
) -> None:
    path = tmp_path / "c.npz"
    plan = plan_convergence(workload, checkpoint=path)
    path.write_bytes(_create_foreign_checkpoint(plan))
    with pytest.raises(GpuyardError, match=r"another model.*--checkpoint") as raised:
        run_convergence(plan)
    assert "\n" not in str(raised.value)
    assert path.read_bytes() == _create_foreign_checkpoint(plan)


def test_an_unwritable_path_is_reported_before_training(
    workload: Workload, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.measure.convergence.run.launch_ranks", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuyardError, match="file is a file"):
        plan_convergence(workload, checkpoint=tmp_path / "file" / "c.npz")
    with pytest.raises(GpuyardError, match="is not a file"):
        plan_convergence(workload, checkpoint=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda *_: False)  # root can write everywhere
        with pytest.raises(GpuyardError, match="no permission to write"):
            plan_convergence(workload, checkpoint=tmp_path / "c.npz")
        with pytest.raises(GpuyardError, match="no permission to write"):
            run_convergence(plan_convergence(workload))
    with pytest.raises(GpuyardError, match="cannot be written"):  # even by root
        run_convergence(plan_convergence(workload, checkpoint=Path("/proc/c.npz")))
    checkpoints.default_directory().rmdir()
    checkpoints.default_directory().write_text("in the way")
    with pytest.raises(GpuyardError, match="cannot be written"):
        run_convergence(plan_convergence(workload))


@MACHINE
def test_all_of_the_training_data_can_be_learned(
    workload: Workload, tiny: Any, tmp_path: Path
) -> None:
    small = tiny("classifier", dataset=Dataset(samples=3, source="tiny_models:dataset"))
    path = tmp_path / "c.npz"
    run = run_convergence(plan_convergence(small, epochs=200, target_accuracy=1.0, checkpoint=path))
    assert run.reached
    assert run.last.training_accuracy == 1.0
    assert len(run.epochs) < 200
