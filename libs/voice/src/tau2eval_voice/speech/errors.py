"""Faults of the speech back ends."""

from __future__ import annotations

from typing import ClassVar, Literal

import grpc

from tau2eval_common.errors import Tau2EvalError

SpeechErrorKind = Literal["setup", "recognition", "synthesis", "timeout", "closed"]


class SpeechError(Tau2EvalError):
    """Recognition or synthesis failed.

    Attributes:
        kind: What failed. "setup": the back end cannot be created; "recognition" and "synthesis":
            one job failed, the next may work; "timeout": a job took too long; "closed": the
            runtime is shut down.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    default_reason: ClassVar[str] = "SPEECH_ERROR"

    def __init__(self, message: str, *, kind: SpeechErrorKind, backend: str = "") -> None:
        super().__init__(message, metadata={"kind": kind, "backend": backend})
        self.kind: SpeechErrorKind = kind
        self.backend = backend


class SpeechSetupError(SpeechError):
    """A speech back end is unknown, or its package or a model file is missing or altered.

    The message names the back end, what is missing, and what to install or configure.
    """

    code = grpc.StatusCode.FAILED_PRECONDITION
    default_reason = "SPEECH_SETUP"

    def __init__(self, message: str, *, backend: str) -> None:
        super().__init__(message, kind="setup", backend=backend)
