"""The pages: what they say for every outcome, and that nothing in a call can become markup."""

import html.parser
import json
import re
from itertools import pairwise

import pytest
from report_calls import GOLD, HOSTILE, REFUSAL, judged, turn

from tau2eval.scorer.v1 import record_pb2
from tau2eval.voice.v1 import voice_pb2
from tau2eval_scorer.judge import JudgeResult
from tau2eval_scorer.report import (
    MemoryFiles,
    content_security_policy,
    fingerprint_of,
    render_message,
    render_run,
    render_runs,
    render_scenario,
    scenario_fingerprint,
)

VOID = {"meta", "link", "br", "img", "input"}


class Page(html.parser.HTMLParser):
    """Reads a page strictly: elements, ids, scripts, visible text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.ids, self.links, self.open, self.said = [], [], [], [], []
        self.scripts, self.attributes = [], []
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag, attributes):
        self._see(tag, attributes)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self._see(tag, attributes)

    def _see(self, tag, attributes):
        self._space(tag)
        values = dict(attributes)
        assert len(values) == len(attributes), (tag, attributes)
        self.tags.append(tag)
        self.attributes.append((tag, values))
        if "id" in values:
            self.ids.append(values["id"])
        for name in ("href", "src"):
            if name in values:
                self.links.append(values[name])

    def _space(self, tag):
        if tag not in ("span", "del", "ins", "s", "strong", "a", "code"):
            self.said.append(" ")

    def handle_endtag(self, tag):
        self._space(tag)
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] == "script":
            self.scripts.append(data)
        elif not self.open or self.open[-1] != "style":
            self.said.append(data)

    @property
    def text(self):
        return " ".join("".join(self.said).split())


def checked(text):
    """Reads a page and checks what must hold for every one."""
    page = Page(text)
    assert len(page.ids) == len(set(page.ids)), "an id is there twice"
    assert page.tags.count("h1") == 1
    assert page.tags.count("main") == 1
    assert len(page.scripts) <= 1
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in pairwise(levels))
    for link in page.links:
        assert not re.match(r"(?i)\s*(javascript|https?|//)", link), link
        if link.startswith("#"):
            assert link[1:] in page.ids, link
    for tag, values in page.attributes:
        assert not any(name.startswith("on") for name in values), (tag, values)
        assert "style" not in values, (tag, values)
        assert int(values.get("tabindex") or 0) <= 0, (tag, values)
        if tag == "button":
            assert values.get("type") in ("button", "reset"), values
    return page


def stop(name):
    return getattr(record_pb2, f"STOP_REASON_{name.upper()}")


async def test_the_page_of_a_whole_call_shows_all_its_parts(make):
    call = await make.rich()
    page = checked(make.page(make.files(call)))
    text = page.text
    assert "Passed DB_STATE_MATCH and CLEAN_EXIT hold." in text
    assert "conversation_log.wav" in page.links
    assert page.tags.count("audio") == 1
    assert page.tags.count("path") >= 4  # Two channels and the icons of the button.
    assert "interrupted" in text
    assert "unspoken that up for you." in text
    assert "[not heard: GV1N64] on May 26." in text
    assert "[not said: and]" in text
    assert "the call ended first" in text
    assert "answers after 1.20 s" in text
    assert "no result" in text  # The tool that never answered.
    assert "0:06.8" in text
    assert '"status": "ok"' in text
    assert "The end state is the expected one." in text
    assert "500 ms" in text  # Speech recognition before the first answer.
    assert "$0.250 without 1 unpriced call" in text
    assert "events.jsonl" in page.links


async def test_turns_and_tool_calls_are_on_one_time_line_in_order(make):
    call = await make.rich()
    page = checked(make.page(make.files(call)))
    entries = [name for name in page.ids if re.match(r"(turn|call)-\d", name)]
    assert entries[:3] == ["turn-1", "turn-2", "call-1"]
    assert entries.index("turn-3") < entries.index("turn-4")
    assert sorted(entries) == sorted(set(entries))
    assert len([name for name in entries if re.match(r"turn-\d", name)]) == len(call.turns)


async def test_no_text_of_a_call_becomes_markup_or_script(make):
    call = await make.hostile()
    assertions = make.assertions(REFUSAL)
    judgement = judged(assertions, quote=HOSTILE, reason=HOSTILE, model=HOSTILE)
    for with_judge in (None, judgement, JudgeResult("error", error=HOSTILE)):
        files = make.files(call, with_judge)
        diff = json.loads(files["db_diff.json"])
        difference = {"table": HOSTILE, "key": HOSTILE, "path": HOSTILE, "expected": HOSTILE}
        diff["differences"] = [{**difference, "actual": {HOSTILE: HOSTILE}}]
        diff |= {"match": False, "how": "different", "inconsistent": None}
        files["db_diff.json"] = json.dumps(diff).encode()
        files[f"notes/{HOSTILE}.txt".replace("/s", "")] = b"x"
        page = checked(make.page(files))
        plain = checked(make.page(make.files(await make.rich())))
        # What the attacks try to add is in no page of ours.
        assert "img" not in page.tags
        assert page.tags.count("script") == 1
        assert page.scripts == plain.scripts
        assert "window.pwned = 1" in page.text  # It is there, as words.
        assert "{{ 7 * 7 }}" in page.text


async def test_no_text_of_a_run_becomes_markup_or_script(make):
    call = await make.hostile()
    call.stop_reason = stop("agent_error")
    summary = make.summary([make.scored(call)])
    summary["warnings"] = [HOSTILE]
    summary["resumes"] = [
        {"at": HOSTILE, "changes": [{"name": HOSTILE, "before": HOSTILE, "after": None}]}
    ]
    page = checked(render_run(summary, {"settings": {HOSTILE: {HOSTILE: HOSTILE}}}))
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert "window.pwned = 1" in page.text
    checked(render_message(HOSTILE, HOSTILE))
    run = {"run_id": HOSTILE, "created_at": HOSTILE, "finished_at": ""}
    checked(render_runs([{**run, "planned": 1, "passed": 0, "failed": 0, "not_run": 0}]))


def test_pages_forbid_everything_but_their_own_script_and_style():
    policy = content_security_policy()
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy.replace("https", "http").replace("'", "").split("frame")[0]
    page = Page(render_runs([]))
    metas = [values for tag, values in page.attributes if tag == "meta"]
    assert any(values.get("http-equiv") == "Content-Security-Policy" for values in metas)


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("agent_exit", "Passed"),
        ("timeout", "Failed"),
        ("agent_stalled", "Failed"),
        ("agent_error", "Failed"),
        ("user_stalled", "Not run: user stalled"),
        ("agent_lost", "Not run: agent lost"),
        ("user_lost", "Not run: user lost"),
        ("speech_error", "Not run: speech error"),
        ("gateway_error", "Not run: gateway error"),
        ("harness_error", "Not run: harness error"),
        ("cancelled", "Not run: cancelled"),
    ],
)
async def test_every_outcome_has_a_page_that_says_it(make, reason, label):
    call = await make.rich()
    call.stop_reason = stop(reason)
    if reason == "agent_lost":
        call.agent = None
    if reason == "user_lost":
        call.user = None
    scored = make.scored(call)
    page = checked(make.page(make.files(call)))
    assert f"{label} " in page.text
    assert ("Not a score" in page.text) == label.startswith("Not run")
    assert ("can bring this about" in page.text) == (reason == "agent_lost")
    run = checked(render_run(make.summary([scored])))
    outcome, _, kind = label.lower().partition(": ")
    assert f"{outcome} {kind}".strip() in run.text


async def test_a_call_without_turns_or_events_has_a_page(make):
    call = await make.gold()
    call.turns, call.events, call.agent, call.user = [], [], None, None
    call.audio_seconds = 0
    call.stop_reason = stop("agent_lost")
    files = make.files(call, seconds=0)
    text = checked(make.page(files)).text
    assert "Nothing was said and no tool was called." in text
    assert "No answer of the agent has a latency." in text
    # Whatever else is missing, metrics.json alone still makes a page.
    text = checked(make.page({"metrics.json": files["metrics.json"]})).text
    assert "There is no recording" in text
    assert "There is no comparison of the database." in text
    assert "No judgement is among the files" in text


async def test_broken_files_cost_only_their_own_part(make):
    files = make.files(await make.rich())
    for name in ("judge_result.json", "db_diff.json", "scenario_config/metadata.json"):
        files[name] = b"\xff{not json"
    files["events.jsonl"] = b'\n{"time_seconds": 1}\nnothing\n[1]\n' + files["events.jsonl"]
    files["conversation_log.wav"] = b"RIFFRIFF"
    page = checked(make.page(files))
    assert "call-1" in page.ids
    assert "The recording cannot be read" in page.text
    with pytest.raises(ValueError, match=r"metrics\.json"):
        render_scenario(MemoryFiles(make.cut(files, "metrics.json")))


async def test_text_calls_say_that_there_is_no_audio(make):
    call = await make.rich()
    call.modality = voice_pb2.MODALITY_TEXT
    page = checked(make.page(make.files(call)))
    assert "held in text, so there is no recording" in page.text
    assert "audio" not in page.tags
    assert "conversation_log.wav" not in page.links
    assert "turn-1" in page.ids  # The time line alone.
    assert page.tags.count("rect") > len(call.turns)
    assert not [values for _, values in page.attributes if "data-seek" in values]


async def test_words_without_a_sound_are_marked_as_not_played(make):
    call = await make.rich()
    call.turns[0] = turn(voice_pb2.ROLE_AGENT, 0.2, 0.2, "Never on the line", "")
    assert "not played" in checked(make.page(make.files(call))).text


async def test_verdicts_show_reason_quote_place_and_votes(make):
    call = await make.rich(REFUSAL)
    call.turns[1].text = call.turns[1].heard = "I am the caller"
    assertions = make.assertions(REFUSAL)
    judgement = judged(assertions, broken=(1,), quote="how can I help", agreement=0.9)
    page = checked(make.page(make.files(call, judgement)))
    assert f"does not hold 1. {assertions[0]}" in page.text
    assert f"holds 2. {assertions[1]}" in page.text
    assert f"{len(assertions) - 1} of {len(assertions)} assertions hold" in page.text
    assert "reason 1" in page.text
    assert "The quote is in the call: Agent, 0:00.2" in page.text
    assert "#turn-1" in page.links
    assert "Votes: 0 of 3 against it" in page.text
    assert "90.0 % agree" in page.text
    assert "Failed NL_ASSERTION:" in page.text
    lie = judged(assertions, quote="words that nobody said", found=False)
    text = checked(make.page(make.files(call, lie))).text
    assert "input does not have this quote" in text


@pytest.mark.parametrize(
    ("status", "says"),
    [
        ("off", "judges this call, without calling again"),
        ("error", "The judge failed, so nothing is known of what was said: It fell over."),
    ],
)
async def test_a_judge_that_did_not_judge_says_why_and_its_assertions_stand_there(
    make, status, says
):
    call = await make.rich(REFUSAL)
    files = make.files(call, JudgeResult(status, error="it fell over" if status == "error" else ""))
    text = checked(make.page(files)).text
    assert says in text
    assert make.assertions(REFUSAL)[0] in text
    assert "Not run" in text  # Never passed and never failed.


async def test_a_call_that_needs_no_judge_says_why(make):
    call = await make.rich(GOLD)
    text = checked(make.page(make.files(call, JudgeResult("not_needed")))).text
    assert "Nothing was to be judged: the scenario has no assertions." in text
    call = await make.rich(REFUSAL)
    call.min_agent_turns = 9
    text = checked(make.page(make.files(call, JudgeResult("not_needed")))).text
    assert "Nothing was to be judged: the call failed by too few turns of the agent." in text
    call.stop_reason = stop("agent_lost")
    text = checked(make.page(make.files(call, JudgeResult("not_needed")))).text
    assert "Nothing was to be judged: the call is not a score." in text
    assert "The agent's bot was lost." in text


async def test_the_database_differences_show_expected_and_actual(make):
    call = await make.rich(calls=[])
    page = checked(make.page(make.files(call)))
    assert "The end state is not the expected one" in page.text
    assert "GV1N64" in page.text
    assert "Failed DB_STATE_MATCH" in page.text
    # A text that looks like a number is told apart from the number.
    files = make.files(call)
    diff = json.loads(files["db_diff.json"])
    diff["differences"] = [{"table": "t", "key": "k", "path": "p", "expected": "1", "actual": 1}]
    diff["differences_total"] = 7000
    files["db_diff.json"] = json.dumps(diff).encode()
    text = checked(make.page(files)).text
    assert 't k p "1" 1' in text
    assert "The first 1 are shown" in text


async def test_a_long_call_stays_small_and_is_whole(make):
    call = make.long(await make.gold())
    files = make.files(call, seconds=900)
    text = make.page(files)
    assert len(text) < 4_000_000
    page = checked(text)
    assert len([name for name in page.ids if re.match(r"turn-\d", name)]) == 200
    assert len([name for name in page.ids if re.match(r"call-\d", name)]) == 200
    assert "Cut here;" in page.text


async def test_the_run_page_counts_and_links_everything(make):
    gold = make.scored(await make.rich())
    lost = await make.rich("tau2_airline__1")
    lost.stop_reason, lost.agent = stop("agent_lost"), None
    wrong = await make.rich("tau2_airline__14", calls=[])
    unjudged = await make.rich(REFUSAL)
    scored = [gold, make.scored(lost), make.scored(wrong), make.scored(unjudged)]
    summary = make.summary(scored, missing=["tau2_airline__2"], finished_at="")
    page = checked(render_run(summary, {"settings": {"agent_model": "scripted/gold"}}))
    text = page.text
    assert "50.0 % 1 of 2 scored calls" in text
    assert "33.3 % 1 of 3" in text  # The lost agent as a failure.
    assert "agent lost: 1 judge off: 1" in text
    assert "still open" in text
    assert "missing No attempt has been stored." in text
    for warning in summary["warnings"]:
        assert " ".join(warning.replace("`", "").split()) in text
    rows = [values for tag, values in page.attributes if tag == "tr" and "data-outcome" in values]
    assert len(rows) == 5
    assert {values["data-outcome"] for values in rows} == {"passed", "failed", "not_run", "missing"}
    assert any("DB_STATE_MATCH" in values["data-failed"].split() for values in rows)
    assert "tau2_airline__11/report.html" in page.links
    assert "tau2_airline__2/report.html" not in page.links
    assert "agent_model" in text


async def test_trials_show_pass_hat_and_who_is_short_of_them(make):
    scored = []
    for trial in range(2):
        call = await make.rich(trial=trial)
        scored.append(make.scored(call))
    summary = make.summary(scored, trials=3, missing=["tau2_airline__2"])
    text = checked(render_run(summary)).text
    assert "pass^k" in text
    assert "tau2_airline__11: 2 of 3 scored; 1 missing" in text
    assert "tau2_airline__2: 0 of 3 scored; 3 missing" in text


async def test_a_run_with_nothing_in_it_has_a_page(make):
    page = checked(render_run(make.summary([], missing=[GOLD])))
    assert "0 of 0 scored calls" in page.text


async def test_a_page_knows_whether_it_is_of_these_files(make):
    files = make.files(await make.rich())
    page = make.page(files).encode()
    mark = fingerprint_of(page[:1024])
    assert mark == fingerprint_of(page) == scenario_fingerprint(MemoryFiles(files))
    assert mark == scenario_fingerprint(MemoryFiles({**files, "report.html": page}))
    for name in ("metrics.json", "events.jsonl", "conversation_log.wav"):
        changed = {**files, name: files[name] + b" "}
        assert scenario_fingerprint(MemoryFiles(changed)) != mark
    assert scenario_fingerprint(MemoryFiles(make.cut(files, "judge_result.json"))) != mark or (
        "judge_result.json" not in files
    )
    assert fingerprint_of(b"<html>") == ""
