import io

from rich.console import Console

from tau2eval_cli.summary import print_rates


def printed(summary) -> str:
    out = io.StringIO()
    print_rates(Console(file=out, width=200), summary)
    return out.getvalue()


def rate(passed: int, of: int, strict: float | None = None):
    entry = {"passed": passed, "of": of, "rate": passed / of, "interval_95": [0.1, 0.9]}
    if strict is not None:
        entry["with_agent_faults_failed"] = {"rate": strict}
    return entry


def test_beside_each_rate_stands_the_one_that_counts_lost_agents_as_failures() -> None:
    text = printed(
        {
            "success_rate": rate(4, 4),
            "success_rate_with_agent_faults_failed": rate(4, 8),
            "pass_hat": {
                "rates": [
                    {"k": 1, "rate": 1.0, "with_agent_faults_failed": {"rate": 0.5}},
                    {"k": 2, "rate": 1.0, "with_agent_faults_failed": {"rate": 0.25}},
                ]
            },
            "signals": {"CLEAN_EXIT": {**rate(4, 4, 0.5), "gates": True}},
        }
    )
    assert "pass^1 100.0% [50.0% with" in text
    assert "pass^2 100.0% [25.0% with" in text
    assert "CLEAN_EXIT: 100.0% (4/4" in text
    assert text.count("own not run as failures") == 4


def test_it_is_not_repeated_where_it_is_the_same() -> None:
    text = printed({"signals": {"CLEAN_EXIT": {**rate(3, 4, 0.75), "gates": True}}})
    assert "CLEAN_EXIT: 75.0% (3/4" in text
    assert "own not run" not in text
