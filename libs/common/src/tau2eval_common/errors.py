"""Domain errors and the one place where they become gRPC status codes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import grpc
from google.protobuf import any_pb2
from google.rpc import code_pb2, error_details_pb2, status_pb2
from grpc_status import rpc_status

ERROR_DOMAIN = "tau2eval"


class Tau2EvalError(Exception):
    """A fault that the caller can understand and act on.

    Attributes:
        code: The gRPC status that this kind of fault becomes.
        reason: Machine-readable reason in upper case, for google.rpc.ErrorInfo.
        metadata: Further facts for the caller; never secrets or prompt text.
        domain: Who raised it, for google.rpc.ErrorInfo.
    """

    code: ClassVar[grpc.StatusCode] = grpc.StatusCode.INTERNAL
    default_reason: ClassVar[str] = "INTERNAL"

    def __init__(
        self,
        message: str,
        *,
        reason: str | None = None,
        metadata: Mapping[str, str] | None = None,
        domain: str = ERROR_DOMAIN,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata = dict(metadata or {})
        self.domain = domain


class InvalidInput(Tau2EvalError):
    """The request is wrong; sending it again will not help."""

    code = grpc.StatusCode.INVALID_ARGUMENT
    default_reason = "INVALID_INPUT"


class NotFound(Tau2EvalError):
    """What was asked for does not exist."""

    code = grpc.StatusCode.NOT_FOUND
    default_reason = "NOT_FOUND"


class AlreadyExists(Tau2EvalError):
    """Something else exists under this identity."""

    code = grpc.StatusCode.ALREADY_EXISTS
    default_reason = "ALREADY_EXISTS"


class FailedPrecondition(Tau2EvalError):
    """The system is not in the state that the request needs."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    default_reason = "FAILED_PRECONDITION"


class Unauthenticated(Tau2EvalError):
    """No valid key came with the request."""

    code = grpc.StatusCode.UNAUTHENTICATED
    default_reason = "UNAUTHENTICATED"


class CapacityExhausted(Tau2EvalError):
    """No free session, or a cap is reached; the same request may succeed later."""

    code = grpc.StatusCode.RESOURCE_EXHAUSTED
    default_reason = "CAPACITY_EXHAUSTED"


class Unavailable(Tau2EvalError):
    """A dependency cannot be reached, or this process is draining."""

    code = grpc.StatusCode.UNAVAILABLE
    default_reason = "UNAVAILABLE"


class UpstreamFailed(Tau2EvalError):
    """A provider or another service failed."""

    code = grpc.StatusCode.UNAVAILABLE
    default_reason = "UPSTREAM_FAILED"


class DeadlineExceeded(Tau2EvalError):
    """A dependency was too slow."""

    code = grpc.StatusCode.DEADLINE_EXCEEDED
    default_reason = "DEADLINE_EXCEEDED"


_RPC_CODES = {
    grpc_code: getattr(code_pb2, grpc_code.name)
    for grpc_code in grpc.StatusCode
    if hasattr(code_pb2, grpc_code.name)
}


def to_rpc_status(error: Tau2EvalError) -> status_pb2.Status:
    """Returns the google.rpc.Status of a domain error, with an ErrorInfo detail."""
    info = error_details_pb2.ErrorInfo(
        reason=error.reason, domain=error.domain, metadata=error.metadata
    )
    detail = any_pb2.Any()
    detail.Pack(info)
    return status_pb2.Status(code=_RPC_CODES[error.code], message=error.message, details=[detail])


async def abort_with(context: grpc.aio.ServicerContext[Any, Any], error: Tau2EvalError) -> None:
    """Ends the call with the status of a domain error.

    Raises:
        grpc.aio.AbortError: Always, as `context.abort` does.
    """
    status = rpc_status.to_status(to_rpc_status(error))
    context.set_trailing_metadata(status.trailing_metadata)
    await context.abort(status.code, status.details)


def error_info(error: grpc.RpcError) -> error_details_pb2.ErrorInfo | None:
    """Returns the ErrorInfo that a failed call carries, if it carries one.

    Accepts errors of `grpc.aio` and of the synchronous API.
    """
    trailing: Any = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    for key, value in trailing or ():
        if key != "grpc-status-details-bin":
            continue
        status = status_pb2.Status()
        status.ParseFromString(value if isinstance(value, bytes) else value.encode("latin-1"))
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                return info
    return None


def describe_rpc_error(error: grpc.RpcError) -> str:
    """Returns one line about a failed call: its code and message."""
    code = error.code() if hasattr(error, "code") else None
    details = error.details() if hasattr(error, "details") else str(error)
    name = code.name if code is not None else "UNKNOWN"
    return f"{name}: {details}" if details else name
