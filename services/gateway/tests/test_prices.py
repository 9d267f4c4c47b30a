"""Every token is billed once, whoever counts what where."""

import itertools

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tau2eval_gateway.model_list import Deployment, ModelListError, load_deployments
from tau2eval_gateway.prices import Prices
from tau2eval_gateway.usage import Usage, complete_usage, merge, read_usage

# The figures of BerriAI/litellm#14849 and #9812.
GEMINI = Prices(input=1.25e-6, output=10e-6, cache_read=0.625e-6)
CLAUDE = Prices(input=3e-6, output=15e-6, cache_read=0.3e-6, cache_write=3.75e-6)
CACHED = {"prompt_tokens": 262960, "completion_tokens": 1744, "total_tokens": 264704,
          "prompt_tokens_details": {"cached_tokens": 257955, "text_tokens": 262960}}  # fmt: skip
WRITES = {
    "anthropic": {"input_tokens": 3, "cache_creation_input_tokens": 12304,
                  "cache_read_input_tokens": 0, "output_tokens": 550},
    "beside": {"prompt_tokens": 3, "completion_tokens": 550, "total_tokens": 553,
               "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0},
    "beside, in the total": {"prompt_tokens": 3, "completion_tokens": 550, "total_tokens": 12857,
                             "cache_creation_input_tokens": 12304},
    "within": {"prompt_tokens": 12307, "completion_tokens": 550, "total_tokens": 12857,
               "cache_creation_input_tokens": 12304, "cache_read_input_tokens": 0},
    "openrouter": {"prompt_tokens": 12307, "completion_tokens": 550, "total_tokens": 12857,
                   "prompt_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 12304}},
    "litellm": {"prompt_tokens": 12307, "completion_tokens": 550, "total_tokens": 12857,
                "prompt_tokens_details": {"cached_tokens": 0, "cache_creation_tokens": 12304},
                "cache_creation_input_tokens": 12304},
}  # fmt: skip


def test_cached_tokens_are_billed_once():
    usage = read_usage(CACHED)
    assert GEMINI.cost(usage) == pytest.approx(0.1849, abs=5e-5)
    beside = {"input_tokens": 5005, "cache_read_input_tokens": 257955, "output_tokens": 1744}
    assert GEMINI.cost(read_usage(beside)) == GEMINI.cost(usage)


@pytest.mark.parametrize("shape", WRITES)
def test_cache_writes_are_billed_once_at_their_own_price(shape):
    usage = read_usage(WRITES[shape])
    assert (usage.prompt_tokens, usage.cache_write_tokens) == (12307, 12304)
    assert CLAUDE.cost(usage) == pytest.approx(0.0544, abs=5e-5)


@pytest.mark.parametrize(
    ("usage", "prompt", "completion", "cached", "written", "reasoning"),
    [
        # Both kinds of cache, beside and far larger in sum than the prompt.
        ({"input_tokens": 10, "cache_read_input_tokens": 7, "cache_creation_input_tokens": 5,
          "output_tokens": 2}, 22, 2, 7, 5, 0),
        # The total alone tells that the cache stands beside.
        ({"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 132,
          "cache_read_input_tokens": 30}, 130, 2, 30, 0, 0),
        ({"prompt_tokens": 100, "completion_tokens": 2, "total_tokens": 102,
          "prompt_cache_hit_tokens": 30, "prompt_cache_miss_tokens": 70}, 100, 2, 30, 0, 0),
        # Reasoning beside what is written (xAI), and in the total only (Gemini).
        ({"prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 117,
          "completion_tokens_details": {"reasoning_tokens": 100}}, 8, 109, 0, 0, 100),
        ({"prompt_tokens": 8, "completion_tokens": 200, "total_tokens": 308,
          "completion_tokens_details": {"reasoning_tokens": 100}}, 8, 300, 0, 0, 100),
        ({"prompt_tokens": 8, "completion_tokens": 9, "total_tokens": 117}, 8, 109, 0, 0, 100),
        ({"prompt_tokens": 8, "completion_tokens": 109, "total_tokens": 117,
          "completion_tokens_details": {"reasoning_tokens": 100}}, 8, 109, 0, 0, 100),
        ({"input_tokens": 20, "output_tokens": 4, "total_tokens": 24,
          "input_tokens_details": {"cached_tokens": 15}}, 20, 4, 15, 0, 0),
    ],
)  # fmt: skip
def test_shapes_of_usage(usage, prompt, completion, cached, written, reasoning):
    assert read_usage(usage) == Usage(prompt, completion, cached, written, reasoning)


@pytest.mark.parametrize(
    ("usage", "cost"),
    [
        ({"prompt_tokens": 1, "cost": 0.25}, 0.25),
        ({"prompt_tokens": 1, "cost": 0}, 0.0),
        ({"prompt_tokens": 1, "cost": -1}, None),
        ({"prompt_tokens": 1, "cost": True}, None),
        ({"prompt_tokens": 1, "cost": float("inf")}, None),
        ({"prompt_tokens": 1, "cost": float("nan")}, None),
        ({"prompt_tokens": 1, "cost": 0.01, "is_byok": True,
          "cost_details": {"upstream_inference_cost": 0.2}}, 0.21),
        ({"prompt_tokens": 1, "cost": 0.01, "is_byok": True}, None),
        ({"prompt_tokens": 1, "cost": 0.3, "is_byok": False,
          "cost_details": {"upstream_inference_cost": 0.2}}, 0.3),
    ],
)  # fmt: skip
def test_the_providers_own_cost(usage, cost):
    assert read_usage(usage).cost_usd == pytest.approx(cost)


@pytest.mark.parametrize(
    "usage", [None, {}, [], "x", {"prompt_tokens": 0, "completion_tokens": 0},
              {"prompt_tokens": "12", "completion_tokens": None}]
)  # fmt: skip
def test_usage_that_says_nothing_is_none(usage):
    assert read_usage(usage) is None


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.dictionaries(
        st.sampled_from(["cached_tokens", "cache_write_tokens", "reasoning_tokens"]), inner
    ),
    max_leaves=4,
)


@given(
    st.dictionaries(
        st.sampled_from(
            [
                *("prompt_tokens", "completion_tokens", "total_tokens", "input_tokens"),
                *("output_tokens", "cost", "prompt_tokens_details", "is_byok", "cost_details"),
                *("completion_tokens_details", "cache_read_input_tokens"),
                "cache_creation_input_tokens",
            ]
        ),
        ANY,
    )
)
def test_any_usage_gives_counts_that_hold_together(body):
    usage = read_usage(body)
    if usage is None:
        return
    assert 0 <= usage.cached_tokens + usage.cache_write_tokens <= usage.prompt_tokens < 2**63
    assert 0 <= usage.reasoning_tokens <= usage.completion_tokens < 2**63
    assert usage.cost_usd is None or 0 <= usage.cost_usd <= 2**53
    # No token is billed twice: at one price for all of them, the sum is what was counted.
    total = usage.prompt_tokens + usage.completion_tokens
    assert Prices(1.0, 1.0, 1.0, 1.0, 1.0).cost(usage) == pytest.approx(total)


COUNTS = st.integers(0, 10**6)


@given(fresh=COUNTS, read=COUNTS, written=COUNTS, shown=st.integers(1, 10**6), thought=COUNTS)
def test_within_and_beside_mean_the_same(fresh, read, written, shown, thought):
    prompt = fresh + read + written
    completion = shown + thought
    details = {"cached_tokens": read, "cache_write_tokens": written}
    said = {"completion_tokens_details": {"reasoning_tokens": thought}}
    within = {"prompt_tokens": prompt, "completion_tokens": completion,
              "total_tokens": prompt + completion, "prompt_tokens_details": details}  # fmt: skip
    anthropic = {"input_tokens": fresh, "output_tokens": completion,
                 "cache_read_input_tokens": read,
                 "cache_creation_input_tokens": written}  # fmt: skip
    wanted = Usage(prompt, completion, read, written, thought)
    assert read_usage({**within, **said}) == wanted
    assert read_usage({**anthropic, **said}) == wanted
    # As many thoughts as cached tokens: the total cannot tell which of them stand beside.
    assume(not thought or thought != read + written)
    outside = {**within, "completion_tokens": shown, "total_tokens": prompt + completion, **said}
    assert read_usage(outside) == wanted


def test_a_stream_that_was_left_counts_what_was_seen():
    body = {"messages": [{"role": "user", "content": "x" * 400}]}
    begun = Usage(prompt_tokens=50, completion_tokens=1, cost_usd=0.1)
    left = complete_usage(begun, body, 400, whole=False)
    assert (left.prompt_tokens, left.completion_tokens) == (50, 100)
    assert (left.estimated, left.cost_usd) == (True, None)
    assert complete_usage(begun, body, 400, whole=True) == begun
    nothing = complete_usage(None, body, 0, whole=False)
    assert nothing.estimated
    assert nothing.prompt_tokens > 100
    forgot = complete_usage(Usage(prompt_tokens=50), body, 8, whole=True)
    assert (forgot.completion_tokens, forgot.estimated) == (2, True)
    half = complete_usage(Usage(completion_tokens=7), body, 28, whole=True)
    assert half.prompt_tokens > 100
    assert (half.completion_tokens, half.estimated) == (7, True)


def test_usages_of_one_stream_add_up_to_the_last():
    parts = [Usage(prompt_tokens=9), Usage(completion_tokens=3), Usage(completion_tokens=8)]
    found = None
    for part in parts:
        found = merge(found, part)
    assert found == Usage(prompt_tokens=9, completion_tokens=8)
    assert merge(Usage(cost_usd=0.5), Usage(prompt_tokens=1)).cost_usd == 0.5


LIST = """
model_list:
  - model_name: m
    litellm_params: {{model: openai/m, api_base: "http://127.0.0.1:1/v1"}}
    model_info: {{{info}}}
"""
BASE = "input_cost_per_token: 1.25e-6, output_cost_per_token: 0.00001"


def load(tmp_path, info):
    path = tmp_path / "models.yaml"
    path.write_text(LIST.format(info=info))
    return load_deployments(path)[0].prices


def test_the_model_list_has_every_kind_of_price(tmp_path):
    text = ", ".join(
        [
            BASE,
            "cache_read_input_token_cost: 0.1, cache_creation_input_token_cost: 0.2",
            "output_cost_per_reasoning_token: 0.3",
            "input_cost_per_token_above_200k_tokens: 0.5",
            "output_cost_per_token_above_272k_tokens: 0.7",
        ]
    )
    # YAML reads 1.25e-6 as a number only with a dot and a signed exponent, as here.
    prices = load(tmp_path, text)
    assert prices == Prices(
        1.25e-6, 1e-5, 0.1, 0.2, 0.3,
        above=(
            (272_000, Prices(0.5, 0.7, 0.1, 0.2, 0.3)),
            (200_000, Prices(0.5, 1e-5, 0.1, 0.2, 0.3)),
        ),
    )  # fmt: skip
    costs = [prices.cost(Usage(prompt_tokens=count)) for count in (200_000, 200_001, 272_001)]
    assert costs == pytest.approx([0.25, 100_000.5, 136_000.5])


@pytest.mark.parametrize(
    "info",
    [
        f"{BASE}, cache_creation_input_token_cost: cheap",
        f"{BASE}, output_cost_per_reasoning_token: .inf",
        f"{BASE}, input_cost_per_token_above_200_tokens: 1",
        f"{BASE}, input_cost_per_tokn: 1",
        "cache_creation_input_token_cost: 0.1",
    ],
)
def test_a_price_that_cannot_be_read_is_named(tmp_path, info):
    with pytest.raises(ModelListError, match=r"models\.yaml"):
        load(tmp_path, info)


LITE_USAGE = [
    ("gemini/gemini-2.5-pro", CACHED, 5005 * 2.5e-6 + 257955 * 0.25e-6 + 1744 * 15e-6),
    *itertools.product(["anthropic/claude-sonnet-4-5"], WRITES.values(), [0.054399]),
]


@pytest.mark.parametrize(("model", "usage", "cost"), LITE_USAGE)
def test_litellms_table_bills_cache_tokens_once(model, usage, cost):
    from tau2eval_gateway.redaction import Redactor
    from tau2eval_gateway.requests import parse_chat_request
    from tau2eval_gateway.routes import Environment, Route
    from tau2eval_gateway.upstreams.base import UpstreamCall
    from tau2eval_gateway.upstreams.lite import LiteLLMUpstream, _import

    upstream = LiteLLMUpstream(Environment({}), Redactor({}))
    upstream._module = _import()
    request = parse_chat_request(b'{"model": "m", "messages": [{}]}', 1000)
    call = UpstreamCall(Route(Deployment("*", "*"), model), request, 1.0, 1.0)
    assert upstream.price(call, read_usage(usage)) == pytest.approx(cost)
