"""Holds our end of a sequence against the toolkit's; explains differences, or shrinks them.

A sequence is "identical" when each call's success or refusal and every record of the final database
are the same on both sides as sent. Otherwise it is "explained" when the toolkit, given the sequence
that the rules make of it, ends in exactly our database with exactly our successes (a call that the
rules take out must have been refused by us). Anything else is a deviation. The verdict is held
against the official evaluator's in the same two steps.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import tau2eval_airline as airline

from .ours import Ours, Records, canonical, run_ours, verdict_rewrite
from .peer import Peer, Theirs
from .sequences import Call, Sequence

SHRINK_TRIES = 80
LOOK_AT = (
    "Look at the named tool in libs/airline/src/tau2eval_airline/tools/ and at the rules in "
    "tests/validity/tau2eval_validity/rules.py; a departure on purpose needs a row in "
    "libs/airline/README.md and a rule, anything else is a fault of the tool."
)


@dataclass
class Outcome:
    """How one sequence compared.

    Attributes:
        sequence: The sequence.
        rules: The rules without which the databases or the outcomes of calls differ; empty if
            identical.
        verdict_rules: The rules without which the verdicts differ.
        identical: Same calls, same database, as sent.
        same_verdict: Same verdict as sent; None where there is none.
        hung: The toolkit hung on the sequence as sent.
        problems: What no rule explains; empty for what is right.
        db_hash: Our final hash.
        ok: Our successes.
        match: Our verdict.
    """

    sequence: Sequence
    rules: tuple[str, ...] = ()
    verdict_rules: tuple[str, ...] = ()
    identical: bool = False
    same_verdict: bool | None = None
    hung: bool = False
    problems: list[str] = field(default_factory=list)
    db_hash: str = ""
    ok: tuple[bool, ...] = ()
    match: bool | None = None


def compare(sequence: Sequence, peer: Peer) -> Outcome:
    """Runs a sequence on both sides and compares.

    Args:
        sequence: The sequence.
        peer: The toolkit.

    Returns:
        The outcome; its `problems` are empty if all is as it has to be.

    Raises:
        PeerError: If the toolkit gives no answer.
    """
    ours = run_ours(sequence)
    theirs = peer.run(list(sequence.calls), sequence.task)
    outcome = Outcome(
        sequence, db_hash=ours.db_hash, ok=ours.ok, match=ours.match, hung=theirs.hung
    )
    as_sent = _differences(ours, theirs, range(len(sequence.calls)))
    outcome.identical = not theirs.hung and not as_sent
    if sequence.task is not None:
        outcome.same_verdict = not theirs.hung and ours.match == theirs.match
    if outcome.identical and outcome.same_verdict is not False:
        return outcome

    kept = [at for at, item in enumerate(ours.rewrites) if item.call is not None]
    calls = [item.call for item in ours.rewrites if item.call is not None]
    rules = dict.fromkeys(rule for item in ours.rewrites for rule in item.rules)
    canonical_only = peer.run(calls)
    if not outcome.identical:
        outcome.rules = tuple(rules)
        if not rules:
            outcome.problems.append("The sides differ, and no rule applies to the sequence.")
            outcome.problems += as_sent or ["The toolkit hung."]
        else:
            outcome.problems += _differences(ours, canonical_only, kept)
    outcome.problems += [
        f"call {at} ({sequence.calls[at].tool}) succeeds here, though the rules "
        f"{', '.join(item.rules)} say that it is refused"
        for at, item in enumerate(ours.rewrites)
        if item.call is None and ours.ok[at]
    ]
    if outcome.same_verdict is False:
        _explain_verdict(outcome, calls, tuple(rules), peer)
    return outcome


def _explain_verdict(
    outcome: Outcome, calls: list[Call], rules: tuple[str, ...], peer: Peer
) -> None:
    """Has the official evaluator judge the rewritten sequence, and names the rules that it takes.

    Args:
        outcome: Gets `verdict_rules`, and a problem if the verdicts still differ.
        calls: The calls by the rules of the tools.
        rules: Those rules.
        peer: The toolkit.
    """
    sequence = outcome.sequence

    def agrees(given: list[Call], left_out: list[str]) -> bool:
        judged = peer.run(given, sequence.task, left_out)
        return not judged.hung and judged.match == outcome.match

    ordered, left_out, own = verdict_rewrite(sequence, calls)
    if not agrees(ordered, left_out):
        outcome.problems.append(
            f"DB_STATE_MATCH is {outcome.match} here, and the official evaluator says otherwise "
            f"also after the rules {', '.join((*rules, *own)) or '(none applies)'}"
        )
        return
    as_sent = verdict_rewrite(sequence, list(sequence.calls))[0]
    if rules and agrees(calls, []):
        outcome.verdict_rules = rules
    elif own and agrees(as_sent, left_out):
        outcome.verdict_rules = tuple(own)
    else:
        outcome.verdict_rules = (*rules, *own)


def _differences(ours: Ours, theirs: Theirs, kept: Any) -> list[str]:
    """Returns what differs in calls and records, in words.

    Args:
        ours: Our end.
        theirs: The toolkit's.
        kept: Our numbers of the calls that the toolkit was given.
    """
    if theirs.hung:
        return ["The toolkit hung."]
    found = []
    for place, at in enumerate(kept):
        if ours.ok[at] != theirs.ok[place]:
            found.append(
                f"call {at}: {_said(ours.ok[at], ours.errors[at])} here, "
                f"{_said(theirs.ok[place], theirs.errors[place])} there"
            )
    seed = airline.load_seed()
    for table, key in sorted({*ours.records, *theirs.records}):
        original = seed.records(table).get(key)
        left, right = (_record(side.records, table, key, original) for side in (ours, theirs))
        if canonical(left) != canonical(right):
            found.append(f"record {table}/{key}: {_where(left, right)}")
    return found


def _record(records: Records, table: str, key: str, original: Any) -> Any:
    return records.get((table, key), original)


def _said(ok: bool, error: str) -> str:
    return "succeeds" if ok else f"refused ({error[:160]})"


def _where(left: Any, right: Any) -> str:
    """Names the places that differ, with short values."""
    places = list(_places("", left, right))
    words = [f"{path or 'the record'}: {here} here, {there} there" for path, here, there in places]
    return "; ".join(words[:6]) + (f"; {len(words) - 6} more" if len(words) > 6 else "")


def _places(path: str, left: Any, right: Any) -> Iterator[tuple[str, str, str]]:
    if canonical(left) == canonical(right):
        return
    if isinstance(left, dict) and isinstance(right, dict):
        for name in sorted({*left, *right}):
            yield from _places(f"{path}.{name}".lstrip("."), left.get(name), right.get(name))
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for index, (here, there) in enumerate(zip(left, right, strict=True)):
            yield from _places(f"{path}[{index}]", here, there)
    else:
        yield path, canonical(left)[:200], canonical(right)[:200]


def shrink(outcome: Outcome, peer: Peer, tries: int = SHRINK_TRIES) -> Outcome:
    """Makes a deviation as small as it gets: fewer calls, then shorter lists.

    Args:
        outcome: One with problems.
        peer: The toolkit.
        tries: Bound on the comparisons.

    Returns:
        The outcome of the smallest sequence found that still deviates.
    """
    best = outcome
    progress = True
    while progress and tries > 0:
        progress = False
        for smaller in _smaller(best.sequence):
            tries -= 1
            tried = compare(smaller, peer)
            if tried.problems:
                best, progress = tried, True
                break
            if tries <= 0:
                break
    return best


def _smaller(sequence: Sequence) -> list[Sequence]:
    calls = list(sequence.calls)
    found = [sequence.with_calls(calls[:at] + calls[at + 1 :]) for at in range(len(calls))]
    for at, call in enumerate(calls):
        for name, value in call.arguments.items():
            if isinstance(value, list) and len(value) > 1:
                for index in range(len(value)):
                    other = copy.deepcopy(call.arguments)
                    del other[name][index]
                    changed = [*calls[:at], Call(call.tool, other), *calls[at + 1 :]]
                    found.append(sequence.with_calls(changed))
    return found


def report(outcome: Outcome) -> str:
    """Says a deviation in words, with the calls that reproduce it."""
    sequence = outcome.sequence
    of_task = f", task {sequence.task}" if sequence.task is not None else ""
    lines = [f"Sequence {sequence.number} ({sequence.kind}{of_task}) deviates:"]
    lines += [f"  - {problem}" for problem in outcome.problems]
    lines += ["  The calls, one a line:", *(f"    {line}" for line in sequence.text().split("\n"))]
    return "\n".join([*lines, f"  {LOOK_AT}"])
