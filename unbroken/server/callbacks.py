"""Callbacks: a signed webhook when a task is completed or has failed, for those who asked for one.

What is due stands in Redis (`hooks`), written in the same script as the end itself, so no end is forgotten; a server
that dies over a delivery only delays it. Headers as the Standard Webhooks specification says; `webhook-id` is task and
generation, the same at every try, so a receiver can tell a repeat. Private addresses are refused twice: by name when
the task is submitted, and by the resolved address when the call is made, which is then made to exactly that address.

A receiver is a stranger: each call has one time limit for all of it, only the status of its answer is looked at, and
each delivery is a task of its own, few for one owner, so that a slow one holds up neither others nor the loop (G4)."""

from __future__ import annotations

import asyncio
import ipaddress
import json
import logging
import random
import socket
from collections import Counter
from datetime import UTC, datetime
from urllib.parse import urlsplit

import httpx
from standardwebhooks.webhooks import Webhook

from unbroken.server.context import Services
from unbroken.server.loops import Repeating
from unbroken.tasks.errors import StoreUnavailable
from unbroken.tasks.record import Task
from unbroken.tasks.settings import Settings

log = logging.getLogger("unbroken.callbacks")
TIMEOUT_S = 10.0  # for one whole call: name, connection, headers
HOLD_S = 60.0  # a taken callback comes due again after this, should its server die
AT_ONCE = 64  # deliveries of one server
AT_ONCE_OWNER = 8  # of them for one owner
TURN_S = 0.5  # how long a step waits for a place to become free
TRIES = 8
WAITS_S = (5, 30, 120, 600, 1_800, 3_600, 7_200)  # before the next try; spread by jitter

_PRIVATE = "Callbacks to private and loopback addresses are not allowed."
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_GLOBAL = ipaddress.ip_network("2000::/3")  # all that is given out; outside of it are only special and old forms
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Forbidden(ValueError):
    """The address may not be called. The message is a sentence for the owner."""


def check_url(url: str, settings: Settings) -> None:
    """What can be said about a callback's address without asking anybody. Raises Forbidden."""
    if settings.webhook_secret is None:
        raise Forbidden("Callbacks need UNBROKEN_WEBHOOK_SECRET on the server.")
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        raise Forbidden("This is not a URL.") from None
    if parts.scheme not in ("http", "https") or not host or parts.username or parts.password:
        raise Forbidden("A callback is an http or https URL without a user in it.")
    if settings.webhook_private:
        return
    if host == "localhost" or host.endswith((".localhost", ".local", ".internal")):
        raise Forbidden(_PRIVATE)
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return  # a name: looked at when it is resolved
    _public(address)


def _public(address: Address) -> None:
    if isinstance(address, ipaddress.IPv6Address):
        meant = _inside(address)
        if meant is None and address not in _GLOBAL:
            raise Forbidden(_PRIVATE)
        if meant is not None:
            address = meant
    if not address.is_global or address.is_multicast:
        raise Forbidden(_PRIVATE)


def _inside(address: ipaddress.IPv6Address) -> ipaddress.IPv4Address | None:
    """The IPv4 address that one of IPv6 leads to, through a gateway that may stand anywhere on the way."""
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF)
    return address.ipv4_mapped or address.sixtofour or (address.teredo[1] if address.teredo else None)


async def resolve(host: str, port: int, *, private: bool) -> str:
    """One address of the host. Raises Forbidden when any of its addresses may not be called, OSError."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    addresses = [str(entry[4][0]) for entry in found]
    if not private:
        for raw in addresses:
            _public(ipaddress.ip_address(raw))
    return addresses[0]


def message(task: Task) -> bytes:
    """The body: what happened and the task, without the input's or the result's text."""
    state = task.state.value
    body = {"type": f"task.{state}", "timestamp": task.view()["finished_at"], "data": task.view()}
    return json.dumps(body, separators=(",", ":")).encode()


class Callbacks(Repeating):
    """Delivers what is due."""

    name = "callbacks"
    every_s = 1.0

    def __init__(self, services: Services) -> None:
        super().__init__(services)
        self._client: httpx.AsyncClient | None = None
        self._under_way: dict[asyncio.Task[None], str] = {}
        """Deliveries, and whose they are."""
        self.sent = 0
        self.given_up = 0

    async def step(self) -> bool:
        """Take what is due and begin to deliver it."""
        settings, free = self.services.settings, AT_ONCE - len(self._under_way)
        if settings.webhook_secret is None:
            return False
        if free:
            signer = Webhook(settings.webhook_secret.get_secret_value())
            busy = Counter(self._under_way.values())
            for hook in await self.services.store.hooks(limit=free, hold_s=HOLD_S, per_owner=AT_ONCE_OWNER, busy=busy):
                delivery = asyncio.create_task(self._deliver(signer, *hook), name=f"callback {hook[0]}")
                self._under_way[delivery] = hook[3].owner
                delivery.add_done_callback(self._delivered)
        if not self._under_way:
            return False
        done, _ = await asyncio.wait(self._under_way, timeout=TURN_S, return_when=asyncio.FIRST_COMPLETED)
        return bool(done)  # a place became free: look at once who needs it

    def _delivered(self, delivery: asyncio.Task[None]) -> None:
        self._under_way.pop(delivery, None)
        if delivery.cancelled() or (error := delivery.exception()) is None:
            return
        if isinstance(error, StoreUnavailable):
            log.warning("%s: what came of it could not be stored, it is tried again", delivery.get_name())
        else:
            log.error("%s stumbled; it is tried again", delivery.get_name(), exc_info=error)

    async def _deliver(self, signer: Webhook, member: str, url: str, tries: int, task: Task) -> None:
        outcome, final = await self._try(signer, member, url, task)
        again: float | None = None
        if outcome == "delivered":
            self.sent += 1
        elif final or tries >= TRIES:
            self.given_up += 1
            log.warning("callback of %s given up after %d tries: %s", task.id, tries, outcome)
        else:
            again = WAITS_S[min(tries, len(WAITS_S)) - 1] * random.uniform(0.5, 1.0)  # noqa: S311
        await self.services.store.hook_end(member, again_s=again, outcome=outcome)

    async def _try(self, signer: Webhook, member: str, url: str, task: Task) -> tuple[str, bool]:
        """One call: (what came of it, no use to try again)."""
        try:
            body, now = message(task), datetime.now(UTC)
        except (ValueError, ArithmeticError):
            return "the task's record cannot be read", True
        headers = {
            "content-type": "application/json",
            "user-agent": "unbroken",
            "webhook-id": member,
            "webhook-timestamp": str(int(now.timestamp())),
            "webhook-signature": signer.sign(member, now, body.decode()),
        }
        try:
            async with asyncio.timeout(TIMEOUT_S):
                status = await self._call(httpx.URL(url), body, headers)
        except Forbidden as error:
            return str(error), True
        except (TimeoutError, httpx.TimeoutException):
            return f"no answer within {TIMEOUT_S:g} s", False
        except (httpx.HTTPError, httpx.InvalidURL, OSError, UnicodeError) as error:
            return type(error).__name__, False
        if 200 <= status < 300:
            return "delivered", True
        return f"status {status}", status == 410

    async def _call(self, url: httpx.URL, body: bytes, headers: dict[str, str]) -> int:
        """The status of the answer. Its body is never read: it may be slow, or without an end."""
        port = url.port or (443 if url.scheme == "https" else 80)
        address = await resolve(url.host, port, private=self.services.settings.webhook_private)
        async with self._http().stream(
            "POST",
            url.copy_with(host=address),
            content=body,
            headers={**headers, "host": url.netloc.decode("ascii")},
            extensions={"sni_hostname": url.host},
        ) as answer:
            return answer.status_code

    def _http(self) -> httpx.AsyncClient:
        if self._client is None:
            # no redirects and no proxies of the environment: the call goes to the address that was checked
            self._client = httpx.AsyncClient(timeout=TIMEOUT_S, follow_redirects=False, trust_env=False)
        return self._client

    async def close(self) -> None:
        """Give up what is under way (it comes due again), and release the connections."""
        for delivery in (under_way := list(self._under_way)):
            delivery.cancel()
        await asyncio.gather(*under_way, return_exceptions=True)
        if self._client is not None:
            await self._client.aclose()
