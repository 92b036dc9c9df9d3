"""All settings: read once from UNBROKEN_* variables, validated, frozen, passed down.

Every limit is a named default here, with its reason beside it. Times in seconds, sizes in bytes, unless the name
says otherwise."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from unbroken.tasks.errors import UnbrokenError
from unbroken.tasks.words import closest, wrong_fields

Seconds = Annotated[float, Field(gt=0, le=366 * 86_400)]
Count = Annotated[int, Field(ge=1)]
KIB = 1024
MIB = 1024 * KIB
DAY = 86_400.0


class BadSetting(UnbrokenError):
    """A setting is wrong; the message names the variable and what it must be."""


class Settings(BaseSettings):
    """One frozen value holds everything a process may be told."""

    model_config = SettingsConfigDict(env_prefix="UNBROKEN_", frozen=True, extra="ignore")

    # where things are
    host: str = "127.0.0.1"  # nobody else, until somebody decides that
    port: Annotated[int, Field(ge=0, le=65_535)] = 8080  # 0: any free one
    redis_url: str = "redis://127.0.0.1:6379/0"  # `up` and what runs beside it prefer the data folder's own database
    data_dir: Path = Path(".unbroken")  # database, model states, objects and logs of `up`
    objects_url: str | None = None
    """Where large checkpoints and archives go: file://, s3://, gs://, az://; default: `objects` in the data folder."""

    # who may come in
    insecure: bool = False
    """Serve other addresses than loopback without keys. Said out loud or not at all."""
    force: bool = False
    """Start although Redis may evict keys."""
    secure_cookie: bool = False
    """Set when TLS ends in front of the server: the sign-in cookie then travels over TLS only."""
    trusted_proxies: str = "127.0.0.1"
    """Addresses whose X-Forwarded-* headers are believed."""

    # models
    backend: Literal["local", "openai", "scripted"] = "local"  # scripted: for tests, on servers too
    backend_url: str | None = None  # of an OpenAI-compatible server; without it, OpenAI's own
    model: str | None = None  # when a task names none: a name; for the local backend a GGUF file
    api_key: SecretStr | None = None  # for the model's server; keys of our own clients are made by `keys create`
    local_url: str = "http://127.0.0.1:8091"  # of the local model; `up` chooses a free port
    local_threads: Annotated[int, Field(ge=0, le=1_024)] = 0
    """Of the local model; 0: one for each core. They wait for each other: beside other work fewer are faster."""
    slot_dir: Path | None = None  # where the local model saves its computed states; `up`: in the data folder
    continue_by: Literal["prefill", "continue_final_message", "completion", "restart"] = "prefill"
    """How a half-written answer is continued; the README has the table."""
    connect_timeout_s: Seconds = 10  # to a model; a connection on any network takes less
    first_token_timeout_s: Seconds = 120  # long prompts are read for a while, and busy servers queue
    idle_timeout_s: Seconds = 60  # between two tokens; nothing that lives is silent for so long
    model_patience_s: Annotated[float, Field(ge=0, le=DAY)] = 60  # how long a model that is away is waited for
    model_requests_per_minute: Annotated[int, Field(ge=0)] = 0  # all workers together; 0: no limit
    model_tokens_per_minute: Annotated[int, Field(ge=0)] = 0  # estimated before each call; 0: no limit
    default_max_tokens: Count = 1_024  # where a task says nothing: a page or two, and no surprise on the bill
    batch_parallel: Annotated[int, Field(ge=1, le=256)] = 4  # model calls at once inside one batch
    item_attempts: Count = 3  # tries of one batch item in a row
    kinds: str = ""
    """Modules with users' kinds, comma separated."""

    # leases and workers
    lease_s: Annotated[float, Field(ge=0.5, le=3_600)] = 10  # how long a dead worker goes unnoticed
    concurrency: Annotated[int, Field(ge=1, le=1_000)] = 4  # tasks at once in one worker
    max_running_per_owner: Annotated[int, Field(ge=0)] = 0  # tasks at once; 0: no limit
    max_running: Annotated[int, Field(ge=0)] = 0  # of all owners together; 0: no limit
    poll_s: Seconds = 1.0  # how long a lost wake-up can cost
    drain_s: Seconds = 20  # grace for SIGTERM: checkpoint and hand over
    backoff_base_s: Seconds = 1.0  # before the first retry of a failed task, doubled each time
    backoff_cap_s: Seconds = 300  # and never longer than this

    # writing
    flush_ms: Annotated[int, Field(ge=1, le=1_000)] = 30  # tokens are grouped this long, the first goes at once
    checkpoint_tokens: Count = 64  # or the seconds below, whichever comes first
    checkpoint_s: Seconds = 2.0  # about what a reader would not mind waiting for again
    checkpoint_inline_max: Count = 256 * KIB  # larger ones go to the object store, Redis' memory is dear
    checkpoint_max: Count = 256 * MIB  # refused above: a state larger than this belongs elsewhere
    checkpoints: bool = True  # off only to measure what they cost
    head_start_s: Seconds = 600  # priority high over normal, normal over low

    # limits towards clients
    body_max: Count = 4 * MIB  # four prompts of the largest size, or a batch of long items
    submits_per_minute: Annotated[int, Field(ge=0)] = 600  # per owner; 0: no limit
    streams_per_owner: Count = 10_000  # open at once in one server process
    streams_tasks_max: Annotated[int, Field(ge=1, le=1_000)] = 100  # tasks on one /api/stream
    viewer_buffer: Count = 256 * KIB  # what one viewer that does not read may cost
    heartbeat_s: Seconds = 15  # a proxy closes what is silent for 30 to 60 s
    retry_ms: Annotated[int, Field(ge=100)] = 1_500  # SSE retry, spread by jitter

    # how long things are kept
    idempotency_s: Seconds = DAY  # an Idempotency-Key; longer than any client goes on trying
    result_s: Seconds = 7 * DAY  # text, events, items, input of a finished task
    record_s: Seconds = 30 * DAY  # its record
    dead_s: Seconds = 7 * DAY  # a failed task with all it needs to be replayed
    checkpoint_done_s: Seconds = DAY  # checkpoint of a completed task
    archive: bool = False  # write results to the object store and serve them after Redis let go of them
    audit_max: Count = 100_000  # entries; some 30 MB

    # callbacks
    webhook_secret: SecretStr | None = None  # signs callbacks; without it none are sent
    webhook_private: bool = False  # allow callbacks to private and loopback addresses

    # tests and measurements
    reap_ms: Annotated[int, Field(ge=20)] = 250  # how often lost leases are looked for
    log_level: Literal["debug", "info", "warning", "error"] = "info"  # debug may show what tasks hold

    @field_validator("backend_url", "local_url")
    @classmethod
    def _http(cls, given: str | None) -> str | None:
        if given is not None and not (urlsplit(given).scheme in ("http", "https") and _host(given)):
            raise ValueError("Must be an http:// or https:// address, such as http://127.0.0.1:11434/v1.")
        return given

    @field_validator("redis_url")
    @classmethod
    def _redis(cls, given: str) -> str:
        scheme = urlsplit(given).scheme
        if not ((scheme in ("redis", "rediss") and _host(given)) or (scheme == "unix" and urlsplit(given).path)):
            raise ValueError("Must be an address such as redis://127.0.0.1:6379/0, rediss://… or unix:///path.")
        return given

    @field_validator("objects_url")
    @classmethod
    def _objects(cls, given: str | None) -> str | None:
        if given is not None and "://" not in given:
            raise ValueError("Must be an address such as file:///path, s3://bucket/prefix, gs://… or az://….")
        return given

    @field_validator("webhook_secret")
    @classmethod
    def _secret(cls, given: SecretStr | None) -> SecretStr | None:
        # Standard Webhooks: base64 after `whsec_` or alone (24 to 64 bytes there; secrets that work already may be
        # shorter). What is wrong is found now, not at the first delivery.
        if given is not None:
            try:
                size = len(base64.b64decode(given.get_secret_value().removeprefix("whsec_"), validate=True))
            except ValueError:
                size = 0
            if size < 16:
                raise ValueError("Must be whsec_ and the base64 of 16 random bytes or more (openssl rand -base64 32).")
        return given

    @property
    def redis_shown(self) -> str:
        """Where Redis is, without the password: for logs and people."""
        cut = urlsplit(self.redis_url)
        return f"{cut.scheme}://{cut.netloc.rpartition('@')[2]}{cut.path}"

    @property
    def lease_ms(self) -> int:
        """The lease in milliseconds, as scripts want it."""
        return int(self.lease_s * 1_000)

    @property
    def objects(self) -> str:
        """URL of the object store."""
        return self.objects_url or (self.data_dir.resolve() / "objects").as_uri()


def load(**overrides: Any) -> Settings:
    """Read settings from the environment; `overrides` (from the command line) win where not None.

    Raises BadSetting with one line for each bad value; the values of secrets are not repeated."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        lines = [f"UNBROKEN_{'_'.join(at).upper()}: {says}" for at, says in wrong_fields(error, Settings)]
        raise BadSetting("\n  ".join(lines)) from None


def _host(url: str) -> str | None:
    try:
        return urlsplit(url).hostname
    except ValueError:  # a broken [address]
        return None


# Variables of ours that are no settings: for one command, for the supervisor, for scripts and tests.
OTHERS = frozenset({"WORKERS", "KEY", "URL", "DEBUG", "SUPERVISED", "SYNCED", "PUBLISH", "PUBLISH_TLS", "PICTURES"})
_FOR_TESTS = ("UNBROKEN_TEST_", "UNBROKEN_SCRIPTED_")


def unknown_variables(environ: Mapping[str, str]) -> list[str]:
    """A sentence for each UNBROKEN_* variable that means nothing: a typing error, most likely."""
    known = [*Settings.model_fields, *(name.lower() for name in OTHERS)]
    found = []
    for name in sorted(environ):
        short = name.removeprefix("UNBROKEN_").lower()
        if short == name.lower() or short in known or name.startswith(_FOR_TESTS):
            continue
        near = closest(short, known)
        meant = f"; did you mean UNBROKEN_{near.upper()}?" if near else " and does nothing."
        found.append(f"{name} is no setting{meant}")
    return found


def as_env(settings: Settings) -> dict[str, str]:
    """The settings that differ from their defaults as UNBROKEN_* variables, to hand to a child process."""
    env = {k: v for k, v in os.environ.items() if not k.startswith("UNBROKEN_")}
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        if value != field.default and value is not None:
            raw = value.get_secret_value() if isinstance(value, SecretStr) else value
            env[f"UNBROKEN_{name.upper()}"] = str(raw)
    return env
