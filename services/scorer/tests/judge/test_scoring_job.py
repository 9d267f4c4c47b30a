"""When the judge is asked, and what its answer, its failure or its absence makes of a call."""

import asyncio
import json

import grpc
import pytest
from judge_fakes import FakeGateway, Refusal, answer

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_airline import ADOPTED_NL_ASSERTIONS, assertions_sha256
from tau2eval_scorer.artifacts import attempt_files
from tau2eval_scorer.catalog import Catalog
from tau2eval_scorer.judge import PROMPT_VERSION, JudgeSettings, prompt_sha256
from tau2eval_scorer.record import RecordReader, StopReason
from tau2eval_scorer.scoring_job import ConversationScorer
from tau2eval_scorer.verdict import NOT_RUN_KINDS

REFUSAL = "tau2_airline__26"
COUNT = len(ADOPTED_NL_ASSERTIONS["26"])
ON = JudgeSettings(model="provider/judge")
OFF = JudgeSettings()
ALL_HOLD = answer(*[True] * COUNT, score=0.9)
ONE_FAILS = answer(*[True] * (COUNT - 1), False, score=1)


@pytest.fixture(scope="module")
def catalog():
    return Catalog()


@pytest.fixture
def scoring(catalog):
    """Scores a record with a gateway: `await scoring(record, gateway, settings)`."""

    async def score(record, gateway, settings=ON, kept=None):
        reader = RecordReader()
        for part in record.parts():
            reader.feed(part)
        async with gateway.judging() as judge:
            scorer = ConversationScorer(catalog, asyncio.to_thread, judge)
            return await scorer.score(reader.finish(), "folder", settings, kept)

    return score


def files(scored):
    return {name: data for name, data in attempt_files(scored).items() if name.endswith("json")}


async def test_a_call_whose_assertions_hold_passes(builder, scoring):
    gateway = FakeGateway(ALL_HOLD)
    scored = await scoring(await builder.gold(REFUSAL, trial=3), gateway)
    assert scored.verdict_dict()["outcome"] == "passed"
    assert scored.fully_judged
    breakdown = scored.composite.breakdown
    assert set(breakdown.passed) == {"DB_STATE_MATCH", "CLEAN_EXIT", "NL_ASSERTION"}
    # 0.9 is below the threshold of 1, and nobody minds.
    assert breakdown.excluded == ("ACTION_MATCH", "JUDGE_PASSED")
    (context,) = gateway.contexts
    assert (context.scenario, context.trial, context.role) == (REFUSAL, 3, "judge")

    metrics = scored.metrics
    assert metrics["trial"] == 3
    assert (metrics["judge_status"], metrics["judge_score"]) == ("judged", 0.9)
    assert metrics["judge_passed"] is False
    assert metrics["nl_assertion_pass_count"] == metrics["nl_assertion_total"] == COUNT
    assert metrics["nl_assertion_pass_rate"] == 1.0
    assert metrics["token_usage"]["judge"] == {
        "n_calls": 1, "prompt": 100, "completion": 10, "cached": 40, "cost_usd": 0.001,
        "unpriced_calls": 0, "models": ["provider/judge"],
    }  # fmt: skip
    assert metrics["cost_usd"] == pytest.approx(0.251)
    versions = metrics["versions"]
    assert versions["assertions"] == assertions_sha256()
    assert (versions["judge_model"], versions["judge_prompt"]) == ("provider/judge", PROMPT_VERSION)
    assert versions["judge_prompt_sha256"] == prompt_sha256()
    stored = json.loads(files(scored)["judge_result.json"])
    assert stored["status"] == "judged"
    assert len(stored["nl_assertion_verdicts"]) == COUNT


async def test_one_assertion_that_fails_fails_the_call(builder, scoring):
    scored = await scoring(await builder.gold(REFUSAL), FakeGateway(ONE_FAILS))
    assert scored.verdict_dict()["outcome"] == "failed"
    assert scored.composite.breakdown.failed == ("NL_ASSERTION",)
    assert f"[{COUNT}]" in scored.composite.explanation
    assert scored.metrics["nl_assertion_pass_count"] == COUNT - 1
    # A score that is full changes nothing.
    assert scored.metrics["judge_passed"] is True


async def test_a_judge_that_is_off(builder, scoring):
    gateway = FakeGateway(ALL_HOLD)
    scored = await scoring(await builder.gold(REFUSAL), gateway, OFF)
    assert not gateway.bodies
    verdict = scored.verdict_dict()
    assert (verdict["outcome"], verdict["not_run_kind"]) == ("not_run", "judge_off")
    assert not scored.fully_judged
    assert scored.composite.breakdown.passed == ("DB_STATE_MATCH", "CLEAN_EXIT")
    metrics = scored.metrics
    assert metrics["signals"]["NL_ASSERTION"]["status"] == "not_judged"
    assert metrics["judge_status"] == "off"
    assert metrics["versions"]["judge_model"] is None
    for name in ("judge_score", "judge_passed", "nl_assertion_pass_rate", "nl_assertion_total"):
        assert metrics[name] is None
    assert json.loads(files(scored)["judge_result.json"])["status"] == "off"


@pytest.mark.parametrize(
    "reply", ["no answer", Refusal(grpc.StatusCode.UNAVAILABLE), Refusal(grpc.StatusCode.NOT_FOUND)]
)
async def test_a_judge_that_fails_is_no_score_and_can_be_asked_again(builder, scoring, reply):
    record = await builder.gold(REFUSAL)
    scored = await scoring(record, FakeGateway(reply))
    verdict = scored.verdict_dict()
    assert (verdict["outcome"], verdict["not_run_kind"]) == ("not_run", "judge_error")
    assert scored.composite.is_successful is None
    assert not scored.composite.caused_by_agent
    assert scored.metrics["judge_error"]
    for name in ("judge_score", "judge_passed", "nl_assertion_pass_rate", "nl_assertion_total"):
        assert scored.metrics[name] is None
    assert "JUDGE_PASSED" not in scored.signals
    assert json.loads(files(scored)["judge_result.json"])["error"]
    again = await scoring(record, FakeGateway(ALL_HOLD), kept=scored.judgement)
    assert again.verdict_dict()["outcome"] == "passed"


async def test_without_a_gateway_a_judge_that_is_on_has_failed(builder, catalog):
    reader = RecordReader()
    for part in (await builder.gold(REFUSAL)).parts():
        reader.feed(part)
    scorer = ConversationScorer(catalog, asyncio.to_thread, None)
    scored = await scorer.score(reader.finish(), "folder", ON)
    assert scored.composite.not_run_kind == "judge_error"
    assert "no gateway" in scored.composite.explanation


@pytest.mark.parametrize("reason", StopReason)
@pytest.mark.parametrize("settings", [ON, OFF], ids=["on", "off"])
async def test_the_judge_is_asked_about_calls_that_were_held(builder, scoring, reason, settings):
    gateway = FakeGateway(ALL_HOLD)
    number = record_pb2.StopReason.Value(f"STOP_REASON_{reason.upper()}")
    scored = await scoring(await builder.gold(REFUSAL, stop_reason=number), gateway, settings)
    infrastructure = reason in NOT_RUN_KINDS
    assert bool(gateway.bodies) is (settings is ON and not infrastructure)
    kind = scored.composite.not_run_kind
    if infrastructure:
        # What befell the call comes before what befell the judge.
        assert kind == NOT_RUN_KINDS[reason]
        assert "judge_result.json" not in files(scored)
    else:
        assert kind == ("" if settings is ON else "judge_off")


async def test_too_few_turns_fail_without_the_judge(builder, scoring):
    gateway = FakeGateway(ALL_HOLD)
    record = await builder.gold(REFUSAL, min_agent_turns=3)
    scored = await scoring(record, gateway)
    assert not gateway.bodies
    assert scored.verdict_dict()["outcome"] == "failed"
    assert scored.composite.insufficient_agent_turns
    assert scored.metrics["judge_status"] == "not_needed"
    scored = await scoring(record, gateway, OFF)
    assert scored.composite.not_run_kind == "judge_off"


async def test_a_database_report_that_contradicts_itself_is_not_judged(builder, scoring):
    gateway = FakeGateway(ALL_HOLD)
    record = await builder.gold(REFUSAL)
    record.agent.db_hash = "0" * 64
    scored = await scoring(record, gateway)
    assert not gateway.bodies
    assert scored.composite.not_run_kind == "harness_error"


async def test_a_missing_hash_fails_unless_the_bot_was_lost(builder, scoring):
    record = await builder.gold(REFUSAL)
    record.agent.db_hash = ""
    del record.agent.changed_records[:]
    scored = await scoring(record, FakeGateway(ALL_HOLD))
    assert scored.composite.breakdown.failed == ("DB_STATE_MATCH",)
    record.stop_reason = record_pb2.STOP_REASON_AGENT_LOST
    scored = await scoring(record, FakeGateway(ALL_HOLD))
    assert scored.composite.not_run_kind == "agent_lost"
    assert scored.metrics["db_state_match"] is None


async def test_a_scenario_without_assertions_is_judged_on_request_only(builder, scoring):
    record = await builder.gold("tau2_airline__11")
    gateway = FakeGateway('{"score": 0.5, "reason": "so so"}')
    scored = await scoring(record, gateway)
    assert not gateway.bodies
    assert scored.verdict_dict()["outcome"] == "passed"
    assert "NL_ASSERTION" not in scored.signals
    assert "judge_result.json" not in files(scored)

    settings = JudgeSettings(model="provider/judge", all_scenarios=True, threshold=0.5)
    scored = await scoring(record, gateway, settings)
    assert len(gateway.bodies) == 1
    assert scored.verdict_dict()["outcome"] == "passed"
    assert scored.composite.breakdown.excluded == ("ACTION_MATCH", "JUDGE_PASSED")
    assert (scored.metrics["judge_score"], scored.metrics["judge_passed"]) == (0.5, True)
    assert scored.metrics["nl_assertion_total"] is None
    # Nor does a judge that fails lose a score that does not need it.
    scored = await scoring(record, FakeGateway("no"), settings)
    assert scored.verdict_dict()["outcome"] == "passed"
    assert scored.metrics["judge_status"] == "error"


async def test_writes_that_an_empty_reference_does_not_have_are_a_mismatch(builder, scoring):
    gold = await builder.gold(REFUSAL)
    scored = await scoring(gold, FakeGateway(ALL_HOLD))
    assert scored.metrics["is_action_match"] is True
    certificate = ("send_certificate", {"user_id": "mia_li_3668", "amount": 50})
    rogue = await builder.gold(REFUSAL, calls=[certificate])
    scored = await scoring(rogue, FakeGateway(ALL_HOLD))
    assert scored.card.reference_answer == {"actions": []}
    assert scored.metrics["is_action_match"] is False
    assert scored.signals["ACTION_MATCH"].status == "failed"
    assert "ACTION_MATCH" in scored.composite.breakdown.excluded


async def test_a_judgement_that_stands_is_not_asked_for_again(builder, scoring):
    record = await builder.gold(REFUSAL)
    first = await scoring(record, FakeGateway(ONE_FAILS))
    gateway = FakeGateway(ALL_HOLD)
    again = await scoring(record, gateway, kept=first.judgement)
    assert not gateway.bodies
    assert again.judgement is first.judgement
    assert again.metrics == first.metrics

    other = JudgeSettings(model="provider/other")
    again = await scoring(record, gateway, other, kept=first.judgement)
    assert len(gateway.bodies) == 1
    assert again.verdict_dict()["outcome"] == "passed"
    assert again.metrics["versions"]["judge_model"] == "provider/other"

    # Another call is another question.
    record.turns[-1].text = "I changed my mind."
    await scoring(record, gateway, kept=first.judgement)
    assert len(gateway.bodies) == 2
    # With the judge off an old judgement does not count.
    scored = await scoring(record, gateway, OFF, kept=first.judgement)
    assert scored.composite.not_run_kind == "judge_off"


async def test_the_same_record_gives_the_same_input(builder, scoring):
    record = await builder.gold(REFUSAL, modality=voice_pb2.MODALITY_TEXT)
    inputs = {
        (await scoring(record, FakeGateway(ALL_HOLD))).judgement.user_content for _ in range(2)
    }
    assert len(inputs) == 1
