from __future__ import annotations

import io
import json
import os
import pickle
import struct
from pathlib import Path

import made_data as made
import numpy as np
import pytest
import scipy.io
from PIL import Image

from simplexdp.data import archives, readers
from simplexdp.data.dataset import DataError


def paths(folder: Path, files: dict[str, bytes]) -> dict[str, Path]:
    made.write_files(folder, files)
    return {name: folder / name for name in files}


def assert_made(splits: dict[str, readers.Split]) -> None:
    assert np.array_equal(splits["train"].inputs[:, 0], made.images(12, 1))
    assert np.array_equal(splits["test"].inputs[:, 0], made.images(6, 2))
    assert splits["train"].labels.tolist() == [0, 1, 2] * 4
    assert splits["train"].labels.dtype == np.int64


def test_idx_in_its_four_wrappings(tmp_path: Path) -> None:
    raw, gz = made.idx_contents(), made.gz_files()
    deb = made.deb_bytes({f"./usr/share/datasets/fashion-mnist/{n}": b for n, b in gz.items()})
    assert_made(readers.idx(paths(tmp_path, raw)))
    assert_made(readers.idx_gz(paths(tmp_path, gz)))
    assert_made(readers.idx_npm(paths(tmp_path, {"a.tgz": made.npm_archive()})))
    assert_made(readers.idx_deb(paths(tmp_path, {"a.deb": deb})))


@pytest.mark.parametrize("cut", [0, 3, 10, 100, -1])
def test_truncated_idx_is_refused(cut: int) -> None:
    raw = made.idx_bytes(made.images(12))
    with pytest.raises(DataError, match=r"truncated|not an idx"):
        readers.parse_idx(raw[:cut], "images")
    with pytest.raises(DataError, match="truncated or padded"):
        readers.parse_idx(raw + b"x", "images")


def test_truncated_archives_are_refused(tmp_path: Path) -> None:
    tgz = made.npm_archive()
    deb = made.deb_bytes({"usr/share/x": b"1"})
    cases = {"a.tgz": tgz[: len(tgz) // 2], "b.deb": deb[:-40], "c.deb": deb[:90], "d.deb": b"no"}
    files = paths(tmp_path, cases)
    with pytest.raises(DataError, match="not a complete tar"):
        readers.idx_npm({"a": files["a.tgz"]})
    for name in ("b.deb", "c.deb", "d.deb"):
        with pytest.raises(DataError, match=r"\.deb"):
            archives.deb_members(files[name], ["usr/share/x"])
    with pytest.raises(DataError, match="not a complete gzip"):
        archives.gunzip(made.gz_files()["train-labels-idx1-ubyte.gz"][:-5], "labels")


def test_an_archive_without_the_members_is_refused() -> None:
    with pytest.raises(DataError, match="lacks b"):
        archives.tar_members(made.tar_bytes({"a": b"1"}), ["a", "b"], "x.tgz")


RECORDS = 40


def cifar_batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.integers(0, 256, (RECORDS, 3072), dtype=np.uint8), rng.integers(0, 10, RECORDS))
        for _ in range(6)
    ]


@pytest.fixture
def batches(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray]]:
    """Batches of RECORDS images instead of 10,000, to keep the tests quick."""
    monkeypatch.setattr(readers, "CIFAR_RECORDS", RECORDS)
    return cifar_batches()


def assert_cifar(splits: dict[str, readers.Split], batches: list) -> None:
    train = np.concatenate([p for p, _ in batches[:5]]).reshape(5 * RECORDS, 3, 32, 32)
    assert np.array_equal(splits["train"].inputs, train)
    assert np.array_equal(splits["train"].labels, np.concatenate([y for _, y in batches[:5]]))
    assert np.array_equal(splits["test"].inputs.reshape(RECORDS, 3072), batches[5][0])
    assert np.array_equal(splits["test"].labels, batches[5][1])


def test_cifar_binary(tmp_path: Path, batches: list) -> None:
    names = [f"{n}.bin" for n in readers.CIFAR_BATCHES]
    raw = {
        n: np.concatenate([y[:, None].astype(np.uint8), p], axis=1).tobytes()
        for n, (p, y) in zip(names, batches, strict=True)
    }
    assert_cifar(readers.cifar_bin(paths(tmp_path, raw)), batches)
    tar = made.tar_bytes({f"cifar-10-batches-bin/{n}": b for n, b in raw.items()}, "")
    assert_cifar(readers.cifar_bin_tar(paths(tmp_path, {"c.tar": tar})), batches)
    with pytest.raises(DataError, match="truncated or padded"):
        readers.parse_cifar_bin(raw[names[0]][:-1], names[0])


def python2_pickle(pixels: np.ndarray, labels: np.ndarray) -> bytes:
    """The opcodes cPickle of Python 2 writes at protocol 2 for a CIFAR10 batch's dictionary."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode() + b"q\x01"

    numbers = b"".join(b"K" + bytes([int(k)]) for k in labels)
    data = pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85U\x01b\x87R"
        b"(K\x01K(M\x00\x0c\x86cnumpy\ndtype\nU\x02u1K\x00K\x01\x87R(K\x03U\x01|NNNJ\xff\xff"
        b"\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T" + struct.pack("<I", len(data)) + data + b"tb"
    )
    return (
        b"\x80\x02}q\x01("
        + text("batch_label")
        + text("training batch 1 of 5")
        + text("labels")
        + b"]q\x02("
        + numbers
        + b"e"
        + text("data")
        + array
        + text("filenames")
        + b"]("
        + text("a.png")
        + b"e"
        + b"u."
    )


def test_cifar_python_batches_are_read_without_unpickling(tmp_path: Path, batches: list) -> None:
    for raw in (
        python2_pickle(*batches[0]),
        pickle.dumps({"labels": batches[0][1].tolist(), "data": batches[0][0]}, protocol=4),
        pickle.dumps({b"data": batches[0][0], b"labels": batches[0][1].tolist()}, protocol=3),
    ):
        pixels, labels = readers.parse_cifar_py(raw, "data_batch_1")
        assert np.array_equal(pixels, batches[0][0])
        assert np.array_equal(labels, batches[0][1])


class Bomb:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.marker),)


def test_a_hostile_pickle_is_not_executed(tmp_path: Path, batches: list) -> None:
    marker = tmp_path / "executed"
    pixels, labels = batches[0]
    hostile = pickle.dumps({"labels": labels.tolist(), "data": pixels, "x": Bomb(marker)}, 2)
    pickle.loads(pickle.dumps(Bomb(marker)))
    assert marker.exists(), "the bomb works where a pickle is loaded"
    marker.rmdir()
    readers.parse_cifar_py(hostile, "data_batch_1")
    with pytest.raises(DataError):
        readers.parse_cifar_py(pickle.dumps(Bomb(marker)), "data_batch_1")
    with pytest.raises(DataError):
        readers.parse_cifar_py(hostile[: len(hostile) // 2], "data_batch_1")
    np.savez(tmp_path / "o.npz", X=np.array([Bomb(marker)], dtype=object))
    with pytest.raises(DataError, match="only plain arrays"):
        readers.npz_arrays(tmp_path / "o.npz", ("X",))
    (tmp_path / "p.npz").write_bytes(pickle.dumps(Bomb(marker)))
    with pytest.raises(DataError, match="not a complete"):
        readers.npz_arrays(tmp_path / "p.npz", ("X",))
    assert not marker.exists()


def test_cifar_png_rows_are_images(tmp_path: Path, batches: list) -> None:
    def png(pixels: np.ndarray) -> bytes:
        rows = pixels.reshape(-1, 3, 1024).transpose(0, 2, 1)
        buffer = io.BytesIO()
        Image.fromarray(np.ascontiguousarray(rows)).save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()

    pictures = [png(batches[k][0]) for k in (0, 5)]
    members = {f"package/{n}.png": pictures[n == "test_batch"] for n in readers.CIFAR_BATCHES}
    labels = np.concatenate([y for _, y in batches]).tolist()
    members["package/train_lables.json"] = json.dumps(labels[: 5 * RECORDS]).encode()
    members["package/test_lables.json"] = json.dumps(labels[5 * RECORDS :]).encode()
    tgz = made.tar_bytes(members, "")
    repeated = [(batches[0][0], y) for _, y in batches[:5]] + [batches[5]]
    assert_cifar(readers.cifar_npm(paths(tmp_path, {"c.tgz": tgz})), repeated)
    with pytest.raises(DataError, match="not a complete PNG"):
        readers.parse_cifar_png(pictures[0][:-500], "data_batch_1.png")
    small = io.BytesIO()
    Image.new("RGB", (8, 8)).save(small, "PNG")
    with pytest.raises(DataError, match="has shape"):
        readers.parse_cifar_png(small.getvalue(), "data_batch_1.png")


def test_svhn_mat_puts_channels_first_and_ten_is_zero(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (32, 32, 3, 5), dtype=np.uint8)
    for name in ("train", "test"):
        scipy.io.savemat(
            tmp_path / f"{name}_32x32.mat",
            {"X": pixels, "y": np.array([[10], [1], [2], [9], [10]])},
        )
    files = {f"{n}_32x32.mat": tmp_path / f"{n}_32x32.mat" for n in ("train", "test")}
    split = readers.svhn_mat(files)["train"]
    assert split.labels.tolist() == [0, 1, 2, 9, 0]
    assert split.inputs.shape == (5, 3, 32, 32)
    assert split.inputs[3, 2, 7, 11] == pixels[7, 11, 2, 3]
    files["train_32x32.mat"].write_bytes(b"not a mat file")
    with pytest.raises(DataError, match="not an SVHN"):
        readers.svhn_mat(files)


def test_medmnist_keeps_its_validation_split(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    sizes = {"train": 7, "val": 3, "test": 4}
    content = {}
    for part, n in sizes.items():
        content[f"{part}_images"] = rng.integers(0, 256, (n, 28, 28, 3), dtype=np.uint8)
        content[f"{part}_labels"] = rng.integers(0, 7, (n, 1), dtype=np.uint8)
    np.savez(tmp_path / "d.npz", **content)
    splits = readers.medmnist({"d.npz": tmp_path / "d.npz"})
    assert {n: len(s) for n, s in splits.items()} == {"train": 7, "validation": 3, "test": 4}
    assert splits["validation"].inputs[1, 2, 5, 6] == content["val_images"][1, 5, 6, 2]
    assert splits["test"].labels.tolist() == content["test_labels"][:, 0].tolist()
    whole = (tmp_path / "d.npz").read_bytes()
    (tmp_path / "d.npz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match="not a complete"):
        readers.medmnist({"d.npz": tmp_path / "d.npz"})


def test_svhn_subset_is_split_for_lack_of_a_training_set(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 10, 10_000).astype(np.uint8)
    pixels = np.zeros((10_000, 32, 32, 3), dtype=np.uint8)
    pixels[:, 0, 0, 0] = labels
    np.savez(tmp_path / "s.npz", images=pixels, labels=labels)
    splits = readers.svhn_subset({"s.npz": tmp_path / "s.npz"})
    assert {n: len(s) for n, s in splits.items()} == {"train": 8_000, "test": 2_000}
    for split in splits.values():
        assert np.array_equal(split.inputs[:, 0, 0, 0], split.labels)
