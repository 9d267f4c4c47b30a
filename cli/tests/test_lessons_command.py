"""The command `lessons` against a scorer and a gateway that behave as a test says."""

import json
from pathlib import Path

import grpc
import pytest

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval.scorer.v1 import record_pb2
from tau2eval_common.errors import InvalidInput, NotFound, Unavailable, abort_with

FAILS = record_pb2.STOP_REASON_TIMEOUT
PASSES = record_pb2.STOP_REASON_AGENT_EXIT
LOST = record_pb2.STOP_REASON_USER_LOST
LESSON = {"name": "look-first", "text": "Look it up first.", "triggers": ["cancel"]}
SOUND = {"sound": True, "reason": "It follows."}


def context(*said):
    return json.dumps(
        [
            {"role": "system", "content": "Rules."},
            *({"role": "user", "content": text} for text in said),
            {"role": "assistant", "content": "Fine."},
        ]
    ).encode()


class Models(gateway_pb2_grpc.ChatServiceServicer, gateway_pb2_grpc.LessonServiceServicer):
    """Answers by task from lists, the last one for ever; keeps lessons in memory."""

    def __init__(self):
        self.lessons = {}
        self.requests = []
        self.answers = {"lesson-learn": [json.dumps(LESSON)], "lesson-judge": [json.dumps(SOUND)]}
        self.refuse_lessons = False

    async def ChatCompletion(self, request, call):
        body = json.loads(request.body_json)
        task = body["messages"][0]["content"].split("]")[0].removeprefix("[tau2-eval:")
        self.requests.append((task, body, request.context))
        answers = self.answers[task]
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, Exception):
            await abort_with(call, answer)
        if isinstance(answer, bytes):
            return gateway_pb2.ChatCompletionResponse(body_json=answer)
        message = {"choices": [{"message": {"role": "assistant", "content": answer}}]}
        return gateway_pb2.ChatCompletionResponse(body_json=json.dumps(message).encode())

    async def AddLesson(self, request, call):
        if self.refuse_lessons:
            await abort_with(call, InvalidInput("no trigger fits"))
        replaced = request.lesson.name in self.lessons
        self.lessons[request.lesson.name] = request.lesson
        return gateway_pb2.AddLessonResponse(lesson=request.lesson, replaced=replaced)

    async def ListLessons(self, request, call):
        return gateway_pb2.ListLessonsResponse(lessons=self.lessons.values(), mode="armed")

    async def RemoveLesson(self, request, call):
        if self.lessons.pop(request.name, None) is None:
            await abort_with(call, NotFound(f"there is no lesson {request.name!r}"))
        return gateway_pb2.RemoveLessonResponse()


@pytest.fixture
async def models():
    servicer = Models()
    server = grpc.aio.server()
    gateway_pb2_grpc.add_ChatServiceServicer_to_server(servicer, server)
    gateway_pb2_grpc.add_LessonServiceServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    servicer.address = f"127.0.0.1:{port}"
    yield servicer
    await server.stop(0)


@pytest.fixture
def at(line, models, tmp_path: Path) -> list[str]:
    line.scorer.plan(
        "eval_1", "demo__1", "demo__2", "demo__3", judge="prov/judge", agent_model="prov/a"
    )
    for name in ("demo__1", "demo__2", "demo__3"):
        said = context(f"cancel the booking of {name}")
        line.scorer.artifacts[name] = [
            (f"{name}/bot_logs_agent/llm_context.json", [said[:40], said[40:]]),
            (f"{name}/conversation_log.wav", [b"\0" * 1000]),
        ]
    return [
        *("--output-dir", str(tmp_path), "--scorer-address", line.address),
        *("--gateway-address", models.address),
    ]


async def learn(line, at, *arguments):
    code, out, err = await line.cli("lessons", "learn", "eval_1", "--json", *arguments, *at)
    return code, json.loads(out) if out else None, err


async def test_failures_teach_and_the_rest_does_not(line, models, at):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS, "never ended")
    line.scorer.judge("eval_1", "demo__2", "b", PASSES)
    line.scorer.judge("eval_1", "demo__3", "c", LOST)
    code, value, err = await learn(line, at)
    assert code == 0, err
    assert (value["failures"], value["not_run"]) == (1, 1)
    assert value["counts"] == {"added": 1}
    assert (value["model"], value["judge_model"]) == ("prov/judge", "prov/judge")
    (kept,) = models.lessons.values()
    assert (kept.name, kept.text, list(kept.triggers)) == tuple(LESSON.values())
    assert (kept.judged, kept.judgement, kept.kind) == (True, "It follows.", "tools")
    assert (kept.run_id, kept.scenario) == ("eval_1", "demo__1")
    assert line.scorer.asked_artifacts == [("demo__1", 0)]
    assert [(task, ctx.run_id, ctx.scenario, ctx.role) for task, _, ctx in models.requests] == [
        ("lesson-learn", "eval_1", "demo__1", "judge"),
        ("lesson-judge", "eval_1", "demo__1", "judge"),
    ]
    assert set(models.requests[0][1]) == {"model", "messages"}
    assert "must not be in use when the same scenarios are scored" in value["warning"]
    assert value["warning"] in err


async def test_a_dry_run_asks_and_keeps_nothing(line, models, at):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    line.scorer.judge("eval_1", "demo__2", "b", FAILS)
    code, value, _ = await learn(line, at, "--dry-run", "--model", "prov/m")
    assert code == 0
    assert value["counts"] == {"would_add": 1, "duplicate": 1}
    assert models.lessons == {}
    assert {body["model"] for task, body, _ in models.requests if task == "lesson-learn"} == {
        "prov/m"
    }
    assert value["dry_run"] is True


async def test_lessons_that_are_known_are_not_written_over(line, models, at):
    models.lessons["look-first"] = gateway_pb2.Lesson(
        name="look-first", text="By a person: ask for the fare class.", judged=True
    )
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    code, _, _ = await learn(line, at)
    assert code == 0
    assert sorted(models.lessons) == ["look-first", "look-first-2"]
    assert models.lessons["look-first"].text.startswith("By a person")
    code, value, _ = await learn(line, at)
    assert value["counts"] == {"duplicate": 1}
    assert value["lessons"][0]["reason"] == "look-first-2 teaches it already"


async def test_a_lesson_that_tells_the_scenario_is_repaired_or_dropped(line, models, at):
    line.scorer.artifacts["demo__1"] = [
        ("demo__1/bot_logs_agent/llm_context.json", [context("cancel QX7LP2")])
    ]
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    leak = json.dumps({**LESSON, "text": "Cancel QX7LP2 at once."})
    models.answers["lesson-learn"] = [leak, json.dumps(LESSON)]
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"added": 1})
    repair = models.requests[1][1]["messages"][-1]["content"]
    assert "repeats what stands in the conversation: QX7LP2" in repair
    models.lessons.clear()
    models.answers["lesson-learn"] = [leak]
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"unusable": 1})
    assert models.lessons == {}


@pytest.mark.parametrize(
    ("answers", "told"),
    [
        ([json.dumps({"sound": False, "reason": "Too vague."})], "Too vague."),
        (["I think so", "Yes"], "gave no judgement"),
        (['{"sound": "true"}'], "gave no judgement"),
    ],
)
async def test_without_the_judges_yes_nothing_is_kept(line, models, at, answers, told):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    models.answers["lesson-judge"] = answers
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"refused": 1})
    assert told in value["lessons"][0]["reason"]
    assert models.lessons == {}


async def test_a_judgement_that_is_repaired_counts(line, models, at):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    models.answers["lesson-judge"] = ["hm", json.dumps(SOUND)]
    _, value, _ = await learn(line, at)
    assert value["counts"] == {"added": 1}


async def test_a_model_that_fails_makes_3_and_costs_the_others_nothing(line, models, at):
    for attempt, name in zip("abc", ("demo__1", "demo__2", "demo__3"), strict=True):
        line.scorer.judge("eval_1", name, attempt, FAILS)
    models.answers["lesson-learn"] = [
        Unavailable("down"),
        json.dumps(LESSON),
    ]
    code, value, _ = await learn(line, at)
    assert code == 3
    assert value["counts"] == {"problem": 1, "added": 1, "duplicate": 1}
    reasons = [item["reason"] for item in value["lessons"] if item["status"] == "problem"]
    assert reasons == ["the gateway did not ask prov/judge: UNAVAILABLE: down"]


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"choices": [null]}', b"\xff", b'{"choices": {}}']
)
async def test_a_body_that_is_no_completion_is_no_lesson(line, models, at, body):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    models.answers["lesson-learn"] = [body]
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"unusable": 1})


async def test_a_conversation_without_a_record_teaches_nothing(line, models, at):
    line.scorer.artifacts["demo__1"] = [("demo__1/metrics.json", [b"{}"])]
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"unusable": 1})
    assert models.requests == []


async def test_a_lesson_that_the_gateway_refuses_is_told(line, models, at):
    models.refuse_lessons = True
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    code, value, _ = await learn(line, at)
    assert (code, value["counts"]) == (0, {"unusable": 1})
    assert "no trigger fits" in value["lessons"][0]["reason"]


async def test_only_some_scenarios(line, models, at):
    line.scorer.judge("eval_1", "demo__1", "a", FAILS)
    line.scorer.judge("eval_1", "demo__2", "b", FAILS)
    code, value, _ = await learn(line, at, "--scenarios", "demo__2")
    assert code == 0
    assert [item["scenario"] for item in value["lessons"]] == ["demo__2"]


async def test_nothing_failed(line, models, at):
    line.scorer.judge("eval_1", "demo__1", "a", PASSES)
    code, out, _ = await line.cli("lessons", "learn", "eval_1", *at)
    assert code == 0
    assert "nothing to learn" in out
    assert "must not be in use" not in out


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("learn", "eval_9"), "tau2-eval runs"),
        (("learn", "eval_1", "--scenarios", "demo__9"), "demo__9 is not in the plan"),
        (("learn", "eval_1", "--model", "marina/verify:a"), "--model has to name a plain model"),
        (("learn", "eval_1", "--judge-model", "marina:crew"), "--judge-model has to name a plain"),
        (("learn", "eval_1", "--model", "scripted/judge"), "scripted agents only"),
        (("remove", "gone"), "there is no lesson 'gone'"),
        (("add", "a", " "), "has no text"),
    ],
)
async def test_wrong_use(line, models, at, arguments, told):
    given = at if arguments[0] == "learn" else at[:2] + at[4:]
    code, _, err = await line.cli("lessons", *arguments, *given)
    assert code == 2, err
    assert told in err
    assert models.lessons == {}


async def test_a_scorer_elsewhere_needs_its_gateway(line, models, at):
    code, _, err = await line.cli("lessons", "learn", "eval_1", *at[:4])
    assert code == 2
    assert "--gateway-address" in err


async def test_add_list_and_remove(line, models, at):
    gateway = at[4:]
    code, out, _ = await line.cli(
        *("lessons", "add", "one", "Look it up.", "--trigger", "cancel"),
        *("--trigger", "gift card", "--kind", "code", *gateway),
    )
    assert (code, out) == (0, "added one\n")
    code, out, _ = await line.cli("lessons", "add", "two", "x\x1b[2J", "--unjudged", *gateway)
    assert (code, out) == (0, "added two; it is not judged and does not ride\n")
    code, out, _ = await line.cli("lessons", "list", "--json", *gateway)
    value = json.loads(out)
    assert value["mode"] == "armed"
    assert value["lessons"][0] == {
        "name": "one",
        "text": "Look it up.",
        "triggers": ["cancel", "gift card"],
        "kind": "code",
        "judged": True,
        "judgement": "added by hand",
        "run_id": None,
        "scenario": None,
        "created_at": None,
    }
    assert [item["judged"] for item in value["lessons"]] == [True, False]
    code, out, _ = await line.cli("lessons", "list", *gateway)
    assert "2 lessons, 1 judged; MARINA_LESSONS=armed" in out
    assert "\x1b" not in out
    code, out, _ = await line.cli("lessons", "remove", "one", "two", *gateway)
    assert (code, out) == (0, "removed one\nremoved two\n")


async def test_a_gateway_that_is_not_there(line, tmp_path):
    code, _, err = await line.cli("lessons", "list", "--gateway-address", "127.0.0.1:1")
    assert code == 2
    assert "nothing listens at 127.0.0.1:1" in err
    code, _, err = await line.cli("lessons", "list", "--output-dir", str(tmp_path / "none"))
    assert code == 2
    assert "there is no folder" in err
    assert not (tmp_path / "none").exists()


async def test_a_gateway_without_the_service_is_named(line, chat):
    code, _, err = await line.cli("lessons", "list", "--gateway-address", chat[1])
    assert code == 2
    assert "older version" in err
