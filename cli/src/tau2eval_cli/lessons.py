"""`lessons add`, `lessons list` and `lessons remove`."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import grpc
from rich.table import Table
from rich.text import Text

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_cli.errors import EXIT_DONE, WrongUse
from tau2eval_cli.gateway_session import CALL_SECONDS, GatewayTarget, gateway_fault, open_gateway
from tau2eval_cli.session import Interruptible, make_console

_MAX_STDIN_CHARS = 10_000
T = TypeVar("T")


class LessonClient:
    """Asks the gateway's LessonService."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self._stub = gateway_pb2_grpc.LessonServiceStub(channel)

    async def add(self, lesson: gateway_pb2.Lesson) -> gateway_pb2.AddLessonResponse:
        """Adds or replaces a lesson.

        Raises:
            WrongUse: It is refused.
            NotValid: The gateway cannot be used.
        """
        request = gateway_pb2.AddLessonRequest(lesson=lesson)
        return await self._ask(
            f"add {lesson.name}", self._stub.AddLesson(request, timeout=CALL_SECONDS)
        )

    async def list(self) -> gateway_pb2.ListLessonsResponse:
        """Lists all lessons.

        Raises:
            NotValid: The gateway cannot be used.
        """
        request = gateway_pb2.ListLessonsRequest()
        return await self._ask(
            "list lessons", self._stub.ListLessons(request, timeout=CALL_SECONDS)
        )

    async def remove(self, name: str) -> None:
        """Removes a lesson.

        Raises:
            WrongUse: There is none of that name.
            NotValid: The gateway cannot be used.
        """
        request = gateway_pb2.RemoveLessonRequest(name=name)
        await self._ask(f"remove {name}", self._stub.RemoveLesson(request, timeout=CALL_SECONDS))

    async def _ask(self, what: str, call: Awaitable[T]) -> T:
        try:
            return await call
        except grpc.aio.AioRpcError as error:
            raise gateway_fault(what, error) from error


def add(target: GatewayTarget, lesson: gateway_pb2.Lesson, *, as_json: bool = False) -> int:
    """Adds a lesson and returns the exit code.

    Args:
        target: Which gateway.
        lesson: With the text "-" for what stands on standard input.
        as_json: Print the lesson as JSON.

    Raises:
        CommandError: For wrong use, and when the gateway cannot be used.
    """
    if lesson.text == "-":
        lesson.text = sys.stdin.read(_MAX_STDIN_CHARS)
    if not lesson.text.strip():
        raise WrongUse("the lesson has no text")
    target.check(make=True)
    answer = _with_client(target, lambda client: client.add(lesson))
    if as_json:
        value = {"replaced": answer.replaced, "lesson": lesson_json(answer.lesson)}
        print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
    else:
        rides = "" if answer.lesson.judged else "; it is not judged and does not ride"
        print(f"{'replaced' if answer.replaced else 'added'} {answer.lesson.name}{rides}")
    return EXIT_DONE


def list_lessons(target: GatewayTarget, *, as_json: bool = False) -> int:
    """Lists the lessons and returns the exit code.

    Raises:
        CommandError: For wrong use, and when the gateway cannot be used.
    """
    target.check()
    answer = _with_client(target, lambda client: client.list())
    if as_json:
        lessons = [lesson_json(lesson) for lesson in answer.lessons]
        value = {"mode": answer.mode, "lessons": lessons}
        print(json.dumps(value, indent=2, ensure_ascii=False), flush=True)
    else:
        _print(answer)
    return EXIT_DONE


def remove(target: GatewayTarget, names: list[str], *, as_json: bool = False) -> int:
    """Removes lessons and returns the exit code.

    Raises:
        CommandError: For wrong use, and when the gateway cannot be used.
    """
    target.check()

    async def every(client: LessonClient) -> None:
        for name in names:
            await client.remove(name)
            if not as_json:
                print(f"removed {name}", flush=True)

    _with_client(target, every)
    if as_json:
        print(json.dumps({"removed": names}), flush=True)
    return EXIT_DONE


def lesson_json(lesson: gateway_pb2.Lesson) -> dict[str, Any]:
    """Returns a lesson as JSON values."""
    return {
        "name": lesson.name,
        "text": lesson.text,
        "triggers": list(lesson.triggers),
        "kind": lesson.kind,
        "judged": lesson.judged,
        "judgement": lesson.judgement or None,
        "run_id": lesson.run_id or None,
        "scenario": lesson.scenario or None,
        "created_at": lesson.created_at or None,
    }


def _with_client(target: GatewayTarget, work: Callable[[LessonClient], Awaitable[T]]) -> T:
    process = Interruptible()

    async def main() -> T:
        async with open_gateway(target, _say, process.note) as channel:
            return await work(LessonClient(channel))

    return process.run(main)


def _say(text: str) -> None:
    make_console(True).print(text, markup=False, highlight=False, soft_wrap=True)


def _print(answer: gateway_pb2.ListLessonsResponse) -> None:
    console = make_console(False)
    table = Table(box=None, pad_edge=False)
    for heading in ("lesson", "rides", "triggers", "from", "text"):
        table.add_column(heading, overflow="fold")
    for lesson in answer.lessons:
        # Text from a database: it must not move the cursor.
        cells = [lesson.name, "yes" if lesson.judged else "no", ", ".join(lesson.triggers)]
        cells += [lesson.scenario or "by hand", lesson.text]
        table.add_row(*(Text(_printable(cell)) for cell in cells))
    console.print(table)
    riding = sum(lesson.judged for lesson in answer.lessons)
    console.print(f"{len(answer.lessons)} lessons, {riding} judged; MARINA_LESSONS={answer.mode}")


def _printable(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text)
