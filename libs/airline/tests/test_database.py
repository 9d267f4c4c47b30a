from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tau2eval_airline import OverlayDatabase, SeedDatabase, apply_changes, plain_hash
from tau2eval_airline.hashing import canonical_bytes, normalize

TABLES = ("flights", "reservations", "users")

leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["none", " NULL ", "None", "nonet", "n", "1e5", "0.0", "\x7f", "é", "3e9"])
    | st.floats(-1e20, 1e20).map(round).map(float)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=8,
)
records = st.dictionaries(st.text(max_size=5), values, max_size=4)
keys = st.text(max_size=4)
databases = st.fixed_dictionaries(
    {table: st.dictionaries(keys, records, max_size=5) for table in TABLES}
)
edits = st.lists(st.tuples(st.sampled_from(TABLES), keys, records), max_size=6)


def reference(value: Any) -> bytes:
    return json.dumps(normalize(value), sort_keys=True, separators=(",", ":"), default=str).encode()


@given(values)
def test_canonical_bytes_are_the_plain_dump(value: Any) -> None:
    assert canonical_bytes(value) == reference(value)


@pytest.mark.parametrize(
    ("value", "same"),
    [
        (2.0, 2),
        ("None", None),
        (" null\n", None),
        ("NULL", None),
        ([1.0, {"a": 3.0}], [1, {"a": 3}]),
    ],
)
def test_normalize(value: Any, same: Any) -> None:
    assert normalize(value) == same
    assert canonical_bytes(value) == canonical_bytes(same)


@pytest.mark.parametrize("value", ["no", "nullable", 2.5, True, float("inf"), ""])
def test_normalize_leaves_the_rest(value: Any) -> None:
    assert normalize(value) is value


def test_plain_hash_is_what_the_rule_says() -> None:
    text = '{"a":{"x":{"b":null,"c":[1,2.5]}}}'
    database = {"session": {"user": 1}, "a": {"x": {"c": [1.0, 2.5], "b": "None"}}}
    assert plain_hash(database) == hashlib.sha256(text.encode()).hexdigest()


@settings(deadline=None)
@given(databases, edits)
def test_the_fast_hash_is_the_plain_hash(tables: dict[str, Any], changes: list[Any]) -> None:
    before = plain_hash(tables)
    seed = SeedDatabase(tables)
    db = OverlayDatabase(seed)
    assert db.hash() == seed.hash() == before
    for table, key, record in changes:
        db.put(table, key, record)
        assert db.hash() == plain_hash(db.materialise())
    assert seed.hash() == before == plain_hash(tables)
    rebuilt = apply_changes(seed, db.changed_records())
    assert rebuilt.hash() == db.hash()
    assert rebuilt.changed_records() == db.changed_records() or "nan" in str(changes)


@settings(deadline=None, max_examples=10)
@given(st.lists(st.tuples(st.sampled_from(TABLES), st.integers(0, 4000), records), max_size=8))
def test_the_fast_hash_holds_on_the_real_database(
    seed: SeedDatabase, changes: list[tuple[str, int, Any]]
) -> None:
    # Real keys, and new ones before, between and after them; beyond the first midstate.
    db = OverlayDatabase(seed)
    for table, number, record in changes:
        existing = sorted(seed.records(table))
        key = existing[number] if number < len(existing) else f"{chr(35 + number % 90)}{number}"
        db.put(table, key, record)
    assert db.hash() == plain_hash(db.materialise())


def test_an_empty_table_can_be_filled() -> None:
    db = OverlayDatabase(SeedDatabase({"a": {}, "session": {"x": 1}, "b": {"k": {}}}))
    for key in ("2", "1", "3"):
        db.put("a", key, {"v": key})
    assert db.hash() == plain_hash(db.materialise())
    assert db.seed.tables == ("a", "b")


def test_what_is_read_can_be_modified_without_effect(seed: SeedDatabase) -> None:
    db = OverlayDatabase(seed)
    copy = db.read("users", "mia_li_3668")
    assert copy is not None
    copy["name"]["first_name"] = "X"
    copy["reservations"].clear()
    assert db.read("users", "mia_li_3668") != copy
    db.put("users", "mia_li_3668", copy)
    copy["dob"] = "changed later"
    stored = db.read("users", "mia_li_3668")
    assert stored is not None
    assert stored["dob"] != "changed later"
    db.changed_records()[0].record["dob"] = "changed in the report"
    assert db.hash() == plain_hash(db.materialise())


def test_putting_the_original_back_is_no_change(seed: SeedDatabase) -> None:
    db = OverlayDatabase(seed)
    original = db.read("users", "mia_li_3668")
    assert original is not None
    db.put("users", "mia_li_3668", {**original, "dob": "x"})
    assert db.changed_keys() == [("users", "mia_li_3668")]
    db.put("users", "mia_li_3668", original)
    assert db.changed_records() == []
    assert db.hash() == seed.hash()


def test_unknown_tables_are_errors(seed: SeedDatabase) -> None:
    db = OverlayDatabase(seed)
    with pytest.raises(KeyError):
        db.put("hotels", "1", {})
    with pytest.raises(ValueError, match="no table"):
        apply_changes(seed, [("hotels", "1", {}, ())])
    with pytest.raises(TypeError):
        SeedDatabase({"flights": []})  # type: ignore[dict-item]


@pytest.mark.parametrize("sizes", [(3,), (1, 2), (0,), (-1, 1)])
def test_operation_sizes_must_fit_the_payments(seed: SeedDatabase, sizes: tuple[int, ...]) -> None:
    record = {"payment_history": [{"amount": 1}, {"amount": 2}]}
    with pytest.raises(ValueError, match="do not fit"):
        apply_changes(seed, [("reservations", "X", record, sizes)])


def test_a_record_must_be_an_object(seed: SeedDatabase) -> None:
    with pytest.raises(ValueError, match="not an object"):
        apply_changes(seed, [("users", "x", [], ())])  # type: ignore[list-item]
