"""Checkpoints: what can't be written or read is said at once, and a foreign file stays."""

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
    made = tiny("classifier", source="tiny_models:learnable")
    assert isinstance(made, Workload)
    return made


def about(**other: object) -> Any:
    said = {"identity": "x", "workers": 1, "epochs": [EPOCH], **other}
    return np.frombuffer(json.dumps(said).encode(), np.uint8)


def npz(save: Callable[..., None] = np.savez, **arrays: Any) -> bytes:
    made = io.BytesIO()
    save(made, **{"about": about(), **{f"model/{k}": v for k, v in WEIGHTS.items()}, **arrays})
    return made.getvalue()


def archive(members: dict[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    return made.getvalue()


def claiming(shape: str) -> bytes:
    """An array of which there is nothing but what it says of itself."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


UNREADABLE = {
    "empty": b"",
    "text": b"my thesis",
    "begins like a zip": b"PK\x03\x04" + b"\0" * 100,
    "truncated": npz()[:-200],
    "cut at its first half": npz()[: len(npz()) // 2],
    "a byte of an array turned": npz().replace(b"identity", b"identitY"),
    "one array, no zip": b"\x93NUMPY\x01\x00" + b"v\0",
    "a pickle": pickle.dumps({"about": 1}),
    "a zip of something else": archive({"letter.txt": b"dear"}),
    "foreign npz": npz(about=np.zeros((3, 3))),
    "an npz without about": archive({"model/weight.npy": claiming("(0,)")}),
    "packed": npz(np.savez_compressed),
    "a claim of terabytes": archive({"about.npy": claiming("(1000000000000,)")}),
    "objects": npz(about=np.array([None], dtype=object)),
    "no epochs": npz(about=about(epochs=[])),
    "epochs of another kind": npz(about=about(epochs=[{}])),
    "no number of workers": npz(about=about(workers=None)),
    "no JSON": npz(about=np.frombuffer(b"{", np.uint8)),
}


@pytest.mark.parametrize("fresh", [False, True])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_is_no_whole_checkpoint_is_a_sentence_before_training_and_stays(
    kind: str, fresh: bool, workload: Workload, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "thesis.npz"
    path.write_bytes(UNREADABLE[kind])
    plan = plan_convergence(workload, checkpoint=path, fresh=fresh)
    monkeypatch.setattr("gpuyard.measure.convergence.run.running_ranks", None)
    with pytest.raises(GpuyardError, match="is not a checkpoint that can be read") as said:
        run_convergence(plan)
    assert "move it away, or name another --checkpoint" in str(said.value)
    assert "\n" not in str(said.value)
    assert path.read_bytes() == UNREADABLE[kind]


def test_a_small_file_that_unpacks_to_gigabytes_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("about.npy", npz())
        with packed.open("model/weight.npy", "w", force_zip64=True) as array:
            array.write(claiming("(512000000,)"))
            for _ in range(2048):
                array.write(bytes(1_000_000))
    assert path.stat().st_size < 4_000_000
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(GpuyardError, match="its arrays are packed, or larger than the file"):
        checkpoints.restore(path, torch.nn.Linear(2, 1), None)  # type: ignore[arg-type]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kB


def test_arrays_that_share_their_bytes_are_larger_than_the_file(tmp_path: Path) -> None:
    one = np.zeros(1_000_000, np.float32)
    path = tmp_path / "shared.npz"
    with zipfile.ZipFile(path, "w") as packed:
        content = io.BytesIO()
        np.save(content, one)
        packed.writestr("model/0.npy", content.getvalue())
        packed.filelist *= 1000
    with pytest.raises(GpuyardError, match="its arrays are packed, or larger than the file"):
        checkpoints.read_about(path)


def test_fresh_forgets_what_is_damaged_in_our_own_directory(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GPUYARD_HOME", home.name)  # relative is fine
    path = checkpoints.default_directory() / "c.npz"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"cut off")
    with pytest.raises(GpuyardError, match="begin again with --fresh"):
        checkpoints.read_about(path)
    checkpoints.forget(path)
    assert not path.exists()
    (tmp_path / "thesis.txt").write_text("mine")
    path.symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(GpuyardError, match="move it away"):
        checkpoints.forget(path)
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
def test_weights_that_do_not_fit_are_one_sentence(arrays: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "c.npz"
    path.write_bytes(npz(**arrays))
    module = torch.nn.Linear(16, 4)
    optimizer = torch.optim.SGD(module.parameters(), 0.1, momentum=0.9)
    before = module.weight.clone()
    with pytest.raises(GpuyardError, match="is not a checkpoint that can be read") as said:
        checkpoints.restore(path, module, optimizer)
    assert "\n" not in str(said.value)
    assert torch.equal(module.weight, before)


def _of_another_model(plan: ConvergencePlan) -> bytes:
    other: dict[str, Any] = {"model/bias": np.zeros(5, np.float32)}
    return npz(about=about(identity=plan.identity), **other)


@MACHINE
def test_a_rank_that_finds_weights_of_another_model_says_one_sentence(
    workload: Workload, tmp_path: Path
) -> None:
    path = tmp_path / "c.npz"
    plan = plan_convergence(workload, checkpoint=path)
    path.write_bytes(_of_another_model(plan))
    with pytest.raises(GpuyardError, match="its weights are of another model") as said:
        run_convergence(plan)
    assert "move it away, or name another --checkpoint" in str(said.value)
    assert "\n" not in str(said.value)
    assert path.read_bytes() == _of_another_model(plan)


def test_a_place_that_cannot_be_written_is_said_before_training(
    workload: Workload, tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpuyard.measure.convergence.run.running_ranks", None)
    (tmp_path / "file").write_text("")
    with pytest.raises(GpuyardError, match="file is a file"):
        plan_convergence(workload, checkpoint=tmp_path / "file" / "c.npz")
    with pytest.raises(GpuyardError, match="is not a file"):
        plan_convergence(workload, checkpoint=tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("os.access", lambda *_: False)  # as root, everything can be written
        with pytest.raises(GpuyardError, match="no permission to write"):
            plan_convergence(workload, checkpoint=tmp_path / "c.npz")
        with pytest.raises(GpuyardError, match="no permission to write"):
            run_convergence(plan_convergence(workload))
    with pytest.raises(GpuyardError, match="can't be written"):  # as root, too
        run_convergence(plan_convergence(workload, checkpoint=Path("/proc/c.npz")))
    checkpoints.default_directory().rmdir()
    checkpoints.default_directory().write_text("in the way")
    with pytest.raises(GpuyardError, match="can't be written"):
        run_convergence(plan_convergence(workload))


@MACHINE
def test_all_of_the_training_data_can_be_learnt(
    workload: Workload, tiny: Any, tmp_path: Path
) -> None:
    small = tiny("classifier", dataset=Dataset(samples=3, source="tiny_models:dataset"))
    path = tmp_path / "c.npz"
    run = run_convergence(plan_convergence(small, epochs=200, target_accuracy=1.0, checkpoint=path))
    assert run.reached
    assert run.last.training_accuracy == 1.0
    assert len(run.epochs) < 200
