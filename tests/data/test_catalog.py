from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path

import made_data as made
import numpy as np
import pytest

from simplexdp import accounting, data
from simplexdp.data import catalog, registry, sources


@pytest.fixture(autouse=True)
def no_remote(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test here reaches the network or a package client."""

    def refuse(form: object, folder: Path) -> sources.Found:
        raise sources.Unavailable("no network in this test")

    monkeypatch.setattr(catalog, "from_download", refuse)
    monkeypatch.setattr(catalog, "from_package", refuse)


def derma_file(folder: Path) -> Path:
    rng = np.random.default_rng(0)
    content = {}
    for part, n in {"train": 14, "val": 7, "test": 7}.items():
        content[f"{part}_images"] = rng.integers(0, 256, (n, 28, 28, 3), dtype=np.uint8)
        content[f"{part}_labels"] = (np.arange(n) % 7).astype(np.uint8)[:, None]
    folder.mkdir()
    np.savez(folder / "dermamnist.npz", **content)
    return folder


def test_a_file_that_is_not_the_original_needs_the_flag(cache_dir: Path, tmp_path: Path) -> None:
    folder = derma_file(tmp_path / "files")
    with pytest.raises(ValueError, match=r"expected 0744692d.*--allow-unverified"):
        data.load("dermamnist", data_dir=folder)
    dataset = data.load("dermamnist", data_dir=folder, allow_unverified=True)
    digest = hashlib.sha256((folder / "dermamnist.npz").read_bytes()).hexdigest()
    assert dataset.provenance == (  # no checksum: it may be of private records
        "not MedMNIST's own file: dermamnist.npz; results on it are not MedMNIST results",
    )
    assert dataset.checksums == {"dermamnist.npz": digest}
    assert dataset.validation is not None
    assert len(dataset.validation) == 7


def test_the_cached_unverified_copy_also_needs_the_flag(cache_dir: Path, tmp_path: Path) -> None:
    folder = derma_file(tmp_path / "files")
    data.load("dermamnist", data_dir=folder, allow_unverified=True)
    with pytest.raises(ValueError, match="could not be had"):
        data.load("dermamnist")
    again = data.load("dermamnist", allow_unverified=True)
    assert "not MedMNIST's own file" in again.provenance[0]
    facts = data.describe("dermamnist")
    assert (facts["status"], facts["verified"]) == ("present, not verified", False)
    assert not data.present("dermamnist")


def test_the_known_copy_is_named(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = derma_file(tmp_path / "files")
    digest = hashlib.sha256((folder / "dermamnist.npz").read_bytes()).hexdigest()
    monkeypatch.setitem(registry.KNOWN_COPIES, digest, "JPEG copy")
    dataset = data.load("dermamnist", data_dir=folder, allow_unverified=True)
    assert dataset.provenance[0].startswith("JPEG copy, not MedMNIST's own file")
    assert digest in dataset.provenance[0]  # of a file that others have too
    assert dataset.checksums == {}


def test_the_flag_does_not_help_a_set_that_has_no_copies(cache_dir: Path, tmp_path: Path) -> None:
    made.write_files(tmp_path / "files", made.gz_files())
    with pytest.raises(ValueError, match="expected f68b3c2d"):
        data.load("mnist", data_dir=tmp_path / "files", allow_unverified=True)


def test_the_svhn_part_says_what_is_missing(cache_dir: Path, tmp_path: Path) -> None:
    labels = (np.arange(10_000) % 10).astype(np.uint8)
    (tmp_path / "files").mkdir()
    np.savez(
        tmp_path / "files" / "svhn_test_first10000.npz",
        images=np.zeros((10_000, 32, 32, 3), dtype=np.uint8),
        labels=labels,
    )
    with pytest.raises(ValueError, match="--allow-unverified"):
        data.load("svhn", data_dir=tmp_path / "files")
    dataset = data.load("svhn", data_dir=tmp_path / "files", allow_unverified=True)
    assert (len(dataset.train), len(dataset.test)) == (8_000, 2_000)
    assert "training set is missing" in dataset.provenance[1]


def test_sources_are_tried_in_order_and_every_reason_is_said(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    asked: list[str] = []

    def failing(kind: str):
        def attempt(form: object, folder: Path) -> sources.Found:
            asked.append(kind)
            raise sources.Unavailable(f"no {kind}")

        return attempt

    monkeypatch.setattr(catalog, "from_download", failing("download"))
    monkeypatch.setattr(catalog, "from_package", failing("package"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"holds no form of mnist; no download; no package\)"):
        data.load("mnist", data_dir=tmp_path / "empty")
    assert asked == ["download", "package"]
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == ""  # the error says it


def test_the_environment_names_the_folder(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.RECORDS, "made", made.made_record())
    made.write_files(tmp_path / "files", made.gz_files())
    monkeypatch.setenv("SIMPLEXDP_DATA_DIR", str(tmp_path / "files"))
    assert len(data.load("made").test) == 6


def test_wrong_counts_are_refused_even_with_the_right_checksums(
    cache_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = dataclasses.replace(
        made.made_record(), class_counts={"train": (5, 4, 3), "test": (2, 2, 2)}
    )
    monkeypatch.setitem(registry.RECORDS, "made", record)
    made.write_files(tmp_path / "files", made.gz_files())
    with pytest.raises(ValueError, match="class counts differ"):
        data.load("made", data_dir=tmp_path / "files")
    assert not data.present("made")


def test_describe_gives_the_published_facts_of_an_absent_set(cache_dir: Path) -> None:
    facts = data.describe("svhn")
    assert facts["status"] == "not present"
    assert facts["counts"] == {"train": 73_257, "test": 26_032}
    assert facts["files"]["train_32x32.mat"] == "md5:e26dedcc434d2e4c54c9b2d4a06d8373"
    assert data.check("svhn")["checked"] == "not present"
    assert data.describe("dermamnist")["counts"] == {
        "train": 7_007,
        "validation": 1_003,
        "test": 2_005,
    }
    assert data.describe("digits")["counts"] == {"train": 1437, "test": 360}


def test_every_record_is_consistent() -> None:
    for record in registry.RECORDS.values():
        for counts in record.class_counts.values():
            assert len(counts) == len(record.class_names)
        for form in (*record.forms, *record.unverified):
            for file in form.files:
                assert len(file.digest) == {"md5": 32, "sha256": 64}[file.algorithm]
        assert any(form.downloadable for form in record.forms)
        assert set(record.content) <= {
            f"{s}_{w}" for s in record.counts for w in ("inputs", "labels")
        }


def test_what_a_list_says_of_the_digits_is_so():
    """It is said without loading them."""
    digits, said = data.load("digits"), data.describe("digits")
    assert said["shape"] == list(digits.input_shape)
    assert said["class_names"] == list(digits.class_names)
    for name, split in (("train", digits.train), ("test", digits.test)):
        assert said["counts"][name] == len(split)
        assert said["class_counts"][name] == np.bincount(split.labels).tolist()


def test_the_names_of_the_accountants_are_those_that_there_are():
    assert tuple(accounting.ACCOUNTANTS) == accounting.NAMES
