"""Options that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

GatewayEnv = Annotated[
    list[str] | None,
    typer.Option(
        "--gateway-env",
        metavar="NAME",
        help="A further environment variable that the gateway may see; can be repeated.",
    ),
]
OutputDir = Annotated[
    Path, typer.Option("--output-dir", help="Folder of the runs, with their store.")
]
ScorerAddress = Annotated[
    str,
    typer.Option(
        "--scorer-address",
        envvar="TAU2EVAL_SCORER_ADDRESS",
        help="A running scorer; else one is started on --output-dir.",
    ),
]
GatewayAddress = Annotated[
    str,
    typer.Option(
        "--gateway-address",
        envvar="TAU2EVAL_GATEWAY_ADDRESS",
        help="The gateway (gRPC) of running services, so that their models are checked first.",
    ),
]
Preflight = Annotated[
    bool,
    typer.Option(
        help="Ask each model for one word first. With running services it is skipped unless "
        "--gateway-address is known."
    ),
]
Json = Annotated[
    bool,
    typer.Option("--json", help="Print the result as JSON on standard output, nothing else."),
]
RunArgument = Annotated[
    str, typer.Argument(metavar="RUN", help="Id of a run, or the path of its folder.")
]
JudgeModel = Annotated[
    str | None,
    typer.Option("--judge-model", metavar="M", help="Model id of the judge."),
]
JudgeParams = Annotated[
    str | None,
    typer.Option("--judge-params", metavar="JSON", help="Added to the judge's chat body."),
]
JudgeVotes = Annotated[
    int | None,
    typer.Option(
        "--judge-votes",
        metavar="N",
        help="Independent judgements, an odd number; the majority holds.",
    ),
]
JudgeThreshold = Annotated[
    float | None,
    typer.Option(
        "--judge-threshold",
        help="Score from which the informational JUDGE_PASSED passes (1.0).",
    ),
]
JudgeTimeout = Annotated[
    float | None,
    typer.Option("--judge-timeout", help="Limit of one call of the judge in seconds (120)."),
]
JudgeMaxTokens = Annotated[
    int | None, typer.Option("--judge-max-tokens", help="Longest answer of the judge in tokens.")
]
JudgeTemperature = Annotated[
    float | None, typer.Option("--judge-temperature", help="Sampling temperature of the judge.")
]
JudgeTopP = Annotated[float | None, typer.Option("--judge-top-p", help="top_p of the judge.")]
JudgeSeed = Annotated[int | None, typer.Option("--judge-seed", help="Seed of the judge.")]
JudgeIncludeConversation = Annotated[
    bool,
    typer.Option("--judge-include-conversation", help="Show the judge the plain conversation too."),
]
JudgeCompactContext = Annotated[
    bool,
    typer.Option("--judge-compact-context", help="Shorten long tool results for the judge."),
]
JudgeAll = Annotated[
    bool,
    typer.Option(
        "--judge-all", help="Judge scenarios without assertions too, for their informational score."
    ),
]
