"""The OpenAPI 3.1 description of ``/tidegate/v1``, from the table of its operations."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from http import HTTPStatus
from typing import Any

from tidegate.plugin.api.changes import FILTERS, OUTCOMES
from tidegate.plugin.api.problem import CONTENT_TYPE
from tidegate.plugin.api.routes import (
    BASE,
    DOMAINS,
    MESSAGE_ID,
    NAMESPACE_DOMAIN,
    OPERATIONS,
    Operation,
    Scope,
)

VERSION = "1"
_TIME = {"type": "integer", "description": "Milliseconds since 1970."}
_DUE = _TIME | {"description": "Milliseconds since 1970; 0: released, due at once."}
_COUNT = {"type": "integer", "minimum": 0}
_TEXT = {"type": "string"}
_CURSOR = {"type": ["string", "null"], "description": "Give it as `after` to go on; null at the end."}
_NAME = {"type": "string", "minLength": 1}
_STATES = ["waiting", "handed_out", "acknowledged", "unknown"]
_ERRORS = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
_ERRORS_OF_A_BODY = (
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
)


_DOMAINS: Mapping[Scope, tuple[str | None, ...]] = {
    Scope.EVERYTHING: (None,),
    Scope.NAMESPACE: (NAMESPACE_DOMAIN,),
}


@cache
def description() -> dict[str, Any]:
    """The document. Do not change it."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        for domain in _DOMAINS.get(operation.scope, DOMAINS):
            path, names = _path(operation, domain)
            paths.setdefault(path, {})[operation.method.lower()] = _operation(operation, domain, names)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tidegate",
            "version": VERSION,
            "summary": "See and change the delayed messages that wait.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "security": [{"token": []}],
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _SCHEMAS,
            "responses": {
                "Problem": {
                    "description": "An error, of one line. A broker's web service has HTML pages of its own "
                    "for 401, 414, 431, and 400 for malformed HTTP.",
                    "content": {CONTENT_TYPE: {"schema": _ref("Problem")}},
                }
            },
        },
    }


def _path(operation: Operation, domain: str | None) -> tuple[str, list[str]]:
    """The template of a path, and the names in it."""
    names = list(DOMAINS[domain]) if domain is not None else []
    names = names[:2] if operation.scope is Scope.NAMESPACE else names
    names += ["subscription"] if operation.scope is Scope.SUBSCRIPTION else []
    segments = ([domain] if domain is not None else []) + [f"{{{one}}}" for one in names]
    names += [one[1:-1] for one in operation.path if one.startswith("{")]
    return "/".join([BASE, *segments, *operation.path]), names


def _operation(operation: Operation, domain: str | None, names: list[str]) -> dict[str, Any]:
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": MESSAGE_ID if name == "id" else _NAME}
        for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "required": False, "schema": dict(field.schema)}
        for name, field in operation.parameters.items()
    ]
    about: dict[str, Any] = {
        "operationId": "_".join(
            filter(None, (operation.name or operation.what, operation.scope.name.lower(), domain))
        ),
        "summary": operation.summary,
        "parameters": parameters,
        "responses": _responses(operation),
    }
    if operation.body is not None:
        about["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": _body(operation)}},
        }
    return about


def _responses(operation: Operation) -> dict[str, Any]:
    schema = {"type": "object"} if operation.answer == "Description" else _ref(operation.answer)
    responses: dict[str, Any] = {
        "200": {"description": "The answer.", "content": {"application/json": {"schema": schema}}}
    }
    errors = _ERRORS + (() if operation.body is None else _ERRORS_OF_A_BODY)
    for status in errors:
        responses[str(int(status))] = {"$ref": "#/components/responses/Problem"}
    responses["default"] = {"$ref": "#/components/responses/Problem"}
    return responses


def _body(operation: Operation) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: dict(field.schema) for name, field in (operation.body or {}).items()},
        "additionalProperties": False,
    }
    if operation.one_of:
        schema["oneOf"] = [{"required": [one]} for one in operation.one_of]
    if operation.changes:
        schema["oneOf"].append(
            {
                "anyOf": [{"required": [one]} for one in FILTERS],
                "not": {"anyOf": [{"required": [one]} for one in operation.one_of]},
            }
        )
        by_list = {"not": {"required": ["ids"]}}
        schema["dependentSchemas"] = dict.fromkeys(("after", *FILTERS), by_list)
        schema["not"] = {"required": list(FILTERS)}
    return schema


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Mapping[str, Any], *optional: str) -> dict[str, Any]:
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": dict(properties), "required": required}


_SCHEMAS = {
    "Changed": _object(
        {
            "schema": {"const": 1},
            "dry_run": {"type": "boolean"},
            **{
                name: {**_COUNT, "description": f"Messages that are {name.replace('_', ' ')}."}
                for name in OUTCOMES
            },
            "ids": {
                "type": "object",
                "description": "Up to 1,000 ids of each outcome but `done`.",
                "additionalProperties": {"type": "array", "items": _TEXT},
            },
            "why": {**_TEXT, "description": "Why some are undecided."},
            "stopped": {"const": True, "description": "Nothing can be decided now: go on later."},
            "next": _CURSOR,
        },
        "why",
        "stopped",
        "next",
    ),
    "Tide": _object(
        {
            "schema": {"const": 1},
            "now_ms": _TIME,
            "subscriptions": _COUNT,
            "subscriptions_away": _COUNT,
            "entries": _COUNT,
            "overdue": _COUNT,
            "buckets": {
                "type": "array",
                "items": _object({"from_ms": _TIME, "until_ms": _TIME, "entries": _COUNT}),
            },
            "later": _COUNT,
            "inexact_entries": _COUNT,
            "drain_per_second": {
                "type": ["number", "null"],
                "minimum": 0,
                "description": "Taken by consumers in their fastest minute of the last day, if any was.",
            },
        },
        "drain_per_second",
    ),
    "Status": _object(
        {
            "schema": {"const": 1},
            "daemon": {"type": "object"},
            "brokers": {"type": "array", "items": {"type": "object"}},
            "totals": {"type": "object"},
            "subscriptions": {"type": "array", "items": {"type": "object"}},
            "subscriptions_omitted": _COUNT,
        }
    ),
    "Page": _object(
        {
            "schema": {"const": 1},
            "entries": {
                "type": "array",
                "items": _object({"message_id": _TEXT, "deliver_at_ms": _DUE}),
            },
            "next": _CURSOR,
            "read": {**_COUNT, "description": "Messages that were read for `key` or `property`."},
            "read_bytes": {**_COUNT, "description": "Their bytes."},
        },
        "read",
        "read_bytes",
    ),
    "Message": _object(
        {
            "schema": {"const": 1},
            "topic": _TEXT,
            "subscription": _TEXT,
            "message_id": _TEXT,
            "state": {"enum": _STATES},
            "deliver_at_ms": _DUE,
            "moved_from_ms": _TIME,
            "key": _TEXT,
            "properties": {"type": "object", "additionalProperties": _TEXT},
            "size_bytes": {**_COUNT, "description": "As stored, with its metadata."},
        },
        *("deliver_at_ms", "moved_from_ms", "key", "properties", "size_bytes"),
    ),
    "Pace": _object(
        {
            "schema": {"const": 1},
            "done": {"type": "boolean", "description": "It is in force at all partitions."},
            "held_back": {**_COUNT, "description": "Messages that are due and may not leave yet."},
            "subscriptions": {
                "type": "array",
                "items": _object(
                    {
                        "topic": _TEXT,
                        "subscription": _TEXT,
                        "paused": {"type": "boolean"},
                        "rate": {"type": ["integer", "null"]},
                        "spread_ms": {"type": ["integer", "null"]},
                        "held_back": _COUNT,
                        "why": {**_TEXT, "description": "Why it is not in force."},
                    },
                    *("paused", "rate", "spread_ms", "held_back", "why"),
                ),
            },
        }
    ),
    "Problem": _object(
        {
            "type": _TEXT,
            "title": _TEXT,
            "status": {"type": "integer", "minimum": 400, "maximum": 599},
            "detail": {**_TEXT, "description": "One line."},
            "reason": {"const": "no-daemon", "description": "No daemon answers beside the broker."},
        },
        "reason",
    ),
}
