"""The user's own data by path: a folder of images, an .npz, or a table.

Labels are public: classes and the split are computed from them. Inputs are private: whatever the
preprocessing reads from them is named in `computed_from_data`.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from simplexdp import files
from simplexdp.data import arrays, images, tables
from simplexdp.data.dataset import Array, DataError, Dataset, Split
from simplexdp.data.preprocessing import Preprocessing
from simplexdp.data.readers import npz_keys
from simplexdp.data.schema import Schema
from simplexdp.data.split import SPLIT_SEED, numbered, split_persons, stratified_split
from simplexdp.progress import warn

MAX_CLASSES = 10_000
TEST_FRACTION = 0.2
Indices = NDArray[np.int64]


@dataclass(frozen=True)
class Options:
    """What a user may say about data given by path."""

    schema: Schema
    test: Path | None = None
    test_fraction: float | None = None
    split_seed: int = SPLIT_SEED
    image_size: int | str | tuple[int, ...] | None = None
    window: str | tuple[float, float] | None = None


def classes_of(labels: list[str]) -> tuple[str, ...]:
    """Return the distinct public labels, in numeric order where all are whole numbers."""
    distinct = set(labels)
    if all(re.fullmatch(r"-?[0-9]+", text) for text in distinct):
        return tuple(sorted(distinct, key=int))
    return tuple(sorted(distinct))


def encode_labels(labels: list[str], classes: tuple[str, ...], where: str) -> Indices:
    """Return class numbers; refuse a label that training never saw (labels are public)."""
    place = {name: k for k, name in enumerate(classes)}
    if unknown := sorted(set(labels) - set(place)):
        raise DataError(
            f"{where} has the class {unknown[0]!r}, which the training data lacks: take it out"
        )
    return np.array([place[label] for label in labels], dtype=np.int64)


def _check_classes(classes: tuple[str, ...], records: int) -> None:
    if len(classes) < 2:
        raise DataError(f"the labels have {len(classes)} class: a classifier needs at least two")
    if len(classes) > MAX_CLASSES or 2 * len(classes) > records:
        raise DataError(
            f"the labels have {len(classes)} distinct values in {records} records: "
            "this is no classification label"
        )


def _split(
    labels: Indices, options: Options, persons: Indices | None = None
) -> tuple[Indices, Indices, str]:
    """Return training and test indices and the sentence that says how they were chosen."""
    fraction = TEST_FRACTION if options.test_fraction is None else options.test_fraction
    if not 0.0 < fraction < 1.0:
        raise DataError(f"the test fraction {fraction} is not between 0 and 1")
    if np.bincount(labels).min() < 2:
        raise DataError(
            "a class has a single record, so it cannot be both trained on and tested: "
            "remove it or give --test"
        )
    if persons is None:
        held_out = max(1, round(fraction * len(labels)))
        train, test = stratified_split(labels, held_out, options.split_seed)
    else:
        _refuse_one_person(persons)
        train, test = split_persons(labels, persons, fraction, options.split_seed)
    if len(np.unique(labels[train])) < len(np.unique(labels)):
        raise DataError(
            "the test data would take a class or all its persons from the training records: "
            "make --test-fraction smaller, or give --test"
        )
    return (
        train,
        test,
        f"split {len(train)}/{len(test)} by public label with seed {options.split_seed}"
        + ("" if persons is None else ", no person divided"),
    )


def _refuse_one_person(persons: Indices) -> None:
    if persons.max() == 0:
        raise DataError("all records are of one person: there must be at least two")


def _persons(train: list[str], test: list[str]) -> tuple[Indices, Indices]:
    """Return whose records the two are, as numbers; refuse a person who is in both."""
    if both := len(set(train) & set(test)):
        raise DataError(f"{both} persons have records in both training and test data; part them")
    found = numbered(train)
    _refuse_one_person(found)
    return found, numbered(test)


def _tested_on(what: str, options: Options) -> str:
    """Return the sentence for test data of its own, where there is nothing to split."""
    if options.test_fraction is not None:
        raise DataError(f"there is test data ({what}), so nothing is split: no --test-fraction")
    return f"tested on {what}"


def _dataset(
    path: Path,
    train: Split,
    test: Split,
    classes: tuple[str, ...],
    how: str,
    preprocessing: Preprocessing,
    seen: Counter[str],
    computed: tuple[str, ...] = (),
    vectors: bool = False,
    features_from: str | None = None,
) -> Dataset:
    if seen:
        warn(images.told(seen))
    if train.groups is not None:
        most = int(np.bincount(train.groups).max())
        pairs = np.unique(np.stack([train.groups, train.labels]), axis=1)
        several = int((np.unique(pairs[0], return_counts=True)[1] > 1).sum())
        mixed = f", {several} of them of several classes" if several else ""
        how += f"; {train.persons} persons in training{mixed}, with {most} records at most"
    return Dataset(
        name=path.name,
        train=train,
        test=test,
        validation=None,
        class_names=classes,
        provenance=(f"the user's own data {path.name}, {how}",),
        computed_from_data=computed,
        vectors=vectors,
        features_from=features_from,
        preprocessing=preprocessing,
    )


def load_table(path: Path, options: Options) -> Dataset:
    """Load a .csv or .parquet table with a label column."""
    schema = options.schema
    if schema.label is None:
        raise DataError(f"{path.name} is a table: name its label column with --label")
    table = tables.read_table(path)
    texts = tables.label_texts(table, schema.label, path)
    if tables.is_csv(path) and schema.label in texts:
        raise DataError(
            f"the column for --label is called like one of its labels, so {path.name} seems to "
            "have no header: its first line must name the columns"
        )
    classes = classes_of(texts)
    _check_classes(classes, len(texts))
    labels = encode_labels(texts, classes, path.name)
    named = None if schema.group is None else tables.group_texts(table, schema.group, path)
    train_groups = test_groups = None
    if options.test is None:
        persons = None if named is None else numbered(named)
        train, test, how = _split(labels, options, persons)
        train_table, test_table = tables.take(table, train), tables.take(table, test)
        train_labels, test_labels, test_path = labels[train], labels[test], path
        if persons is not None:
            train_groups, test_groups = persons[train], persons[test]
    else:
        test_path = options.test
        train_table, test_table = table, tables.read_table(test_path)
        how = _tested_on(test_path.name, options)
        train_labels = labels
        test_labels = encode_labels(
            tables.label_texts(test_table, schema.label, test_path), classes, test_path.name
        )
        if named is not None and schema.group is not None:
            others = tables.group_texts(test_table, schema.group, test_path)
            train_groups, test_groups = _persons(named, others)
    if schema.group is not None:
        schema = replace(schema, drop=schema.drop | {schema.group})
    columns, computed = tables.columns_of(train_table, schema, tables.is_csv(path))
    seen: Counter[str] = Counter()
    train_inputs = tables.encode(train_table, columns, path.name, seen)
    test_inputs = tables.encode(test_table, columns, test_path.name, seen)
    return _dataset(
        path,
        Split(train_inputs, train_labels, train_groups),
        Split(test_inputs, test_labels, test_groups),
        classes,
        how,
        Preprocessing(train_inputs.shape[1:], columns=columns),
        seen,
        computed,
    )


def training_folder(path: Path) -> Path:
    """Return train/ of a folder with train/ and test/ inside, else the folder itself."""
    has_split = (path / "train").is_dir() and (path / "test").is_dir()
    return path / "train" if has_split else path


def load_images(path: Path, options: Options) -> Dataset:
    """Load a folder of images by class, or one with train/ and test/ inside."""
    train_root = training_folder(path)
    test_root = options.test or (path / "test" if train_root != path else None)
    files = images.class_folders(train_root)
    if options.image_size is None:
        first = images.suggested_size(next(iter(files.values()))[0])
        raise DataError(
            f"{path.name} needs the size of its images, a public fact: give --image-size {first} "
            "(that of the first one) or another"
        )
    form = images.Form(images.parse_size(options.image_size), images.parse_window(options.window))
    texts = [name for name, paths in files.items() for _ in paths]
    named = images.persons(files, train_root)
    classes = classes_of(texts)
    _check_classes(classes, len(texts))
    labels = encode_labels(texts, classes, path.name)
    seen: Counter[str] = Counter()
    height, width, channels = form.size
    preprocessing = Preprocessing((channels, height, width), window=form.window)
    inputs = images.read_images(files, form, seen)
    if test_root is None:
        whole = Split(inputs, labels, None if named is None else numbered(named))
        train, test, how = _parted(whole, options)
        return _dataset(path, train, test, classes, how, preprocessing, seen)
    test_files = images.class_folders(test_root)
    test_texts = [name for name, paths in test_files.items() for _ in paths]
    test_labels = encode_labels(test_texts, classes, test_root.name)
    test_inputs = images.read_images(test_files, form, seen)
    groups: tuple[Indices | None, Indices | None] = (None, None)
    if named is not None:
        groups = _persons(named, images.persons(test_files, test_root) or [])
    return _dataset(
        path,
        Split(inputs, labels, groups[0]),
        Split(test_inputs, test_labels, groups[1]),
        classes,
        _tested_on(test_root.name, options),
        preprocessing,
        seen,
    )


def load_npz(path: Path, options: Options) -> Dataset:
    """Load an .npz with X and y, and X_test and y_test where it has its own split."""
    inputs, texts = arrays.read_pair(path, "X", "y")
    classes = classes_of(texts)
    _check_classes(classes, len(texts))
    labels = encode_labels(texts, classes, path.name)
    group = options.schema.group
    named = None if group is None else arrays.groups(path, group, len(labels))
    own_test = "X_test" in npz_keys(path)
    if options.test is not None or own_test:
        source = options.test or path
        end = "" if options.test is not None else "_test"
        test_inputs, test_texts = arrays.read_pair(source, f"X{end}", f"y{end}")
        test_labels = encode_labels(test_texts, classes, source.name)
        how = _tested_on(f"X{end} of {source.name}", options)
        groups: tuple[Indices | None, Indices | None] = (None, None)
        if named is not None:
            groups = _persons(named, arrays.groups(source, f"{group}{end}", len(test_labels)))
        train = Split(inputs, labels, groups[0])
        test = Split(test_inputs, test_labels, groups[1])
    else:
        whole = Split(inputs, labels, None if named is None else numbered(named))
        train, test, how = _parted(whole, options)
    if test.inputs.shape[1:] != train.inputs.shape[1:] or test.inputs.dtype != train.inputs.dtype:
        raise DataError(
            f"the test inputs of {path.name} differ in shape or type from X: make them alike"
        )
    bounds, computed = arrays.bounds_of(train.inputs, options.schema, path)
    vectors = arrays.of_unit_length(train.inputs, options.schema)
    return _dataset(
        path,
        replace(train, inputs=arrays.scaled(train.inputs, bounds, vectors)),
        replace(test, inputs=arrays.scaled(test.inputs, bounds, vectors)),
        classes,
        how,
        Preprocessing(train.inputs.shape[1:], bounds, vectors=vectors),
        Counter(),
        computed,
        vectors=inputs.ndim == 2 and inputs.dtype.kind == "f",
        features_from=options.schema.features_from,
    )


def _parted(whole: Split, options: Options) -> tuple[Split, Split, str]:
    """Return training and test records of data that come in one piece, and how they were parted."""
    train, test, how = _split(whole.labels, options, whole.groups)
    return whole.take(train), whole.take(test), how


def check_used(path: Path, options: Options) -> None:
    """Refuse options that this kind of data would ignore."""
    schema, unused = options.schema, None
    kind = "a folder of images" if path.is_dir() else f"a {path.suffix} file"
    if path.is_dir() or path.suffix.lower() in images.SUFFIXES:
        if replace(schema, features_from=None) != Schema():
            unused = "a label, bounds, categories, missing, a group, public or dropped columns"
    elif options.image_size is not None or options.window is not None:
        unused = "an image size or a window"
    elif path.suffix.lower() == ".npz" and (
        schema.label or schema.categories or schema.drop or schema.missing
    ):
        unused = "a label, categories, missing values or dropped columns"
    if unused is not None:
        raise DataError(f"{path.name} is {kind}, which has no use for {unused}: leave it out")


def load_path(path: Path, options: Options) -> Dataset:
    """Load the user's own data, by what the path is."""
    files.check_ordinary(path)
    if options.test is not None:
        files.check_ordinary(options.test)
    check_used(path, options)
    if options.test is not None and not options.test.exists():
        raise DataError(
            f"the test data {options.test} does not exist: give --test a file or folder"
        )
    if path.is_dir():
        return load_images(path, options)
    if path.suffix.lower() == ".npz":
        return load_npz(path, options)
    if path.suffix.lower() in tables.SUFFIXES:
        return load_table(path, options)
    raise DataError(
        f"{path.name} is none of: a folder of images by class, .npz, {', '.join(tables.SUFFIXES)}"
    )


def read_path(path: Path, options: Options) -> Array:
    """Read new records: one image or a folder of them, X of an .npz, or a table."""
    schema, image_size = options.schema, options.image_size
    files.check_ordinary(path)
    check_used(path, options)
    if schema.public:
        raise DataError(
            "the scale of a public column was computed from the training records: read new ones "
            "beside those, with data.load and test="
        )
    suffix = path.suffix.lower()
    if path.is_dir() or suffix in images.SUFFIXES:
        if image_size is None:
            raise DataError("give the image size that the model was trained with (image_size)")
        height, width, channels = images.parse_size(image_size)
        window = images.parse_window(options.window)
        return Preprocessing((channels, height, width), window=window).inputs(path)
    if suffix == ".npz":
        values = arrays.read_inputs(path, arrays.WHOLE)
        bounds, _ = arrays.bounds_of(values, schema, path)
        return arrays.scaled(values, bounds, arrays.of_unit_length(values, schema))
    if suffix in tables.SUFFIXES:
        table = tables.read_table(path)
        here = replace(schema, drop=schema.drop & frozenset(table.column_names))
        columns, _ = tables.columns_of(table, here, tables.is_csv(path))
        return Preprocessing((), columns=columns).inputs(table)
    raise DataError(
        f"{path.name} is none of: an image or a folder of images, .npz, "
        f"{', '.join(tables.SUFFIXES)}"
    )
