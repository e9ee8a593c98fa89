from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simplexdp.data import schema
from simplexdp.data.dataset import DataError


def test_bounds_are_read_from_text_and_mappings() -> None:
    expected = {"age": (0.0, 120.0), "x=y": (-1.5, 2e3)}
    assert schema.parse_bounds("age=0:120,x=y=-1.5:2e3") == expected
    assert schema.parse_bounds(["age=0:120", "x=y=-1.5:2e3"]) == expected
    assert schema.parse_bounds(["age=0:120,x=y=-1.5:2e3"]) == expected
    assert schema.parse_bounds({"age": (0, 120), "x=y": [-1.5, 2000]}) == expected
    assert schema.parse_bounds("0:1") == {"*": (0.0, 1.0)}


@pytest.mark.parametrize("text", ["age", "age=1", "age=a:b", "age=2:1", "age=1:1", "age=0:inf"])
def test_bounds_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="bounds"):
        schema.parse_bounds(text)


def test_categories_are_read_and_checked() -> None:
    assert schema.parse_categories("sex=f|m") == {"sex": ("f", "m")}
    assert schema.parse_categories(["a=1|2", "b=x y|z"]) == {"a": ("1", "2"), "b": ("x y", "z")}
    for wrong in ("sex", "sex=f", "sex=f|f"):
        with pytest.raises(DataError, match="categories"):
            schema.parse_categories(wrong)


def test_a_schema_file_and_options_that_win_over_it(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    columns = {
        "age": {"bounds": [0, 120]},
        "sex": {"categories": ["f", "m"]},
        "city": {"public": True},
        "id": {"drop": True},
    }
    path.write_text(json.dumps({"label": "y", "columns": columns}))
    found = schema.declared(bounds="age=0:99", schema=path)
    assert found.label == "y"
    assert found.bounds == {"age": (0.0, 99.0)}
    assert found.categories == {"sex": ("f", "m")}
    assert (found.public, found.drop) == ({"city"}, {"id"})
    for wrong in ("{", "[]", '{"columns": {"a": {}}}', '{"columns": {"a": {"mean": 1}}}'):
        path.write_text(wrong)
        with pytest.raises(DataError, match="schema"):
            schema.declared(schema=path)


def test_scaling_clips_and_maps_the_bounds_to_minus_one_and_one() -> None:
    scaled = schema.scale(np.array([-5.0, 0.0, 5.0, 10.0, 99.0]), 0.0, 10.0)
    assert scaled.dtype == np.float32
    assert scaled.tolist() == [-1.0, -1.0, 0.0, 1.0, 1.0]
    wide = schema.scale(np.array([-1e308, 0.0, 1e308]), -1e308, 1e308)  # 2e308 is no float
    assert wide.tolist() == [-1.0, 0.0, 1.0]


def test_constant_public_columns_do_not_divide_by_zero() -> None:
    low, high = schema.data_bounds(np.full(3, 7.0))
    assert schema.scale(np.full(3, 7.0), low, high).tolist() == [0.0, 0.0, 0.0]


def test_a_schema_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    (tmp_path / "s.json").write_bytes('{"label": "größe"}'.encode("latin-1"))
    with pytest.raises(ValueError, match=r"s\.json is not UTF-8"):
        schema.read_schema(tmp_path / "s.json")


@pytest.mark.parametrize("given", [5, (0, 16), {"age": 5}, {"age": "0:1"}])
def test_bounds_of_another_type_are_refused_in_one_line(given: Any) -> None:
    with pytest.raises(ValueError, match="bounds"):
        schema.parse_bounds(given)


def test_categories_in_one_text_are_not_taken_for_letters(tmp_path: Path) -> None:
    path = tmp_path / "schema.json"
    path.write_text(json.dumps({"columns": {"sex": {"categories": "f|m"}}}))
    with pytest.raises(ValueError, match="the categories of sex need a list"):
        schema.read_schema(path)


def test_spaces_around_categories_do_not_count() -> None:
    expected = {"sex": ("f", "m")}
    assert schema.parse_categories("sex=f | m") == expected
    assert schema.parse_categories({"sex": ["f ", " m"]}) == expected
    with pytest.raises(ValueError, match="two different"):
        schema.parse_categories("sex=f|f ")
