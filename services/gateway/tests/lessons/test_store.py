"""Lessons in SQLite and in a real PostgreSQL, and the book that reads them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from tau2eval_common.errors import InvalidInput, NotFound, Unavailable
from tau2eval_gateway import lesson_store
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.lesson_book import LessonBook
from tau2eval_gateway.lesson_store import LESSONS, LessonStore
from tau2eval_gateway.lessons import NO_LESSONS, Lesson, checked

ONE = checked(
    Lesson(
        "one",
        'Quote " and é \u4f60 and <b>',
        ("cancel", "gift card"),
        judged=True,
        judgement="sound",
        run_id="run_1",
        scenario="tau2_airline__1",
    )
)
BODY = {"messages": [{"role": "user", "content": "Cancel it"}]}


@asynccontextmanager
async def opened(url: str, folder: Path) -> AsyncIterator[LessonStore]:
    ledger = Ledger(url, folder)
    try:
        yield LessonStore(ledger.engine)
    finally:
        await ledger.engine.dispose()


async def test_a_lesson_comes_back_as_it_was(database_url: str, tmp_path: Path) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    async with opened(database_url, tmp_path) as store:
        assert await store.lessons() == []
        kept, replaced = await store.add(ONE)
        assert not replaced
        assert before <= datetime.fromisoformat(kept.created_at) <= datetime.now(UTC)
        assert kept.created_at.endswith("Z")
    async with opened(database_url, tmp_path) as store:
        assert await store.lessons() == [kept]


async def test_the_same_name_replaces(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path) as store:
        await store.add(ONE)
        other = checked(Lesson("one", "Other.", kind="code"))
        kept, replaced = await store.add(other)
        assert replaced
        assert await store.lessons() == [kept]
        assert (kept.text, kept.triggers, kept.judged, kept.run_id) == ("Other.", (), False, "")


async def test_they_are_sorted_by_name_and_removed_by_name(
    database_url: str, tmp_path: Path
) -> None:
    async with opened(database_url, tmp_path) as store:
        for name in ("b", "a-b", "a.b", "a_b", "ab"):
            await store.add(checked(Lesson(name, "Text.")))
        names = [lesson.name for lesson in await store.lessons()]
        assert names == sorted(names) == ["a-b", "a.b", "a_b", "ab", "b"]
        await store.remove("a.b")
        with pytest.raises(NotFound, match=r"no lesson 'a.b'"):
            await store.remove("a.b")
        assert len(await store.lessons()) == 4


async def test_names_are_data_for_the_database(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path) as store:
        await store.add(ONE)
        with pytest.raises(NotFound):
            await store.remove("x' OR '1'='1")
        with pytest.raises(NotFound):
            await store.remove("%")
        assert len(await store.lessons()) == 1


async def test_parallel_adds_of_one_name_keep_one(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path) as first, opened(database_url, tmp_path) as second:
        texts = [f"Text {at}." for at in range(8)]
        answers = await asyncio.gather(
            *(
                (first, second)[at % 2].add(checked(Lesson("same", text)))
                for at, text in enumerate(texts)
            )
        )
        kept = await first.lessons()
        assert [lesson.name for lesson in kept] == ["same"]
        assert kept[0].text in texts
        assert sum(not replaced for _, replaced in answers) == 1


async def test_replicas_that_start_together_make_one_table(
    database_url: str, tmp_path: Path
) -> None:
    async with opened(database_url, tmp_path) as first, opened(database_url, tmp_path) as second:
        assert await asyncio.gather(*(s.lessons() for s in (first, second) * 2)) == [[]] * 4


async def test_there_is_a_limit(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lesson_store, "MAX_LESSONS", 2)
    async with opened(database_url, tmp_path) as store:
        await store.add(checked(Lesson("a", "Text.")))
        await store.add(checked(Lesson("b", "Text.")))
        with pytest.raises(InvalidInput, match="2 lessons are kept"):
            await store.add(checked(Lesson("c", "Text.")))
        _, replaced = await store.add(checked(Lesson("b", "New.")))
        assert replaced


async def test_rows_written_by_others_do_no_harm(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path) as store:
        await store.add(ONE)
        row: dict[str, Any] = {
            "text": "Text.",
            "triggers": json.dumps(["cancel"]),
            "kind": "tools",
            "judged": True,
            "judgement": "",
            "run_id": "",
            "scenario": "",
            "created_at": datetime.now(UTC),
        }
        rows = [
            {**row, "name": "evil\r\nset-cookie: a=b"},
            {**row, "name": "long", "text": "x" * 5_000},
            {**row, "name": "list", "triggers": "{not json"},
            {**row, "name": "types", "triggers": '[1, null, "cancel"]'},
            {**row, "name": "object", "triggers": '{"a": 1}'},
        ]
        async with store._engine.begin() as connection:
            await connection.execute(sa.insert(LESSONS), rows)
        assert len(await store.lessons()) == 6
        book = LessonBook(store, "armed")
        await book.start()
        assert (await book.match(BODY)).names == ("one", "types")
        await book.stop()


async def test_a_book_sees_what_another_process_adds(database_url: str, tmp_path: Path) -> None:
    async with opened(database_url, tmp_path) as store, opened(database_url, tmp_path) as other:
        book = LessonBook(store, "armed", refresh_seconds=0.05)
        await book.start()
        assert (await book.match(BODY)).names == ()
        await other.add(ONE)
        async with asyncio.timeout(20):
            while not (match := await book.match(BODY)).names:
                await asyncio.sleep(0.01)
        assert match.names == ("one",)
        assert ONE.text in match.message
        await other.remove("one")
        async with asyncio.timeout(20):
            while (await book.match(BODY)).names:
                await asyncio.sleep(0.01)
        await book.stop()


async def test_a_book_that_is_off_reads_nothing(tmp_path: Path) -> None:
    class Refusing(LessonStore):
        async def lessons(self) -> list[Lesson]:
            raise AssertionError("was read")

    async with opened("", tmp_path) as store:
        book = LessonBook(Refusing(store._engine), "off")
        await book.start()
        assert (await book.match(BODY)).names == ()
        await book.stop()


async def test_the_database_is_away_at_the_start(tmp_path: Path) -> None:
    async with opened("postgresql://tau2@127.0.0.1:1/none", tmp_path) as store:
        with pytest.raises(Unavailable, match="lessons cannot be used now"):
            await store.lessons()
        book = LessonBook(store, "armed")
        await book.start()
        assert await book.match(BODY) == NO_LESSONS
        await book.stop()


async def test_the_database_goes_away_and_comes_back(own_postgres: Any, tmp_path: Path) -> None:
    url = await asyncio.to_thread(own_postgres.database)
    async with opened(url, tmp_path) as store:
        await store.add(ONE)
        book = LessonBook(store, "armed", refresh_seconds=0.05, stale_seconds=1.0)
        await book.start()
        assert (await book.match(BODY)).names == ("one",)
        await asyncio.to_thread(own_postgres.stop)
        with pytest.raises(Unavailable):
            await store.add(ONE)
        async with asyncio.timeout(60):
            while (await book.match(BODY)).names:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(own_postgres.start)
        async with asyncio.timeout(60):
            while not (await book.match(BODY)).names:
                await asyncio.sleep(0.05)
        await book.stop()


async def test_a_database_that_does_not_answer_holds_nobody_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listener that never speaks: the query ends by its bound, and calls do not wait for it."""
    monkeypatch.setattr(lesson_store, "QUERY_SECONDS", 0.2)
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with opened(f"postgresql://tau2@127.0.0.1:{port}/none", tmp_path) as store:
        book = LessonBook(store, "armed")
        await book.start()
        assert (await book.match(BODY)).names == ()
        with pytest.raises(Unavailable, match="TimeoutError"):
            await store.lessons()
        await book.stop()
    server.close()
