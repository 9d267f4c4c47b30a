"""Times gold replay and hashing of the airline domain, in this process, on one thread.

Prints one JSON object: seconds for the gold and hash of all scenarios after the import (the
fixtures are loaded, checked and hashed within that time), milliseconds for one hash, and the
resident memory in megabytes (1e6 bytes).
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time

import tau2eval_airline


def resident_megabytes() -> float:
    """Returns the largest resident memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak * (1 if sys.platform == "darwin" else 1024) / 1e6, 1)


def main() -> None:
    """Measures and prints."""
    after_import = resident_megabytes()
    start = time.perf_counter()
    scenarios = [tau2eval_airline.get_scenario(name) for name in tau2eval_airline.list_scenarios()]
    hashes = [scenario.expected_db_hash for scenario in scenarios]
    gold_seconds = time.perf_counter() - start
    after_gold = resident_megabytes()

    seed = scenarios[0].db
    user = next(iter(seed.records("users")))
    flight = min(seed.records("flights"))
    times: dict[str, list[float]] = {"users": [], "flights": []}
    for round_ in range(50):
        for table, key in (("users", user), ("flights", flight)):
            db = tau2eval_airline.OverlayDatabase(seed)
            record = db.read(table, key) or {}
            db.put(table, key, {**record, "round": round_})
            start = time.perf_counter()
            db.hash()
            times[table].append((time.perf_counter() - start) * 1e3)
    whole = tau2eval_airline.OverlayDatabase(seed).materialise()
    start = time.perf_counter()
    tau2eval_airline.plain_hash(whole)
    plain = (time.perf_counter() - start) * 1e3
    print(
        json.dumps(
            {
                "scenarios": len(hashes),
                "gold_and_hash_of_all_seconds": round(gold_seconds, 4),
                "hash_milliseconds_last_table_changed": round(statistics.median(times["users"]), 3),
                "hash_milliseconds_first_record_changed": round(
                    statistics.median(times["flights"]), 3
                ),
                "hash_milliseconds_worst": round(max(max(each) for each in times.values()), 3),
                "plain_hash_milliseconds": round(plain, 1),
                "resident_megabytes_after_import": after_import,
                "resident_megabytes_after_gold": after_gold,
            },
            indent=2,
        )
    )


if __name__ == "__main__":
    main()
