"""gateway.v1 LessonService: adds, lists and removes lessons."""

from __future__ import annotations

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.errors import InvalidInput
from tau2eval_gateway.grpc_api import Authenticated, Context
from tau2eval_gateway.keys import KeyRing
from tau2eval_gateway.lesson_book import LessonBook
from tau2eval_gateway.lesson_store import LessonStore
from tau2eval_gateway.lessons import Lesson, LessonError, checked

_MAX_NAME_CHARS = 256


class LessonServicer(Authenticated, gateway_pb2_grpc.LessonServiceServicer):
    """Keeps lessons; what changes rides from the next call on in this process.

    Other replicas follow within `lesson_book.REFRESH_SECONDS`.

    Args:
        store: Where they are kept.
        book: Told of changes.
        keys: None: callers need no key.
    """

    def __init__(self, store: LessonStore, book: LessonBook, keys: KeyRing | None) -> None:
        super().__init__(keys)
        self._store = store
        self._book = book

    async def AddLesson(
        self, request: gateway_pb2.AddLessonRequest, context: Context
    ) -> gateway_pb2.AddLessonResponse:
        """Adds a lesson, or replaces the one of the same name."""
        self.key_id(context)
        try:
            lesson = checked(_from_proto(request.lesson))
        except LessonError as error:
            raise InvalidInput(str(error), reason="INVALID_LESSON") from None
        kept, replaced = await self._store.add(lesson)
        await self._book.refresh()
        return gateway_pb2.AddLessonResponse(lesson=_to_proto(kept), replaced=replaced)

    async def ListLessons(
        self, request: gateway_pb2.ListLessonsRequest, context: Context
    ) -> gateway_pb2.ListLessonsResponse:
        """Lists all lessons by name, those that are not judged too."""
        self.key_id(context)
        lessons = await self._store.lessons()
        return gateway_pb2.ListLessonsResponse(
            lessons=[_to_proto(lesson) for lesson in lessons], mode=self._book.mode
        )

    async def RemoveLesson(
        self, request: gateway_pb2.RemoveLessonRequest, context: Context
    ) -> gateway_pb2.RemoveLessonResponse:
        """Removes a lesson."""
        self.key_id(context)
        # Any name: one that others wrote into the database can be removed too.
        if not request.name or len(request.name) > _MAX_NAME_CHARS or "\0" in request.name:
            raise InvalidInput("name is not the name of a lesson", reason="INVALID_LESSON")
        await self._store.remove(request.name)
        await self._book.refresh()
        return gateway_pb2.RemoveLessonResponse()


def _from_proto(lesson: gateway_pb2.Lesson) -> Lesson:
    return Lesson(
        name=lesson.name,
        text=lesson.text,
        triggers=tuple(lesson.triggers),
        kind=lesson.kind,
        judged=lesson.judged,
        judgement=lesson.judgement,
        run_id=lesson.run_id,
        scenario=lesson.scenario,
    )


def _to_proto(lesson: Lesson) -> gateway_pb2.Lesson:
    return gateway_pb2.Lesson(
        name=lesson.name,
        text=lesson.text,
        triggers=lesson.triggers,
        kind=lesson.kind,
        judged=lesson.judged,
        judgement=lesson.judgement,
        run_id=lesson.run_id,
        scenario=lesson.scenario,
        created_at=lesson.created_at,
    )
