"""The tau2_airline domain: fixtures, database, tools, gold replay, scenarios.

Importing the package loads no fixture; the first scenario that needs one does.
"""

from .actions import compare_actions
from .assertions import ADOPTED_NL_ASSERTIONS, assertions_sha256
from .comparison import DbComparison, Difference, compare_databases
from .database import ChangedRecord, OverlayDatabase, Record, SeedDatabase, apply_changes
from .errors import (
    AirlineError,
    DuplicateScenarioError,
    FixtureError,
    GoldReplayError,
    UnknownScenarioError,
    UnknownToolError,
)
from .fixtures import (
    DB_PATH,
    SEED_DB_HASH,
    Fixtures,
    FixtureSource,
    load_db_artifact,
    load_fixtures,
    load_seed,
    source_from_env,
    write_sharded,
)
from .gold_walk import gold_walk
from .hashing import plain_hash
from .scenarios import (
    GOLD_ACTION_DROPS,
    AgentResources,
    GoldAction,
    Side,
    Tau2AirlineBaseScenario,
    Tau2BaseScenario,
    UserPersona,
    UserResources,
    get_scenario,
    list_domains,
    list_scenarios,
    register_eval_scenario,
)
from .signals import Signal
from .tools import (
    TAU2_AIRLINE_ACTION_TO_TOOL_NAME,
    TAU2_AIRLINE_TOOL_NAME_TO_CLASS,
    ExitReason,
    SessionSummary,
    Tool,
    ToolOutcome,
    apply_initialization,
    call_tool,
    resolve_tools,
    session_summary,
)

__all__ = [
    "ADOPTED_NL_ASSERTIONS",
    "DB_PATH",
    "GOLD_ACTION_DROPS",
    "SEED_DB_HASH",
    "TAU2_AIRLINE_ACTION_TO_TOOL_NAME",
    "TAU2_AIRLINE_TOOL_NAME_TO_CLASS",
    "AgentResources",
    "AirlineError",
    "ChangedRecord",
    "DbComparison",
    "Difference",
    "DuplicateScenarioError",
    "ExitReason",
    "FixtureError",
    "FixtureSource",
    "Fixtures",
    "GoldAction",
    "GoldReplayError",
    "OverlayDatabase",
    "Record",
    "SeedDatabase",
    "SessionSummary",
    "Side",
    "Signal",
    "Tau2AirlineBaseScenario",
    "Tau2BaseScenario",
    "Tool",
    "ToolOutcome",
    "UnknownScenarioError",
    "UnknownToolError",
    "UserPersona",
    "UserResources",
    "apply_changes",
    "apply_initialization",
    "assertions_sha256",
    "call_tool",
    "compare_actions",
    "compare_databases",
    "get_scenario",
    "gold_walk",
    "list_domains",
    "list_scenarios",
    "load_db_artifact",
    "load_fixtures",
    "load_seed",
    "plain_hash",
    "register_eval_scenario",
    "resolve_tools",
    "session_summary",
    "source_from_env",
    "write_sharded",
]
