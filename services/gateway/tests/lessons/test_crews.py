"""The section `crews` of the model list."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tau2eval_gateway.crews import Crew, check_crews, load_crews
from tau2eval_gateway.flows.ids import read_model_id
from tau2eval_gateway.model_list import ModelListError, default_deployments, load_deployments
from tau2eval_gateway.routes import Router

MODELS = """\
model_list:
  - model_name: prov/*
    litellm_params: {model: "openai/*", api_base: "http://127.0.0.1:1/v1"}
"""
GOOD = """\
crews:
  careful:
    proposer: prov/big
    checkers: [prov/other, prov/third]
    flows: [obligations, verify]
    rounds: 2
    lessons: armed
    description: For writes.
  plain-check:
    proposer: prov/small
    flows: [argcheck]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "models.yaml"
    path.write_text(MODELS + text, encoding="utf-8")
    return path


def test_crews_are_read_beside_the_model_list(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    assert load_crews(path) == {
        "careful": Crew(
            "careful",
            "prov/big",
            ("obligations", "verify"),
            ("prov/other", "prov/third"),
            2,
            "armed",
            "For writes.",
        ),
        "plain-check": Crew("plain-check", "prov/small", ("argcheck",)),
    }
    assert len(load_deployments(path)) == 1


def test_no_section_means_no_crews(tmp_path: Path) -> None:
    assert load_crews(written(tmp_path, "")) == {}


def test_a_crew_becomes_a_plan(tmp_path: Path) -> None:
    crews = load_crews(written(tmp_path, GOOD))
    plan = read_model_id(crews["careful"].model_id, crews)
    assert plan is not None
    assert crews["careful"].model_id == "marina:careful"
    assert plan.flows == ("obligations", "verify")
    assert (plan.agent_model, plan.checkers) == ("prov/big", ("prov/other", "prov/third"))
    assert (plan.arm, plan.rounds, plan.lessons) == ("crew:careful", 2, "armed")


@pytest.mark.parametrize("word", ["off", '"off"', "observe", "armed"])
def test_modes_of_lessons(tmp_path: Path, word: str) -> None:
    text = f"crews: {{c: {{proposer: prov/a, flows: [verify], lessons: {word}}}}}\n"
    assert load_crews(written(tmp_path, text))["c"].lessons == word.strip('"')


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("{flows: [verify]}", "crews.c.proposer is missing"),
        ("{proposer: prov/a}", "crews.c.flows is not a list with some of"),
        ("{proposer: prov/a, flows: []}", "crews.c.flows is not a list"),
        ("{proposer: prov/a, flows: verify}", "crews.c.flows is not a list"),
        (
            "{proposer: prov/a, flows: [verfy]}",
            "crews.c.flows: there is no control flow 'verfy'; did you mean verify?",
        ),
        ("{proposer: prov/a, flows: [[verify]]}", "there is no control flow"),
        ("{proposer: prov/a, flows: [verify, verify]}", "crews.c.flows names verify twice"),
        (
            "{proposer: prov/a, flows: [verify], checker: prov/b}",
            "crews.c.checker is not a key of a crew; did you mean checkers?",
        ),
        ("{proposer: prov/a, flows: [verify], 7: x}", "crews.c.7 is not a key"),
        ("{proposer: prov/a, flows: [verify], checkers: prov/b}", "crews.c.checkers is not a list"),
        ("{proposer: prov/a, flows: [verify], checkers: []}", "crews.c.checkers is not a list"),
        ("{proposer: prov/a, flows: [verify], checkers: [3]}", r"checkers\[0\] is not a model id"),
        (
            "{proposer: prov/a, flows: [verify], checkers: [prov/b, prov/b]}",
            "crews.c.checkers names a model twice",
        ),
        (
            "{proposer: prov/a, flows: [argcheck], checkers: [prov/b]}",
            "crews.c.checkers has no meaning without verify",
        ),
        (
            "{proposer: prov/a, flows: [argcheck], rounds: 0}",
            "crews.c.rounds has no meaning without verify",
        ),
        ("{proposer: prov/a, flows: [verify], rounds: 4}", "crews.c.rounds is not a whole number"),
        ("{proposer: prov/a, flows: [verify], rounds: -1}", "crews.c.rounds is not a whole"),
        ("{proposer: prov/a, flows: [verify], rounds: true}", "crews.c.rounds is not a whole"),
        ("{proposer: prov/a, flows: [verify], rounds: 1.0}", "crews.c.rounds is not a whole"),
        ("{proposer: prov/a, flows: [verify], lessons: on}", "crews.c.lessons is none of armed"),
        ("{proposer: prov/a, flows: [verify], lessons: arm}", "crews.c.lessons is none of armed"),
        ("{proposer: 'marina:c', flows: [verify]}", "crews.c.proposer: members are plain"),
        ("{proposer: 'marina:d', flows: [verify]}", "crews.c.proposer: members are plain"),
        ("{proposer: 'marina/argcheck:prov/a', flows: [verify]}", "members are plain model ids"),
        (
            "{proposer: prov/a, flows: [verify], checkers: ['marina:c']}",
            r"crews.c.checkers\[0\]: members are plain",
        ),
        ("{proposer: 'prov/*', flows: [verify]}", "crews.c.proposer is not a model id"),
        ("{proposer: 'a b', flows: [verify]}", "crews.c.proposer is not a model id"),
        ("{proposer: '', flows: [verify]}", "crews.c.proposer is not a model id"),
        ("{proposer: [prov/a], flows: [verify]}", "crews.c.proposer is not a model id"),
        ("{proposer: prov/a, flows: [verify], description: 3}", "crews.c.description is not"),
        ("prov/a", "crews.c is not a mapping"),
        ("null", "crews.c is not a mapping"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path: Path, entry: str, message: str) -> None:
    path = written(tmp_path, f"crews:\n  c: {entry}\n")
    with pytest.raises(ModelListError, match=message) as caught:
        load_crews(path)
    assert str(caught.value).startswith(f"{path}: crews")


@pytest.mark.parametrize("name", ["C", "a b", "'a,b'", "7", "'x:y'", "a/b", "-a", "'é'", "a" * 65])
def test_names_are_words(tmp_path: Path, name: str) -> None:
    path = written(tmp_path, f"crews:\n  {name}: {{proposer: prov/a, flows: [verify]}}\n")
    with pytest.raises(ModelListError, match="crews: the name"):
        load_crews(path)


@pytest.mark.parametrize("section", ["crews: []", "crews: {}", "crews: x", "crews: 3"])
def test_the_section_is_a_mapping(tmp_path: Path, section: str) -> None:
    with pytest.raises(ModelListError, match="crews is not a mapping"):
        load_crews(written(tmp_path, section + "\n"))


def test_models_of_a_crew_must_be_served(tmp_path: Path) -> None:
    path = written(
        tmp_path, "crews: {c: {proposer: prov/a, flows: [verify], checkers: [prov/b, other/x]}}\n"
    )
    crews = load_crews(path)
    with pytest.raises(ModelListError, match=r"crews.c.checkers\[1\]: no entry .*'other/x'"):
        check_crews(crews, path, Router(load_deployments(path)).check)
    check_crews(crews, path, Router(default_deployments("")).check)


names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,20}", fullmatch=True)


@given(names, st.permutations(["obligations", "argcheck", "verify"]), st.integers(1, 3))
def test_every_composition_can_be_asked_for(name: str, order: list[str], count: int) -> None:
    flows = tuple(order[:count])
    crews = {name: Crew(name, "prov/a", flows)}
    plan = read_model_id(crews[name].model_id, crews)
    assert plan is not None
    assert plan.flows == flows
