"""Part A: all sequences on both sides, counted by rule."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .compare import Outcome, compare, report, shrink
from .generate import COUNT, SEED, generate, tools_used
from .peer import Answers, Peer, peer_python
from .rules import RULES

SHOWN = 5  # Deviations that are shrunk and shown; all are counted.


@dataclass
class ToolkitResult:
    """What part A found.

    Attributes:
        version: The toolkit's version.
        outcomes: One per sequence, in order.
        deviations: Words for the first deviations, shrunk.
    """

    version: str
    outcomes: list[Outcome]
    deviations: list[str]

    @property
    def deviating(self) -> list[Outcome]:
        """The outcomes that no rule explains."""
        return [outcome for outcome in self.outcomes if outcome.problems]

    @property
    def verdicts(self) -> list[Outcome]:
        """The outcomes that have a verdict."""
        return [outcome for outcome in self.outcomes if outcome.same_verdict is not None]

    def by_rule(self) -> dict[str, tuple[int, int]]:
        """Returns (sequences, verdicts) that differ as sent, by the rules that apply to them."""
        databases: Counter[str] = Counter()
        verdicts: Counter[str] = Counter()
        for outcome in self.outcomes:
            databases.update(outcome.rules)
            verdicts.update(outcome.verdict_rules)
        return {rule: (databases[rule], verdicts[rule]) for rule in RULES}

    def weaknesses(self) -> list[str]:
        """Says where the set of sequences has become too easy to prove anything."""
        found = []
        count = len(self.outcomes)
        identical = sum(outcome.identical for outcome in self.outcomes)
        if identical < 0.6 * count:
            found.append(f"only {identical} of {count} sequences compare without a rule")
        unused = [tool for tool, calls in self.tools().items() if calls < 20]
        if count >= COUNT and unused:
            found.append(f"tools called fewer than 20 times: {', '.join(unused)}")
        idle = [rule for rule, counts in self.by_rule().items() if not sum(counts)]
        if count >= COUNT and idle:
            found.append(f"rules that no sequence needs: {', '.join(idle)}")
        matches = sum(outcome.match is True for outcome in self.verdicts)
        if count >= COUNT and not 0.2 < matches / len(self.verdicts) < 0.8:
            found.append(f"{matches} of {len(self.verdicts)} verdicts are a match: too one-sided")
        return found

    def tools(self) -> dict[str, int]:
        """Counts the calls of each tool."""
        return tools_used([outcome.sequence for outcome in self.outcomes])


def compare_all(
    venv: Path,
    answers: Answers,
    count: int = COUNT,
    seed: int = SEED,
    workers: int = 2,
    progress: Callable[[int, int], None] = lambda done, of: None,
) -> ToolkitResult:
    """Compares all sequences.

    Args:
        venv: The toolkit's environment.
        answers: Where the toolkit's answers are kept.
        count: How many sequences.
        seed: Where chance starts.
        workers: Processes of the toolkit.
        progress: Is told how many are done.

    Raises:
        PeerError: If the toolkit cannot be asked: then nothing was proved.
    """
    sequences = generate(count, seed)
    waiting: queue.SimpleQueue[int] = queue.SimpleQueue()
    for at in range(len(sequences)):
        waiting.put(at)
    outcomes: dict[int, Outcome] = {}
    failures: list[BaseException] = []
    versions: list[str] = []

    def work() -> None:
        try:
            with Peer(peer_python(venv), answers) as peer:
                versions.append(peer.version)
                while not failures:
                    try:
                        at = waiting.get_nowait()
                    except queue.Empty:
                        return
                    outcomes[at] = compare(sequences[at], peer)
                    progress(len(outcomes), len(sequences))
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(max(1, workers))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    ordered = [outcomes[at] for at in range(len(sequences))]
    deviating = [outcome for outcome in ordered if outcome.problems][:SHOWN]
    deviations = []
    if deviating:
        with Peer(peer_python(venv), answers) as peer:
            deviations = [report(shrink(outcome, peer)) for outcome in deviating]
    return ToolkitResult(versions[0], ordered, deviations)
