"""Where lessons are kept: a table in the ledger's database; SQLite and PostgreSQL."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import sqlalchemy as sa
from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncEngine

from tau2eval_common.errors import InvalidInput, NotFound, Unavailable
from tau2eval_gateway.lessons import Lesson

MAX_LESSONS: Final = 400
"""All of them, as long as they may be, fit into one gRPC answer."""
QUERY_SECONDS: Final = 10.0
_TRIES: Final = 5
_PAUSE_SECONDS: Final = 0.05
_METADATA: Final = sa.MetaData()
T = TypeVar("T")

LESSONS: Final = sa.Table(
    "gateway_lessons",
    _METADATA,
    sa.Column("name", sa.String(64), primary_key=True),
    sa.Column("text", sa.Text, nullable=False),
    # A JSON list.
    sa.Column("triggers", sa.Text, nullable=False),
    sa.Column("kind", sa.String(16), nullable=False),
    sa.Column("judged", sa.Boolean, nullable=False),
    sa.Column("judgement", sa.Text, nullable=False),
    sa.Column("run_id", sa.String(256), nullable=False),
    sa.Column("scenario", sa.String(256), nullable=False),
    sa.Column("created_at", sa.DateTime(timezone=True), nullable=False),
)


class LessonStore:
    """Lessons in a database.

    The table is made at the first use, so that a database that is away at the start does not keep
    the gateway from starting.

    Args:
        engine: Of the ledger's database; whoever made it disposes of it.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._made = False

    async def add(self, lesson: Lesson) -> tuple[Lesson, bool]:
        """Keeps a checked lesson in place of one of the same name.

        Returns:
            The lesson as it is kept, and whether it replaced one.

        Raises:
            InvalidInput: There are MAX_LESSONS already.
            Unavailable: The database cannot be used.
        """
        return await self._ask(self._add(lesson))

    async def lessons(self) -> list[Lesson]:
        """Returns all lessons by name.

        Raises:
            Unavailable: The database cannot be used.
        """
        return await self._ask(self._lessons())

    async def remove(self, name: str) -> None:
        """Removes a lesson.

        Raises:
            NotFound: There is none of that name.
            Unavailable: The database cannot be used.
        """
        await self._ask(self._remove(name))

    async def _add(self, lesson: Lesson) -> tuple[Lesson, bool]:
        await self._make()
        now = datetime.now(UTC).replace(microsecond=0)
        values = {
            "name": lesson.name,
            "text": lesson.text,
            "triggers": json.dumps(list(lesson.triggers), ensure_ascii=False),
            "kind": lesson.kind,
            "judged": lesson.judged,
            "judgement": lesson.judgement,
            "run_id": lesson.run_id,
            "scenario": lesson.scenario,
            "created_at": now,
        }
        for left in reversed(range(_TRIES)):
            try:
                replaced = await self._write(values)
            except IntegrityError:
                # Somebody added the same name in between.
                if not left:
                    raise
            else:
                return _lesson(values), replaced
        raise AssertionError("unreachable")

    async def _write(self, values: Mapping[str, Any]) -> bool:
        name = values["name"]
        async with self._engine.begin() as connection:
            update = sa.update(LESSONS).where(LESSONS.c.name == name).values(**values)
            if (await connection.execute(update)).rowcount:
                return True
            count = await connection.scalar(sa.select(sa.func.count()).select_from(LESSONS))
            if (count or 0) >= MAX_LESSONS:
                raise InvalidInput(
                    f"{MAX_LESSONS} lessons are kept, which is the limit; remove some first",
                    reason="TOO_MANY_LESSONS",
                )
            await connection.execute(sa.insert(LESSONS).values(**values))
        return False

    async def _lessons(self) -> list[Lesson]:
        await self._make()
        async with self._engine.connect() as connection:
            # Sorted here: databases differ in how they sort text.
            rows = (await connection.execute(sa.select(LESSONS))).mappings().all()
        return sorted((_lesson(row) for row in rows), key=lambda lesson: lesson.name)

    async def _remove(self, name: str) -> None:
        await self._make()
        async with self._engine.begin() as connection:
            result = await connection.execute(sa.delete(LESSONS).where(LESSONS.c.name == name))
        if not result.rowcount:
            raise NotFound(
                f"there is no lesson {name!r}; `tau2-eval lessons list` shows those there are",
                reason="NO_SUCH_LESSON",
            )

    async def _make(self) -> None:
        if self._made:
            return
        for left in reversed(range(_TRIES)):
            try:
                async with self._engine.begin() as connection:
                    await connection.run_sync(_METADATA.create_all)
                break
            except SQLAlchemyError:
                # Another replica may be making it at this moment.
                if not left:
                    raise
                await asyncio.sleep(_PAUSE_SECONDS)
        self._made = True

    async def _ask(self, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(QUERY_SECONDS):
                return await work
        except (SQLAlchemyError, OSError, TimeoutError) as error:
            raise Unavailable(
                f"the database of lessons cannot be used now ({type(error).__name__})",
                reason="LESSONS_UNAVAILABLE",
            ) from error


def _lesson(row: Mapping[Any, Any]) -> Lesson:
    created: datetime = row["created_at"]
    if created.tzinfo is None:
        created = created.replace(tzinfo=UTC)  # SQLite keeps no zone.
    return Lesson(
        name=row["name"],
        text=row["text"],
        triggers=_triggers(row["triggers"]),
        kind=row["kind"],
        judged=bool(row["judged"]),
        judgement=row["judgement"],
        run_id=row["run_id"],
        scenario=row["scenario"],
        created_at=created.astimezone(UTC).isoformat().replace("+00:00", "Z"),
    )


def _triggers(text: str) -> tuple[str, ...]:
    try:
        value = json.loads(text)
    except ValueError:
        return ()
    return tuple(item for item in value if isinstance(item, str)) if isinstance(value, list) else ()
