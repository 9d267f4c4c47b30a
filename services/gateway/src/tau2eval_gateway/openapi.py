"""The OpenAPI document of the HTTP API. `python -m tau2eval_gateway.openapi` writes it out.

It says what the gateway itself checks and promises; whatever else a chat body may hold is between
the caller and the provider.
"""

from __future__ import annotations

import sys
from typing import Any

import orjson

from tau2eval_gateway.requests import MAX_CONTEXT_CHARS, MAX_MODEL_CHARS

JsonObject = dict[str, Any]

_PRINTABLE = r"^[\x20-\x7e]*$"
_DECIMAL = r"^\d+\.\d+$"


def openapi_document() -> JsonObject:
    """Returns the document (OpenAPI 3.1)."""
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "tau2-eval gateway",
            "version": "1.0.0",
            "description": "OpenAI-compatible chat completions with control flows by model id.",
        },
        "servers": [{"url": "/"}],
        "security": [{"bearer": []}, {}],
        "paths": {
            "/v1/chat/completions": {"post": _chat()},
            "/v1/models": {"get": _models()},
            "/v1/health": {"get": _health()},
            "/v1/openapi.json": {"get": _document()},
        },
        "components": {
            "securitySchemes": {
                "bearer": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A key of MODEL_API_KEYS; none is asked for with "
                    "MARINA_OPEN_API=true.",
                }
            },
            "headers": _headers(),
            "schemas": _schemas(),
            "responses": {"Error": _error("The call failed.")},
        },
    }


def openapi_json() -> bytes:
    """Returns the document as JSON, as it is served and committed."""
    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE
    return orjson.dumps(openapi_document(), option=options)


def _chat() -> JsonObject:
    return {
        "operationId": "createChatCompletion",
        "summary": "Asks a model, through the control flows that its id names.",
        "parameters": [
            _parameter("x-tau2eval-run", "Run, for the ledger.", _text()),
            _parameter("x-tau2eval-scenario", "Scenario, for the ledger.", _text()),
            _parameter(
                "x-tau2eval-trial", "Trial.", {"type": "string", "pattern": r"^([0-9]{1,9})?$"}
            ),
            _parameter(
                "x-tau2eval-role",
                "Who speaks: agent, user, judge, ...",
                {"type": "string", "pattern": r"^([a-z][a-z0-9_-]{0,31})?$"},
            ),
            _parameter("x-tau2eval-arm", "Arm; derived from the model id when empty.", _text()),
            _parameter("x-marina-session", "Key of the conversation's state.", _text()),
            _parameter("traceparent", "W3C trace context.", {"type": "string"}),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": _ref("ChatRequest")}},
        },
        "responses": {
            "200": {
                "description": "A whole answer, or with `stream: true` the provider's events. A "
                "stream whose answer is not whole ends with an event that holds an error, and "
                "without [DONE].",
                "headers": {
                    name: {"$ref": f"#/components/headers/{name}"} for name in _headers()
                },
                "content": {
                    "application/json": {"schema": _ref("ChatCompletion")},
                    "text/event-stream": {},
                },
            },
            "400": _error("The request is refused, here or by the provider."),
            "401": _error("No valid key of this gateway."),
            "404": _error("No such model."),
            "408": _error("The body did not arrive in time."),
            "413": _error("The body is too large."),
            "422": _error("The provider refuses the request."),
            "429": _error("A limit of the provider or of this gateway, or its spend cap."),
            "500": _error("The gateway's configuration, or the provider."),
            "502": _error("The provider cannot be reached, refused the gateway's own key, or "
                          "gave what is no answer."),
            "503": _error("The provider is overloaded."),
            "504": _error("The provider was too slow."),
            "default": _error("Any other status is the provider's own."),
        },
    }  # fmt: skip


def _models() -> JsonObject:
    return {
        "operationId": "listModels",
        "summary": "Lists the model ids that have names.",
        "responses": {
            "200": {
                "description": "The models.",
                "headers": _id_header(),
                "content": {"application/json": {"schema": _ref("ModelList")}},
            },
            "401": _error("No valid key of this gateway."),
        },
    }


def _health() -> JsonObject:
    return {
        "operationId": "getHealth",
        "summary": "Says whether the gateway serves and its ledger writes. Needs no key.",
        "security": [],
        "responses": {
            "200": {
                "description": "The gateway serves.",
                "headers": _id_header(),
                "content": {"application/json": {"schema": _ref("Health")}},
            }
        },
    }


def _document() -> JsonObject:
    return {
        "operationId": "getOpenApi",
        "summary": "This document. Needs no key.",
        "security": [],
        "responses": {
            "200": {
                "description": "OpenAPI 3.1.",
                "headers": _id_header(),
                "content": {"application/json": {"schema": {"type": "object"}}},
            }
        },
    }


def _parameter(name: str, description: str, schema: JsonObject) -> JsonObject:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema,
    }


def _text() -> JsonObject:
    return {"type": "string", "maxLength": MAX_CONTEXT_CHARS, "pattern": _PRINTABLE}


def _headers() -> JsonObject:
    def header(description: str, required: bool = False, **schema: Any) -> JsonObject:
        return {
            "description": description,
            "required": required,
            "schema": {"type": "string", **schema},
        }

    flow = "absent without this control flow in the id"
    return {
        "x-request-id": header("Trace id of the call.", True, pattern="^[0-9a-f]{32}$"),
        "x-marina-upstream-model": header("Model id that the provider was asked for.", True),
        "x-marina-cost-usd": header(
            "Dollars of all upstream calls of this request; absent when unknown, and on streams.",
            pattern=_DECIMAL,
        ),
        "x-marina-session": header("The caller's own session, when it sent one."),
        "x-marina-verify": header(f"Verdict; {flow}."),
        "x-marina-obligations": header(f"Counters; {flow}."),
        "x-marina-obligations-cost-usd": header(f"Dollars; {flow}.", pattern=_DECIMAL),
        "x-marina-argcheck": header(f"Counters; {flow}."),
        "x-marina-argcheck-cost-usd": header(f"Dollars; {flow}.", pattern=_DECIMAL),
        "x-marina-lessons": header("Names of the lessons that rode along."),
    }


def _id_header() -> JsonObject:
    return {"x-request-id": {"$ref": "#/components/headers/x-request-id"}}


def _error(description: str) -> JsonObject:
    return {
        "description": description,
        "headers": {
            **_id_header(),
            "Retry-After": {
                "description": "As the provider sent it: seconds or an HTTP date.",
                "required": False,
                "schema": {"type": "string"},
            },
        },
        "content": {"application/json": {"schema": _ref("Error")}},
    }


def _ref(name: str) -> JsonObject:
    return {"$ref": f"#/components/schemas/{name}"}


def _schemas() -> JsonObject:
    nullable_text = {"type": ["string", "null"]}
    return {
        "ChatRequest": {
            "type": "object",
            "description": "OpenAI's chat body. Members that are not listed go to the provider "
            "as they are; so do listed ones, but for an alias in `model`.",
            "required": ["model", "messages"],
            "properties": {
                "model": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": MAX_MODEL_CHARS,
                    "pattern": r"^[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?$",
                    "description": "A model of the list, marina/verify:..., "
                    "marina/obligations:..., marina/argcheck:..., or marina:<crew>.",
                },
                "messages": {"type": "array", "minItems": 1, "items": {"type": "object"}},
                "stream": {"type": ["boolean", "null"]},
            },
            "additionalProperties": True,
        },
        "ChatCompletion": {
            "type": "object",
            "required": ["choices"],
            "properties": {
                "choices": {"type": "array", "minItems": 1},
                "usage": {"type": ["object", "null"]},
            },
            "additionalProperties": True,
        },
        "ModelList": {
            "type": "object",
            "required": ["object", "data"],
            "properties": {
                "object": {"const": "list"},
                "data": {
                    "type": "array",
                    "items": {
                        "type": "object",
                        "required": ["id", "object", "created", "owned_by"],
                        "properties": {
                            "id": {"type": "string"},
                            "object": {"const": "model"},
                            "created": {"type": "integer"},
                            "owned_by": {"type": "string"},
                        },
                    },
                },
            },
        },
        "Health": {
            "type": "object",
            "required": ["status", "ledger"],
            "properties": {
                "status": {"enum": ["ok", "degraded"]},
                "ledger": {"enum": ["ok", "failing"]},
            },
            "additionalProperties": True,
        },
        "Error": {
            "type": "object",
            "required": ["error"],
            "properties": {
                "error": {
                    "type": "object",
                    "required": ["message", "type", "code", "param"],
                    "properties": {
                        "message": {"type": "string"},
                        "type": {"type": "string"},
                        "code": {"type": "string"},
                        "param": nullable_text,
                    },
                    "additionalProperties": True,
                }
            },
            "additionalProperties": False,
        },
    }


if __name__ == "__main__":
    sys.stdout.buffer.write(openapi_json())
