"""The gateway as a process: the core, with gRPC and HTTP around it."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence

import grpc
from aiohttp import web

from tau2eval.gateway.v1 import gateway_pb2, gateway_pb2_grpc
from tau2eval_common.errors import Unavailable
from tau2eval_gateway.composition import check_models, configured_crews, make_pipeline
from tau2eval_gateway.content_log import ContentLog
from tau2eval_gateway.core import Bounds, GatewayCore
from tau2eval_gateway.estimates import CostEstimates
from tau2eval_gateway.flows.state import StateStore
from tau2eval_gateway.flows.state_factory import StateUrlError, make_state_store
from tau2eval_gateway.grpc_api import ChatServicer, SpendServicer
from tau2eval_gateway.http_api import HttpApi, quiet_server_log
from tau2eval_gateway.keys import KeyRing
from tau2eval_gateway.ledger import Ledger
from tau2eval_gateway.lesson_book import LessonBook
from tau2eval_gateway.lesson_store import LessonStore
from tau2eval_gateway.lessons_api import LessonServicer
from tau2eval_gateway.limits import RateLimiter
from tau2eval_gateway.model_list import (
    Deployment,
    ModelListError,
    default_deployments,
    load_deployments,
)
from tau2eval_gateway.redaction import Redactor
from tau2eval_gateway.reservation import Reservations
from tau2eval_gateway.routes import Environment, Router
from tau2eval_gateway.settings import GatewaySettings, SeedSettings
from tau2eval_gateway.upstreams.direct import OpenAICompatibleUpstream
from tau2eval_gateway.upstreams.lite import LiteLLMUpstream

logger = logging.getLogger(__name__)

_EMBEDDED_DRAIN_SECONDS = 2.0
_KEEPALIVE_SECONDS = 75.0


def configured_deployments(settings: GatewaySettings) -> list[Deployment]:
    """Returns the model list of the file in the settings, or the built-in one.

    Raises:
        ModelListError: The file is wrong.
    """
    if settings.model_config_file is not None:
        return load_deployments(settings.model_config_file)
    return default_deployments(settings.scripted_address)


class GatewayService:
    """Implements `tau2eval_common.server.Service`.

    Args:
        settings: The gateway's settings.
        seed: Keys and database.
        deployments: The model list.
        environ: Where provider keys are looked up; the process's own by default.
    """

    name = "gateway"

    def __init__(
        self,
        settings: GatewaySettings,
        seed: SeedSettings,
        deployments: Sequence[Deployment],
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self._settings = settings
        self._seed = seed
        self._deployments = deployments
        self._environ = os.environ if environ is None else environ
        self._keys = KeyRing(
            seed.model_api_keys.get_secret_value(),
            seed.marina_open_api,
            RateLimiter(settings.rate_limit_per_minute),
        )
        self._ledger: Ledger | None = None
        self._reservations: Reservations | None = None
        self._core: GatewayCore | None = None
        self._lessons: LessonBook | None = None
        self._lesson_store: LessonStore | None = None
        self._store: StateStore | None = None
        self._upstreams: list[OpenAICompatibleUpstream | LiteLLMUpstream] = []
        self._runner: web.AppRunner | None = None
        self._http_address = ""

    async def start(self) -> None:
        """Opens the ledger and the HTTP port.

        Raises:
            OSError: One of them cannot be had, or the settings of control flows are wrong.
        """
        settings = self._settings
        router = Router(self._deployments)
        try:
            crews = configured_crews(settings)
            check_models(router, settings, self._seed, crews)
            self._store = make_state_store(
                settings.state_url.get_secret_value(),
                settings.state_max_conversations,
                settings.state_max_age_seconds,
            )
        except (ModelListError, StateUrlError) as error:
            raise OSError(str(error)) from None
        self._ledger = Ledger(self._seed.database_url.get_secret_value(), settings.data_dir)
        await self._ledger.start()
        self._lesson_store = LessonStore(self._ledger.engine)
        self._lessons = LessonBook(self._lesson_store, self._seed.lessons)
        await self._lessons.start()
        redactor = Redactor(self._environ, self._seed.model_api_keys.get_secret_value().split(","))
        environment = Environment(self._environ)
        direct = OpenAICompatibleUpstream(environment, redactor)
        lite = LiteLLMUpstream(environment, redactor)
        self._upstreams = [direct, lite]
        self._core = GatewayCore(
            router,
            direct,
            lite,
            self._ledger,
            redactor,
            Bounds(
                connect=settings.connect_timeout_seconds,
                first_byte=settings.first_byte_timeout_seconds,
                idle=settings.idle_timeout_seconds,
                total=settings.total_timeout_seconds,
                retries=settings.retries,
            ),
            settings.max_sessions,
            await self._start_reservations(self._ledger),
            ContentLog(redactor) if settings.log_content else None,
        )
        pipeline = make_pipeline(self._core.ask, settings, self._seed, self._store, self._lessons)
        self._core.use_flows(pipeline, crews)
        try:
            await self._start_http(self._core)
        except OSError as error:
            await self.stop()
            raise OSError(
                f"{settings.host}:{settings.http_port} cannot be listened on ({error.strerror})"
            ) from error

    def register(self, server: grpc.aio.Server) -> Sequence[str]:
        """Adds ChatService, SpendService and LessonService."""
        assert self._core is not None
        assert self._lessons is not None
        assert self._lesson_store is not None
        keys = self._keys if self._settings.grpc_require_key else None
        chat = ChatServicer(self._core, keys, self._settings.max_body_bytes)
        gateway_pb2_grpc.add_ChatServiceServicer_to_server(chat, server)
        spend = SpendServicer(self._core, keys)
        gateway_pb2_grpc.add_SpendServiceServicer_to_server(spend, server)
        lessons = LessonServicer(self._lesson_store, self._lessons, keys)
        gateway_pb2_grpc.add_LessonServiceServicer_to_server(lessons, server)
        services = gateway_pb2.DESCRIPTOR.services_by_name
        names = ("ChatService", "SpendService", "LessonService")
        return [services[name].full_name for name in names]

    def addresses(self) -> dict[str, str]:
        """Returns the HTTP address."""
        return {"http": self._http_address}

    async def stop(self) -> None:
        """Ends HTTP calls in order, closes connections and writes the ledger's last rows."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None
        for upstream in self._upstreams:
            await upstream.aclose()
        self._upstreams = []
        if self._store is not None:
            await self._store.aclose()
            self._store = None
        if self._lessons is not None:
            await self._lessons.stop()
            self._lessons = None
        if self._ledger is not None:
            await self._ledger.stop()
            self._ledger = None

    async def _start_reservations(self, ledger: Ledger) -> Reservations:
        estimates = CostEstimates(
            output_tokens=self._settings.reserve_output_tokens,
            unpriced_usd=self._settings.unpriced_call_usd,
        )
        cap_usd = self._seed.daily_spend_cap_usd
        self._reservations = Reservations(ledger, estimates, cap_usd)
        try:
            await self._reservations.start()
        except Unavailable as error:
            await self.stop()
            raise OSError(error.message) from error
        return self._reservations

    async def _start_http(self, core: GatewayCore) -> None:
        settings = self._settings
        drain = settings.http_drain_seconds
        if settings.exit_with_parent:
            drain = min(drain, _EMBEDDED_DRAIN_SECONDS)
        api = HttpApi(core, self._keys, settings.max_body_bytes)
        self._runner = web.AppRunner(
            api.application(),
            access_log=None,
            # A client that goes away ends its upstream call.
            handler_cancellation=True,
            shutdown_timeout=drain,
            # Also for connections whose request never comes, or not to the end of its head.
            keepalive_timeout=_KEEPALIVE_SECONDS,
            logger=quiet_server_log(),
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, settings.host, settings.http_port).start()
        port = self._runner.addresses[0][1]
        self._http_address = f"{settings.host}:{port}"
        logger.info("HTTP on %s", self._http_address)
        if self._keys.open:
            logger.warning("MARINA_OPEN_API is on: anybody who reaches the HTTP port may spend")
