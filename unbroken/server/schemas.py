"""Shapes of what the API takes and gives, as JSON Schema: bodies from the models that validate them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic.json_schema import models_json_schema

from unbroken.server.kind_schemas import inputs
from unbroken.server.routes.dead import Replay
from unbroken.server.routes.session import SignIn
from unbroken.tasks.events import NAMES
from unbroken.tasks.inputs import Submit
from unbroken.tasks.registry import Spec
from unbroken.tasks.state import Reason, State
from unbroken.tasks.title import TITLE_MAX

Schema = dict[str, Any]

STRING: Schema = {"type": "string"}
INTEGER: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
BOOLEAN: Schema = {"type": "boolean"}
TIME: Schema = {"type": "string", "format": "date-time"}
SHARE: Schema = {"type": "number", "minimum": 0, "maximum": 1}


def maybe(schema: Schema) -> Schema:
    """Or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def ref(name: str) -> Schema:
    """A component."""
    return {"$ref": f"#/components/schemas/{name}"}


def obj(properties: dict[str, Schema], optional: tuple[str, ...] = (), **more: Any) -> Schema:
    """An object whose members are all there, but for the optional ones."""
    required = [name for name in properties if name not in optional]
    return {"type": "object", "properties": properties, "required": required, **more}


def many(schema: Schema) -> Schema:
    """A list."""
    return {"type": "array", "items": schema}


def components(kinds: Sequence[Spec]) -> dict[str, Schema]:
    """All named shapes, where these kinds are known."""
    models = [(model, "validation") for model in (Submit, Replay, SignIn)]
    _, definitions = models_json_schema(models, ref_template="#/components/schemas/{model}")  # type: ignore[arg-type]
    made: dict[str, Schema] = dict(definitions["$defs"])
    by_kind, names = inputs(kinds)
    made |= by_kind
    made["Input"] = {
        "description": "By kind; one that is no longer registered may have had any other.",
        "anyOf": [*map(ref, names.values()), {"type": "object"}],
    }
    made["Submit"]["properties"]["input"] = ref("Input")
    made["Submit"]["allOf"] = [_by_kind(kind, name) for kind, name in names.items()]
    # What the models check beside their fields, said in the schema's own words.
    made["TextInput"]["oneOf"] = [_given("prompt", "string"), _given("messages", "array")]
    made["Replay"]["oneOf"] = [_given("task_ids", "array"), _given("group", "string"), _given("all", "boolean")]
    return made | _answers() | _events()


def _by_kind(kind: str, shape: str) -> Schema:
    """The input of one kind; `text` is also what is meant when no kind is named."""
    named: Schema = {"properties": {"kind": {"const": kind}}}
    if kind != Submit.model_fields["kind"].default:
        named["required"] = ["kind"]
    return {"if": named, "then": {"properties": {"input": ref(shape)}}}


def _given(name: str, kind: str) -> Schema:
    """The field is there, and not null."""
    return {"required": [name], "properties": {name: {"type": kind}}}


def _answers() -> dict[str, Schema]:
    error = obj({"code": STRING, "message": STRING, "retryable": BOOLEAN})
    hour = obj({"successes": INTEGER, "failures": INTEGER, "failure_ratio": maybe(SHARE)})
    group = {"group": STRING, "count": INTEGER, "kind": STRING, "error": maybe(ref("TaskError"))}
    return {
        "State": {"type": "string", "enum": [state.value for state in State]},
        "TaskError": error,
        "Checkpoint": obj(
            {"event_id": STRING, "offset": INTEGER, "progress": SHARE, "size": INTEGER, "saved_at": TIME}
            | {"where": {"type": "string", "enum": ["inline", "object"]}}
        ),
        "Task": _task(),
        "TaskPage": obj({"items": many(ref("Task")), "next_cursor": maybe(STRING)}),
        "Titles": obj(
            {"titles": {"type": "object", "additionalProperties": {"type": "string", "maxLength": TITLE_MAX}}}
        ),
        "History": obj({"items": many(obj({"id": STRING, "event": ref("EventName"), "data": {"type": "object"}}))}),
        "Recovery": obj(
            {"recovery_id": STRING, "from_checkpoint": maybe(ref("Checkpoint"))}
            | {"task_id": STRING, "state": ref("State")}
        ),
        "TextResult": obj({"task_id": STRING, "text": STRING, "length": INTEGER, "sha256": STRING}),
        "BatchResult": obj({"items": many(ref("Item"))}),
        "Item": obj({"index": INTEGER, "ok": BOOLEAN, "result": {}, "error": error}, ("result", "error")),
        "DeadGroups": obj(
            {"groups": many(obj(group | {"last_failed_at": maybe(TIME), "examples": many(STRING)}))},
        ),
        "DeadGroup": obj({"group": STRING, "items": many(ref("Task"))}),
        "Replayed": obj(
            {"replayed": INTEGER, "task_ids": many(STRING)}
            | {"refused": {"type": "object", "additionalProperties": STRING}}
        ),
        "Stats": obj(
            {"queue": obj({"ready": INTEGER, "delayed": INTEGER}), "queue_depth": INTEGER, "in_flight": INTEGER}
            | {"states": {"type": "object", "additionalProperties": INTEGER}, "last_hour": hour}
            | {"oldest_pending_s": maybe(NUMBER)}
        ),
        "Session": obj({"owner": maybe(STRING), "keys_required": BOOLEAN}),
        "Alive": obj({"status": {"const": "ok"}}),
        "Description": {"type": "object", "description": "OpenAPI 3.1"},
        "Ready": obj({"status": STRING, "checks": {"type": "object", "additionalProperties": BOOLEAN}}),
        "Problem": obj(
            {"type": STRING, "title": STRING, "status": INTEGER, "detail": STRING, "state": ref("State")}
            | {"incident": STRING, "errors": many(obj({"field": STRING, "message": STRING}))},
            ("state", "incident", "errors"),
        ),
        "EventName": {"type": "string", "enum": sorted(NAMES)},
    }


def _events() -> dict[str, Schema]:
    """The data of each event of a stream, under `<Name>Event`. On `/api/stream`, `task_id` stands beside it."""
    state, error = ref("State"), ref("TaskError")
    item = obj({"index": INTEGER, "ok": BOOLEAN, "result": {}, "error": error}, ("result", "error"))
    status = {"state": state, "attempt": INTEGER, "reason": STRING, "retry_at": TIME, "at": TIME}
    done = {"state": state, "length": INTEGER, "sha256": STRING, "finished_at": TIME, "result": STRING}
    return {
        "StatusEvent": obj(status, ("reason", "retry_at")),
        "ChunkEvent": obj(
            {"offset": INTEGER, "text": STRING, "progress": SHARE},
            description="Cut the text to `offset` (code points), then append `text`.",
        ),
        "ProgressEvent": obj({"progress": SHARE, "done": INTEGER, "total": maybe(INTEGER), "unit": STRING}),
        "ItemEvent": item,
        "CheckpointEvent": obj({"offset": INTEGER, "progress": SHARE, "saved_at": TIME}),
        "DoneEvent": obj(done, description="The end: nothing follows."),
        "FailedEvent": obj({"state": state, "error": error}, description="The end: nothing follows."),
        "CancelledEvent": obj({"state": state}, description="The end: nothing follows."),
    }


def _task() -> Schema:
    counts = ("attempts", "errors", "max_attempts", "crashes", "max_crashes", "done", "length")
    times = ("retry_at", "started_at", "updated_at", "finished_at")
    properties: dict[str, Schema] = {
        "task_id": STRING,
        "kind": STRING,
        "state": ref("State"),
        "reason": maybe({"type": "string", "enum": [reason.value for reason in Reason]}),
        "sender": maybe(STRING),
        "topic": maybe(STRING),
        "priority": {"type": "string", "enum": ["high", "normal", "low"]},
        "recovery": {"type": "string", "enum": ["auto", "manual"]},
        "timeout_s": NUMBER,
        "progress": SHARE,
        "total": maybe(INTEGER),
        "unit": STRING,
        "last_event_id": STRING,
        "checkpoint": maybe(ref("Checkpoint")),
        "stale": BOOLEAN,
        "error": maybe(ref("TaskError")),
        "warning": maybe(STRING),
        "cached": BOOLEAN,
        "callback": maybe(obj({"tries": INTEGER, "said": maybe(STRING)})),
        "created_at": TIME,
        "links": {"type": "object", "additionalProperties": STRING},
    }
    properties |= dict.fromkeys(counts, INTEGER) | {name: maybe(TIME) for name in times}
    return obj(properties, description="Never holds the input's or the result's text.")
