"""gRPC channels of the services."""

from __future__ import annotations

import grpc

from tau2eval_common.server import CHANNEL_OPTIONS


def open_channel(address: str) -> grpc.aio.Channel:
    """Opens a channel to a service.

    Args:
        address: A gRPC target, "127.0.0.1:3313" or "dns:///bridge:3313" for instance. Calls spread
            over all addresses of a target.
    """
    return grpc.aio.insecure_channel(
        address,
        options=[
            *CHANNEL_OPTIONS,
            ("grpc.lb_policy_name", "round_robin"),
            # Proxies of the environment are for the outside world, not for our own services.
            ("grpc.enable_http_proxy", 0),
            # A new channel must not inherit the back-off of a dead connection to the same port.
            ("grpc.use_local_subchannel_pool", 1),
        ],
    )
