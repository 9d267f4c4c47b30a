"""gateway.v1 LessonService on a running gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.errors import error_info
from tau2eval_gateway.model_list import Deployment


def stub(gateway: Any) -> gateway_pb2_grpc.LessonServiceStub:
    return gateway_pb2_grpc.LessonServiceStub(gateway.channel)


def lesson(**more: Any) -> gateway_pb2.Lesson:
    given = {
        "name": "cancel-check",
        "text": "Look the booking up first.",
        "triggers": ["cancel"],
        "kind": "tools",
        "judged": True,
        **more,
    }
    return gateway_pb2.Lesson(**given)


async def add(gateway: Any, **more: Any) -> gateway_pb2.AddLessonResponse:
    request = gateway_pb2.AddLessonRequest(lesson=lesson(**more))
    return await stub(gateway).AddLesson(request, timeout=20)


async def listed(gateway: Any) -> gateway_pb2.ListLessonsResponse:
    return await stub(gateway).ListLessons(gateway_pb2.ListLessonsRequest(), timeout=20)


async def remove(gateway: Any, name: str) -> None:
    await stub(gateway).RemoveLesson(gateway_pb2.RemoveLessonRequest(name=name), timeout=20)


async def test_add_list_replace_remove(gateway: Any) -> None:
    added = await add(gateway, judgement="checked by\nhand", run_id="r", scenario="s")
    assert not added.replaced
    assert added.lesson.created_at.endswith("Z")
    assert added.lesson.judgement == "checked by hand"
    await add(gateway, name="a-draft", judged=False, kind="code", triggers=[])
    found = await listed(gateway)
    assert [item.name for item in found.lessons] == ["a-draft", "cancel-check"]
    assert found.lessons[1] == added.lesson
    assert found.mode == "armed"
    again = await add(gateway, text="Newer.")
    assert again.replaced
    assert again.lesson.run_id == ""
    await remove(gateway, "cancel-check")
    assert [item.name for item in (await listed(gateway)).lessons] == ["a-draft"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"name": ""}, "name is not"),
        ({"name": "a,b"}, "name is not"),
        ({"name": "a\r\nx: y"}, "name is not"),
        ({"text": ""}, "text is empty"),
        ({"text": "é" * 401}, "802 bytes"),
        ({"kind": ""}, "kind is neither"),
        ({"triggers": ["the"]}, "would match nothing"),
        ({"triggers": ["x"] * 17}, "17 triggers"),
    ],
)
async def test_what_is_no_lesson_is_refused(
    gateway: Any, change: dict[str, Any], words: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match=words) as caught:
        await add(gateway, **change)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    info = error_info(caught.value)
    assert info is not None
    assert info.reason == "INVALID_LESSON"
    assert list((await listed(gateway)).lessons) == []


async def test_an_unknown_name_is_not_found(gateway: Any) -> None:
    with pytest.raises(grpc.aio.AioRpcError, match="no lesson 'gone'") as caught:
        await remove(gateway, "gone")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await remove(gateway, "x' OR 1=1 --")
    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    for name in ("", "a\0b", "x" * 257):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await remove(gateway, name)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_keys_are_asked_for_as_the_other_services_do(
    h: Any, upstream: Any, tmp_path: Path
) -> None:
    deployments = [Deployment("m", "openai/m", f"http://{upstream.address}/v1")]
    async with h.gateway(
        tmp_path, deployments, seed={"MODEL_API_KEYS": "right"}, grpc_require_key=True
    ) as gateway:
        calls = [
            (stub(gateway).AddLesson, gateway_pb2.AddLessonRequest(lesson=lesson())),
            (stub(gateway).ListLessons, gateway_pb2.ListLessonsRequest()),
            (stub(gateway).RemoveLesson, gateway_pb2.RemoveLessonRequest(name="x")),
        ]
        for call, request in calls:
            for metadata in ((), (("authorization", "Bearer wrong"),)):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call(request, timeout=20, metadata=metadata)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        right = (("authorization", "Bearer right"),)
        await calls[0][0](calls[0][1], timeout=20, metadata=right)
        found = await calls[1][0](calls[1][1], timeout=20, metadata=right)
        assert [item.name for item in found.lessons] == ["cancel-check"]


@pytest.mark.parametrize("mode", ["armed", "observe", "off"])
async def test_lessons_can_be_kept_in_every_mode(
    h: Any, upstream: Any, tmp_path: Path, mode: str
) -> None:
    deployments = [Deployment("m", "openai/m", f"http://{upstream.address}/v1")]
    seed = {"MARINA_OPEN_API": "true", "MARINA_LESSONS": mode}
    async with h.gateway(tmp_path, deployments, seed=seed) as gateway:
        await add(gateway)
        assert (await listed(gateway)).mode == mode
    async with h.gateway(tmp_path, deployments, seed=seed) as gateway:
        assert len((await listed(gateway)).lessons) == 1


async def test_the_largest_list_fits_into_an_answer(gateway: Any) -> None:
    from tau2eval_gateway import lesson_store

    largest = {
        "text": "\u4f60" * 266,
        "triggers": [f"{at:02}" + "\u4f60" * 58 for at in range(16)],
        "judgement": "\U0001f600" * 500,
        "run_id": "\u4f60" * 200,
        "scenario": "\u4f60" * 200,
    }
    size = (await add(gateway, **largest)).lesson.ByteSize()
    assert lesson_store.MAX_LESSONS * (size + 100) < 4 * 1024 * 1024
