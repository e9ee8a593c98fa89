"""Sixty things that people give wrongly: each one line, exit code 2, and nothing spent."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from simplexdp import methods
from simplexdp.settings import Settings

MOST_WORDS = 40


def picture(path: Path, mode: str = "L", size: tuple[int, int] = (4, 4)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size).save(path)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of every wrong kind, beside right ones, and a finished run."""
    base = tmp_path_factory.mktemp("wrong")
    for name in ("a", "b"):
        for k in range(6):
            picture(base / "good" / name / f"{k}.png")
            picture(base / "mixed" / name / f"{k}.png")
            picture(base / "deep" / name / f"{k}.tif", "F")
            picture(base / "broken" / name / f"{k}.png")
            picture(base / "scans" / name / f"p{k}" / "0.png")
    picture(base / "one" / "a" / "0.png")
    picture(base / "mixed" / "a" / "p0" / "0.png")
    picture(base / "bmp" / "a" / "0.bmp")
    picture(base / "bmp" / "b" / "0.png")
    picture(base / "single" / "a" / "0.png")
    picture(base / "single" / "b" / "0.png")
    (base / "empty" / "a").mkdir(parents=True)
    picture(base / "empty" / "b" / "0.png")
    (base / "broken/a/0.png").write_bytes(b"no picture")
    rows = [f"{k},{'fm'[k % 2]},{('no', 'yes')[k % 2]}" for k in range(20)]
    tables = {
        "t": ["age,sex,y", *rows],
        "gaps": ["age,sex,y", *rows[:-1], ",f,no"],
        "words": ["age,sex,y", *rows[:-1], "old,f,no"],
        "headless": rows,
        "semicolon": ["age;sex;y", *(r.replace(",", ";") for r in rows)],
        "ragged": ["age,sex,y", *rows, "1,2,3,4"],
        "twice": ["age,age,y", *rows],
        "oneclass": ["age,sex,y", *(f"{k},f,no" for k in range(20))],
        "norecords": ["age,sex,y"],
        "other": ["age,sex,y", "3,f,maybe"],
    }
    for name, lines in tables.items():
        (base / f"{name}.csv").write_text("\n".join(lines))
    (base / "latin.csv").write_bytes(b"age,sex,y\n\xe9,f,n\n1,m,y\n")
    (base / "notes.txt").write_text("x")
    (base / "schema.json").write_text('{"columns": {"age": {"bound": [0, 1]}}}')
    (base / "nojson.json").write_text("{")
    (base / "fake.npz").write_text("x")
    x, y = np.zeros((20, 3)), np.arange(20) % 2
    np.savez(base / "a.npz", X=x, y=y)
    np.savez(base / "nolabels.npz", X=x)
    np.savez(base / "nan.npz", X=np.full((20, 3), np.nan), y=y)
    np.savez(base / "short.npz", X=x, y=y[:3])
    np.savez(base / "objects.npz", X=np.array([{}] * 20, dtype=object), y=y)
    settings = Settings(method="certified", options={"features": "columns"})
    methods.run(settings, base / "run")
    return base


SIZE = ("--image-size", "4x4x1")
TABLE = ("--label", "y", "--bounds", "age=0:99", "--categories", "sex=f|m")
WRONG: list[tuple[str, str]] = [
    # folders of pictures
    ("--data {b}/good", "give --image-size 4x4x1"),
    ("--data {b}/nowhere", "neither a file or folder"),
    ("--data {b}/one --image-size 4x4x1", "at least two classes"),
    ("--data {b}/single --image-size 4x4x1", "no classification label"),
    ("--data {b}/empty --image-size 4x4x1", "holds no"),
    ("--data {b}/bmp --image-size 4x4x1", "not PNG, JPEG, TIFF or DICOM"),
    ("--data {b}/mixed --image-size 4x4x1", "beside and in folders"),
    ("--data {b}/broken --image-size 4x4x1", "image 1 of class a"),
    ("--data {b}/deep --image-size 4x4x1", "--window low:high"),
    ("--data {b}/deep --image-size 4x4x1 --window 1:0", "finite lo < hi"),
    ("--data {b}/deep --image-size 4x4x1 --window wide", "are not numbers"),
    ("--data {b}/good --image-size 4x4x2", "cannot read the image size"),
    ("--data {b}/good --image-size big", "cannot read the image size"),
    ("--data {b}/good --image-size 4x4x1 --label y", "has no use for"),
    ("--data {b}/good --image-size 4x4x1 --missing 0", "has no use for"),
    ("--data {b}/good --image-size 4x4x1 --test {b}/nowhere", "does not exist"),
    ("--data {b}/good --image-size 4x4x1 --test-fraction 2", "not between 0 and 1"),
    ("--data {b}/scans --image-size 4x4x1 --test {b}/scans", "both training and test"),
    # tables
    ("--data {b}/t.csv", "name its label column"),
    ("--data {b}/t.csv --label z", "none called 'z'"),
    ("--data {b}/t.csv --label y", "neither bounds nor categories"),
    ("--data {b}/t.csv --label y --bounds age", "write column=lo:hi"),
    ("--data {b}/t.csv --label y --bounds age=9:0", "finite lo < hi"),
    ("--data {b}/t.csv --label y --bounds agee=0:9", "no column agee"),
    ("--data {b}/t.csv --label y --bounds age=0:99 --categories sex=f", "at least two"),
    ("--data {b}/t.csv --label y --bounds age=0:99 --categories sex=f|x", "outside its"),
    ("--data {b}/t.csv --image-size 4", "has no use for an image size"),
    ("--data {b}/t.csv TABLE --window 0:9", "or a window"),
    ("--data {b}/t.csv TABLE --test {b}/other.csv", "which the training data lacks"),
    ("--data {b}/gaps.csv TABLE", "--missing age=VALUE"),
    ("--data {b}/gaps.csv TABLE --missing age=300", "is no value of that column"),
    ("--data {b}/gaps.csv TABLE --missing agee=3", "no column agee"),
    ("--data {b}/words.csv TABLE --missing age=3", "no numbers"),
    ("--data {b}/headless.csv TABLE", "the first line must name the columns"),
    ("--data {b}/semicolon.csv TABLE", "with a comma between them"),
    ("--data {b}/ragged.csv TABLE", "not a well-formed"),
    ("--data {b}/twice.csv TABLE", "two columns of the same name"),
    ("--data {b}/oneclass.csv TABLE", "at least two"),
    ("--data {b}/norecords.csv TABLE", "not a well-formed"),
    ("--data {b}/latin.csv TABLE", "UTF-8"),
    ("--data {b}/t.csv --schema {b}/schema.json --label y", "exactly one of"),
    ("--data {b}/t.csv --schema {b}/nojson.json --label y", "is not JSON"),
    # arrays and other files
    ("--data {b}/a.npz", "has no bounds"),
    ("--data {b}/nolabels.npz --bounds 0:1", "lacks the array y"),
    ("--data {b}/nan.npz --bounds 0:1", "missing, infinite"),
    ("--data {b}/short.npz --bounds 0:1", "for each record"),
    ("--data {b}/objects.npz --bounds 0:1", "Python objects"),
    ("--data {b}/fake.npz --bounds 0:1", "not a complete .npz"),
    ("--data {b}/notes.txt", "is none of"),
    # budgets and settings
    ("--delta 0.01", "may be published whole"),
    ("--epsilon -2", "epsilon is -2"),
    ("--option depth=3", "does not know the option"),
    ("--model cnn", "no use for --model"),
]
OTHER: list[tuple[str, str]] = [
    ("train --data {b}/good --image-size 4x4x1", "no method for your own data"),
    ("predict {b}/nowhere {b}/good", "there is no folder"),
    ("predict {b}/run {b}/nowhere.npz", "no file or folder"),
    ("predict {b}/run {b}/good", "was trained on arrays"),
    ("predict {b}/run {b}/a.npz", "the model takes (1, 8, 8)"),
    ("predict {b}/run {b}/a.npz --out {b}/notes.txt", "exists; name another file"),
    ("export {b}/run --out {b}/notes.txt", "exists; name another file"),
    ("release {b}/run --to {b}/good", "exists; name a new folder"),
    ("verify {b}/good", "finished model"),
]


def lines() -> list[tuple[str, str]]:
    trains = [(f"train --method certified {given}", said) for given, said in WRONG]
    return [*trains, *OTHER]


def test_there_are_sixty() -> None:
    assert len(lines()) >= 60


@pytest.mark.parametrize(("given", "said"), lines(), ids=[given for given, _ in lines()])
def test_one_line_and_nothing_spent(
    base: Path, tmp_path: Path, fail: Callable[..., str], given: str, said: str
) -> None:
    words = [
        part.format(b=base)
        for word in given.split()
        for part in (TABLE if word == "TABLE" else (word,))
    ]
    before = json.dumps(sorted(os.listdir(base)))
    line = fail(*words)
    assert said in line, line
    assert len(line.replace(str(base), "").split()) <= MOST_WORDS, line
    assert json.dumps(sorted(os.listdir(base))) == before
    assert not (tmp_path / "ledger.jsonl").exists()
