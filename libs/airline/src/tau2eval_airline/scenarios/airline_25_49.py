"""The airline scenarios 25 to 49. A class sets name and tau2_id and nothing else."""

# ruff: noqa: D101 - the base class describes them; a docstring would be one more attribute

from __future__ import annotations

from .airline import Tau2AirlineBaseScenario
from .registry import register_eval_scenario


@register_eval_scenario
class Tau2Airline25(Tau2AirlineBaseScenario):
    name = "tau2_airline__25"
    tau2_id = "25"


@register_eval_scenario
class Tau2Airline26(Tau2AirlineBaseScenario):
    name = "tau2_airline__26"
    tau2_id = "26"


@register_eval_scenario
class Tau2Airline27(Tau2AirlineBaseScenario):
    name = "tau2_airline__27"
    tau2_id = "27"


@register_eval_scenario
class Tau2Airline28(Tau2AirlineBaseScenario):
    name = "tau2_airline__28"
    tau2_id = "28"


@register_eval_scenario
class Tau2Airline29(Tau2AirlineBaseScenario):
    name = "tau2_airline__29"
    tau2_id = "29"


@register_eval_scenario
class Tau2Airline30(Tau2AirlineBaseScenario):
    name = "tau2_airline__30"
    tau2_id = "30"


@register_eval_scenario
class Tau2Airline31(Tau2AirlineBaseScenario):
    name = "tau2_airline__31"
    tau2_id = "31"


@register_eval_scenario
class Tau2Airline32(Tau2AirlineBaseScenario):
    name = "tau2_airline__32"
    tau2_id = "32"


@register_eval_scenario
class Tau2Airline33(Tau2AirlineBaseScenario):
    name = "tau2_airline__33"
    tau2_id = "33"


@register_eval_scenario
class Tau2Airline34(Tau2AirlineBaseScenario):
    name = "tau2_airline__34"
    tau2_id = "34"


@register_eval_scenario
class Tau2Airline35(Tau2AirlineBaseScenario):
    name = "tau2_airline__35"
    tau2_id = "35"


@register_eval_scenario
class Tau2Airline36(Tau2AirlineBaseScenario):
    name = "tau2_airline__36"
    tau2_id = "36"


@register_eval_scenario
class Tau2Airline37(Tau2AirlineBaseScenario):
    name = "tau2_airline__37"
    tau2_id = "37"


@register_eval_scenario
class Tau2Airline38(Tau2AirlineBaseScenario):
    name = "tau2_airline__38"
    tau2_id = "38"


@register_eval_scenario
class Tau2Airline39(Tau2AirlineBaseScenario):
    name = "tau2_airline__39"
    tau2_id = "39"


@register_eval_scenario
class Tau2Airline40(Tau2AirlineBaseScenario):
    name = "tau2_airline__40"
    tau2_id = "40"


@register_eval_scenario
class Tau2Airline41(Tau2AirlineBaseScenario):
    name = "tau2_airline__41"
    tau2_id = "41"


@register_eval_scenario
class Tau2Airline42(Tau2AirlineBaseScenario):
    name = "tau2_airline__42"
    tau2_id = "42"


@register_eval_scenario
class Tau2Airline43(Tau2AirlineBaseScenario):
    name = "tau2_airline__43"
    tau2_id = "43"


@register_eval_scenario
class Tau2Airline44(Tau2AirlineBaseScenario):
    name = "tau2_airline__44"
    tau2_id = "44"


@register_eval_scenario
class Tau2Airline45(Tau2AirlineBaseScenario):
    name = "tau2_airline__45"
    tau2_id = "45"


@register_eval_scenario
class Tau2Airline46(Tau2AirlineBaseScenario):
    name = "tau2_airline__46"
    tau2_id = "46"


@register_eval_scenario
class Tau2Airline47(Tau2AirlineBaseScenario):
    name = "tau2_airline__47"
    tau2_id = "47"


@register_eval_scenario
class Tau2Airline48(Tau2AirlineBaseScenario):
    name = "tau2_airline__48"
    tau2_id = "48"


@register_eval_scenario
class Tau2Airline49(Tau2AirlineBaseScenario):
    name = "tau2_airline__49"
    tau2_id = "49"
