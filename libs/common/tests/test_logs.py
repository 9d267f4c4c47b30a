import json
import logging

from tau2eval_common.logs import JsonFormatter


def test_json_lines_hold_message_extra_and_exception():
    logger = logging.getLogger("tau2eval.test")
    try:
        raise ValueError("broken")
    except ValueError:
        record = logger.makeRecord(
            logger.name, logging.ERROR, __file__, 1, "call %s", ("c1",), _exc(), extra={"run": "r1"}
        )
    entry = json.loads(JsonFormatter("bridge").format(record))
    assert entry["message"] == "call c1"
    assert (entry["service"], entry["level"], entry["run"]) == ("bridge", "error", "r1")
    assert "ValueError: broken" in entry["exception"]
    assert entry["time"].endswith("+00:00")


def _exc():
    import sys

    return sys.exc_info()
