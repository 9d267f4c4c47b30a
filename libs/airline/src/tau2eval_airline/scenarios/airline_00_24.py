"""The airline scenarios 0 to 24. A class sets name and tau2_id and nothing else."""

# ruff: noqa: D101 - the base class describes them; a docstring would be one more attribute

from __future__ import annotations

from .airline import Tau2AirlineBaseScenario
from .registry import register_eval_scenario


@register_eval_scenario
class Tau2Airline0(Tau2AirlineBaseScenario):
    name = "tau2_airline__0"
    tau2_id = "0"


@register_eval_scenario
class Tau2Airline1(Tau2AirlineBaseScenario):
    name = "tau2_airline__1"
    tau2_id = "1"


@register_eval_scenario
class Tau2Airline2(Tau2AirlineBaseScenario):
    name = "tau2_airline__2"
    tau2_id = "2"


@register_eval_scenario
class Tau2Airline3(Tau2AirlineBaseScenario):
    name = "tau2_airline__3"
    tau2_id = "3"


@register_eval_scenario
class Tau2Airline4(Tau2AirlineBaseScenario):
    name = "tau2_airline__4"
    tau2_id = "4"


@register_eval_scenario
class Tau2Airline5(Tau2AirlineBaseScenario):
    name = "tau2_airline__5"
    tau2_id = "5"


@register_eval_scenario
class Tau2Airline6(Tau2AirlineBaseScenario):
    name = "tau2_airline__6"
    tau2_id = "6"


@register_eval_scenario
class Tau2Airline7(Tau2AirlineBaseScenario):
    name = "tau2_airline__7"
    tau2_id = "7"


@register_eval_scenario
class Tau2Airline8(Tau2AirlineBaseScenario):
    name = "tau2_airline__8"
    tau2_id = "8"


@register_eval_scenario
class Tau2Airline9(Tau2AirlineBaseScenario):
    name = "tau2_airline__9"
    tau2_id = "9"


@register_eval_scenario
class Tau2Airline10(Tau2AirlineBaseScenario):
    name = "tau2_airline__10"
    tau2_id = "10"


@register_eval_scenario
class Tau2Airline11(Tau2AirlineBaseScenario):
    name = "tau2_airline__11"
    tau2_id = "11"


@register_eval_scenario
class Tau2Airline12(Tau2AirlineBaseScenario):
    name = "tau2_airline__12"
    tau2_id = "12"


@register_eval_scenario
class Tau2Airline13(Tau2AirlineBaseScenario):
    name = "tau2_airline__13"
    tau2_id = "13"


@register_eval_scenario
class Tau2Airline14(Tau2AirlineBaseScenario):
    name = "tau2_airline__14"
    tau2_id = "14"


@register_eval_scenario
class Tau2Airline15(Tau2AirlineBaseScenario):
    name = "tau2_airline__15"
    tau2_id = "15"


@register_eval_scenario
class Tau2Airline16(Tau2AirlineBaseScenario):
    name = "tau2_airline__16"
    tau2_id = "16"


@register_eval_scenario
class Tau2Airline17(Tau2AirlineBaseScenario):
    name = "tau2_airline__17"
    tau2_id = "17"


@register_eval_scenario
class Tau2Airline18(Tau2AirlineBaseScenario):
    name = "tau2_airline__18"
    tau2_id = "18"


@register_eval_scenario
class Tau2Airline19(Tau2AirlineBaseScenario):
    name = "tau2_airline__19"
    tau2_id = "19"


@register_eval_scenario
class Tau2Airline20(Tau2AirlineBaseScenario):
    name = "tau2_airline__20"
    tau2_id = "20"


@register_eval_scenario
class Tau2Airline21(Tau2AirlineBaseScenario):
    name = "tau2_airline__21"
    tau2_id = "21"


@register_eval_scenario
class Tau2Airline22(Tau2AirlineBaseScenario):
    name = "tau2_airline__22"
    tau2_id = "22"


@register_eval_scenario
class Tau2Airline23(Tau2AirlineBaseScenario):
    name = "tau2_airline__23"
    tau2_id = "23"


@register_eval_scenario
class Tau2Airline24(Tau2AirlineBaseScenario):
    name = "tau2_airline__24"
    tau2_id = "24"
