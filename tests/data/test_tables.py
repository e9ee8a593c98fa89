from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest

from simplexdp import data
from simplexdp.data.split import stratified_split

SECRET = "987654.321"


def columns(records: int = 40) -> dict[str, list[Any]]:
    rng = np.random.default_rng(3)
    return {
        "age": rng.integers(0, 150, records).tolist(),
        "sex": [("f", "m")[k % 2] for k in range(records)],
        "income": rng.normal(10, 5, records).tolist(),
        "target": [("no", "yes")[k % 4 == 0] for k in range(records)],
    }


def write(path: Path, content: dict[str, list[Any]]) -> Path:
    table = pa.table(content)
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pyarrow.parquet.write_table(table, path)
    return path


DECLARED = {
    "label": "target",
    "bounds": ["age=0:120", "income=-10:30"],
    "categories": "sex=f|m",
}


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_a_table_is_scaled_and_encoded_by_the_given_rules(tmp_path: Path, suffix: str) -> None:
    content = columns()
    dataset = data.load(write(tmp_path / f"t{suffix}", content), **DECLARED)
    assert dataset.class_names == ("no", "yes")
    assert (len(dataset.train), len(dataset.test)) == (32, 8)
    assert dataset.input_shape == (4,)
    assert dataset.train.inputs.dtype == np.float32
    assert dataset.computed_from_data == ()
    assert np.bincount(dataset.test.labels).tolist() == [6, 2]
    expected = {
        (
            np.float32(min(a, 120) / 60 - 1),
            round((min(max(i, -10), 30) + 10) / 20 - 1, 4),
            np.float32(s == "f"),
            np.float32(s == "m"),
            int(t == "yes"),
        )
        for a, s, i, t in zip(*content.values(), strict=True)
    }
    actual = {
        (x[0], round(float(x[1]), 4), x[2], x[3], int(y))  # columns in the order of their names
        for split in (dataset.train, dataset.test)
        for x, y in zip(split.inputs, split.labels, strict=True)
    }
    assert actual == expected


def test_csv_and_parquet_give_the_same_data(tmp_path: Path) -> None:
    both = [
        data.load(write(tmp_path / f"t{s}", columns()), **DECLARED) for s in (".csv", ".parquet")
    ]
    assert np.array_equal(both[0].train.inputs, both[1].train.inputs)
    assert np.array_equal(both[0].test.labels, both[1].test.labels)


def test_a_column_without_a_rule_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", columns())
    with pytest.raises(ValueError, match=r"2 columns have neither .*\(age, income\)"):
        data.load(path, label="target", categories="sex=f|m")
    with pytest.raises(ValueError, match=r"1 column has neither .*\(age\)"):
        data.load(path, label="target", categories="sex=f|m", bounds="income=-10:30")


def test_public_columns_are_computed_from_training_records_and_named(tmp_path: Path) -> None:
    content = columns()
    for suffix in (".csv", ".parquet"):
        dataset = data.load(
            write(tmp_path / f"t{suffix}", content),
            label="target",
            bounds="income=-10:30",
            public_columns="age,sex",
        )
        assert dataset.computed_from_data == (
            "the bounds of column age (minimum and maximum of the training records)",
            "the categories of column sex (those of the training records)",
        )
        ages = dataset.train.inputs[:, 0]
        assert (ages.min(), ages.max()) == (-1.0, 1.0)
        assert dataset.input_shape == (5,), "age, f, m, any other, income"


def test_public_bounds_do_not_read_the_test_records(tmp_path: Path) -> None:
    content = columns()
    content["age"][0] = 10_000
    labels = np.array([t == "yes" for t in content["target"]], dtype=np.int64)
    seed = next(s for s in range(100) if 0 in stratified_split(labels, 8, s)[1])
    dataset = data.load(
        write(tmp_path / "t.csv", content), label="target", public_columns="*", split_seed=seed
    )
    assert dataset.train.inputs[:, 0].max() == 1.0
    assert dataset.test.inputs[:, 0].max() == 1.0, "clipped"


def test_bounds_do_not_depend_on_a_record_that_is_not_public(tmp_path: Path) -> None:
    """With given bounds one record's value changes that record's features and nothing else."""
    content = columns()
    first = data.load(write(tmp_path / "t.csv", content), **DECLARED)
    content["income"][0] = 1e6
    second = data.load(write(tmp_path / "t.csv", content), **DECLARED)
    changed = np.concatenate(
        [
            (getattr(first, s).inputs != getattr(second, s).inputs).any(axis=1)
            for s in ("train", "test")
        ]
    )
    assert changed.sum() == 1


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_values_are_refused_by_count_and_name_alone(tmp_path: Path, suffix: str) -> None:
    content = columns()
    content["income"] = [None if k in (3, 5) else v for k, v in enumerate(content["income"])]
    with pytest.raises(
        ValueError,
        match=r"column income has [12] missing values: say what .* --missing income=VALUE",
    ):
        data.load(write(tmp_path / f"t{suffix}", content), **DECLARED)
    content = columns()
    content["sex"] = [None, *content["sex"][1:]]
    with pytest.raises(ValueError, match="column sex has 1 missing"):
        data.load(write(tmp_path / f"t{suffix}", content), **DECLARED)


def refusal(path: Path, **options: Any) -> str:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        data.load(path, **options)
    chain: list[str] = []
    error: BaseException | None = caught.value
    while error is not None:
        chain.append(str(error))
        # What a traceback would print: the cause, or the context unless it is suppressed.
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return " ".join(chain)


def test_no_message_shows_a_private_value(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    ragged = f"age,target\n1,a\n{SECRET},b,c\n" * 2
    for text in (ragged, f"age,target\n1,a\nx{SECRET},b\n" * 4):
        path.write_text(text)
        assert SECRET not in refusal(path, label="target", bounds="age=0:1")
    path.write_text("age,target\n" + f"{SECRET},a\n{SECRET},b\n" * 4)
    message = refusal(path, label="target", categories="age=1|2")
    assert "values outside its categories: correct them, or train with more" in message
    assert SECRET not in message


def test_the_star_category_takes_all_others(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", columns())
    options = {**DECLARED, "categories": "sex=f|*"}
    assert data.load(path, **options).input_shape == (4,)
    with pytest.raises(ValueError, match=r"column sex has [0-9]+ of [0-9]+ values outside"):
        data.load(path, **{**DECLARED, "categories": "sex=f|x"})


def test_a_test_table_of_its_own(tmp_path: Path) -> None:
    train = write(tmp_path / "train.csv", columns())
    test = write(tmp_path / "test.csv", columns(12))
    dataset = data.load(train, test=test, **DECLARED)
    assert (len(dataset.train), len(dataset.test)) == (40, 12)
    assert "tested on test.csv" in dataset.provenance[0]
    strange = {**columns(12), "target": ["maybe"] * 12}
    with pytest.raises(ValueError, match="class 'maybe', which the training data lacks"):
        data.load(train, test=write(tmp_path / "other.csv", strange), **DECLARED)
    fewer = {k: v for k, v in columns(12).items() if k != "age"}
    with pytest.raises(ValueError, match="lacks the column age"):
        data.load(train, test=write(tmp_path / "fewer.csv", fewer), **DECLARED)
    with pytest.raises(ValueError, match="does not exist"):
        data.load(train, test=tmp_path / "none.csv", **DECLARED)


def test_mistakes_in_the_declarations_are_named(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", columns())
    with pytest.raises(ValueError, match="name its label column"):
        data.load(path)
    with pytest.raises(ValueError, match=r"has 4 column.s., none called 'y'"):
        data.load(path, label="y")
    headless = tmp_path / "headless.csv"
    headless.write_text("\n".join(path.read_text().splitlines()[1:]))
    with pytest.raises(ValueError, match="the first line must name the columns") as found:
        data.load(headless, label="target")
    first = headless.read_text().splitlines()[0].replace('"', "").split(",")
    assert not any(value in str(found.value) for value in first if len(value) > 1)
    with pytest.raises(ValueError, match="no column agee in the table"):
        data.load(path, label="target", bounds="agee=0:1")
    with pytest.raises(ValueError, match="not between 0 and 1"):
        data.load(path, test_fraction=1.5, **DECLARED)


def test_labels_that_are_no_classes_are_refused(tmp_path: Path) -> None:
    content = {**columns(), "target": [0.1 * k for k in range(40)]}
    with pytest.raises(ValueError, match="no classification label"):
        data.load(write(tmp_path / "t.csv", content), **DECLARED)
    content["target"] = ["one"] * 40
    with pytest.raises(ValueError, match="1 class: a classifier needs at least two"):
        data.load(write(tmp_path / "t.csv", content), **DECLARED)
    content["target"] = ["one"] * 39 + ["two"]
    with pytest.raises(ValueError, match="a class has a single record"):
        data.load(write(tmp_path / "t.csv", content), **DECLARED)


def test_numeric_labels_are_ordered_as_numbers(tmp_path: Path) -> None:
    content = {**columns(), "target": [k % 12 for k in range(40)]}
    dataset = data.load(write(tmp_path / "t.parquet", content), **DECLARED)
    assert dataset.class_names == tuple(str(k) for k in range(12))


def test_booleans_have_their_range_by_type(tmp_path: Path) -> None:
    content = {"flag": [k % 3 == 0 for k in range(40)], "target": columns()["target"]}
    dataset = data.load(write(tmp_path / "t.parquet", content), label="target")
    assert set(np.unique(dataset.train.inputs)) == {-1.0, 1.0}
    assert dataset.computed_from_data == ()


def test_large_whole_numbers_are_rounded_and_other_types_are_named(tmp_path: Path) -> None:
    content = {"n": [2**53 + 1 + k for k in range(40)], "target": columns()["target"]}
    path = write(tmp_path / "t.parquet", content)
    dataset = data.load(path, label="target", bounds=[f"n=0:{2**54}"])
    assert np.allclose(dataset.train.inputs, 0.0, atol=1e-6)
    path = write(tmp_path / "u.parquet", {**content, "n": [[k] for k in range(40)]})
    with pytest.raises(ValueError, match="column n is neither numbers nor text; --drop it"):
        data.load(path, label="target", public_columns="n")


def test_a_table_without_a_header_is_not_read(tmp_path: Path) -> None:
    """Its first record would be lost, and its values would stand where names of columns do."""
    lines = [f"{k},{'ab'[k % 2]},Anna {k}" for k in range(40)]
    path = tmp_path / "headless.csv"
    path.write_text("\n".join(lines))
    for more in ({}, {"public_columns": "*"}):
        with pytest.raises(ValueError, match="seems to have no header") as found:
            data.load(path, label="a", **more)
        assert "Anna" not in str(found.value)


def test_a_schema_of_another_form_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", columns())
    schema = tmp_path / "schema.json"
    schema.write_text('{"label": "target", "bounds": {"age": [0, 120]}}')
    with pytest.raises(ValueError, match="has the key 'bounds'; it takes label and columns"):
        data.load(path, schema=schema)


@pytest.mark.parametrize("missing", ["NA", "NaN", " ", "null"])
def test_a_missing_label_or_public_value_is_no_class(tmp_path: Path, missing: str) -> None:
    for name in ("target", "sex"):
        content = columns()
        content[name] = [missing, *content[name][1:]]
        path = write(tmp_path / "t.csv", content)
        with pytest.raises(ValueError, match=f"column {name} has 1 missing"):
            data.load(path, label="target", public_columns="*")
    content = columns()
    content["sex"] = ["NA", *content["sex"][1:]]
    known = {**DECLARED, "categories": f"{DECLARED['categories']}|NA"}
    assert len(data.load(write(tmp_path / "t.csv", content), **known).train) == 32


def test_spaces_make_no_class_of_their_own(tmp_path: Path) -> None:
    content = columns()
    plain = data.load(write(tmp_path / "t.csv", content), **DECLARED)
    content["target"] = [
        f" {label}" if k % 2 else label for k, label in enumerate(content["target"])
    ]
    spaced = data.load(write(tmp_path / "t.csv", content), **DECLARED)
    assert spaced.class_names == plain.class_names
    assert np.array_equal(spaced.train.labels, plain.train.labels)


def test_bytes_have_their_range_by_type(tmp_path: Path) -> None:
    table = pa.table({"grey": pa.array([0, 255] * 20, pa.uint8()), "target": columns()["target"]})
    pyarrow.parquet.write_table(table, tmp_path / "t.parquet")
    dataset = data.load(tmp_path / "t.parquet", label="target")
    assert set(np.unique(dataset.train.inputs)) == {-1.0, 1.0}
    assert dataset.computed_from_data == ()


def test_semicolons_are_not_commas(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("age;target\n" + f"{SECRET};a\n2;b\n" * 4)
    message = refusal(path, label="target", bounds="age=0:9")
    assert "1 column(s), none called 'target'" in message
    assert "with a comma between them" in message
    assert SECRET not in message


def test_values_that_cannot_be_read_are_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    fine = pa.array([1_500_000_000_000_000_001] * 8, pa.timestamp("ns"))
    pyarrow.parquet.write_table(pa.table({"when": fine, "target": ["a", "b"] * 4}), path)
    message = refusal(path, label="target", categories="when=1|2")
    assert "times finer than microseconds" in message
    assert "15000000" not in message
    broken = pa.array([b"\xff" + SECRET.encode()] * 8).view(pa.string())
    pyarrow.parquet.write_table(pa.table({"age": broken, "target": ["a", "b"] * 4}), path)
    for options in ({"bounds": "age=0:1"}, {"categories": "age=1|2"}):
        message = refusal(path, label="target", **options)
        assert "not UTF-8" in message
        assert SECRET not in message


def with_gaps(suffix: str, path: Path) -> Path:
    content = columns()
    content["income"] = [None if k in (3, 5) else v for k, v in enumerate(content["income"])]
    content["sex"] = [None if k == 7 else v for k, v in enumerate(content["sex"])]
    return write(path / f"gaps{suffix}", content)


def everything(dataset: data.Dataset) -> np.ndarray:
    return np.concatenate([dataset.train.inputs, dataset.test.inputs])


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_values_are_filled_as_declared(
    tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = with_gaps(suffix, tmp_path)
    whole = everything(data.load(write(tmp_path / f"t{suffix}", columns()), **DECLARED))
    rows = everything(data.load(path, missing=["income=30", "sex=f"], **DECLARED))
    assert capsys.readouterr().err == (
        "simplexdp: converted: 3 missing values filled as declared\n"
    )
    assert rows.shape == whole.shape
    changed = rows != whole
    assert changed[:, 0].sum() == 0
    assert rows[changed[:, 1], 1].tolist() == [1.0, 1.0]  # 30 of -10 to 30
    assert changed[:, 2:].any(axis=1).sum() == 1  # record 7 was m
    assert rows[changed[:, 2], 2:].tolist() == [[1.0, 0.0]]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_missing_values_as_features_of_their_own(tmp_path: Path, suffix: str) -> None:
    path = with_gaps(suffix, tmp_path)
    rows = everything(data.load(path, missing="indicator", **DECLARED))
    assert rows.shape == (40, 7)  # age, ?, income, ?, f, m, ?
    assert rows[:, [1, 3, 6]].sum(axis=0).tolist() == [0.0, 2.0, 1.0]
    assert (rows[rows[:, 3] == 1, 2] == 0).all()
    assert (rows[rows[:, 6] == 1, 4:6] == 0).all()
    some = everything(data.load(path, missing=["income=indicator", "sex=m"], **DECLARED))
    assert some.shape == (40, 5)


def test_a_fill_value_must_be_one_of_the_column(tmp_path: Path) -> None:
    path = with_gaps(".csv", tmp_path)
    for missing in ("income=31", "income=none", "sex=x", "income=nan"):
        with pytest.raises(ValueError, match="is no value of that column: give one within"):
            data.load(path, missing=missing, **DECLARED)
    with pytest.raises(ValueError, match="no column incom in the table"):
        data.load(path, missing="incom=0", **DECLARED)


def test_what_is_no_number_is_not_missing(tmp_path: Path) -> None:
    content = {**columns(), "income": [f"about {SECRET}", *map(str, columns()["income"][1:])]}
    options = {**DECLARED, "missing": "income=0"}
    message = refusal(write(tmp_path / "t.csv", content), **options)
    assert "column income has 1 values that are missing, infinite or no numbers" in message
    assert SECRET not in message


def test_a_schema_says_what_stands_for_missing_values(tmp_path: Path) -> None:
    schema = tmp_path / "schema.json"
    schema.write_text(
        '{"label": "target", "columns": {"age": {"bounds": [0, 120]}, "sex": {"categories": '
        '["f", "m"], "missing": "f"}, "income": {"bounds": [-10, 30], "missing": 0}}}'
    )
    path = with_gaps(".csv", tmp_path)
    expected = data.load(path, missing=["income=0", "sex=f"], **DECLARED)
    assert np.array_equal(everything(data.load(path, schema=schema)), everything(expected))


def test_public_columns_with_gaps(tmp_path: Path) -> None:
    path = with_gaps(".csv", tmp_path)
    dataset = data.load(path, label="target", public_columns="*", missing="indicator")
    assert dataset.train.inputs.shape[1] == 8  # age, ?, income, ?, f, m, others, ?
    assert dataset.train.inputs[:, 2].min() == -1.0
