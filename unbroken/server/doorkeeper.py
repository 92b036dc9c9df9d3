"""Who may not come in any more does not stay inside either: streams whose key was revoked, whose session was signed
out, or that began when no key was needed, are ended. Their clients come back at once, and get the answer that everybody
gets."""

from __future__ import annotations

from collections.abc import Collection

from unbroken.server.auth import Caller, keys_needed
from unbroken.server.loops import Repeating
from unbroken.server.stream import Stream
from unbroken.tasks.access import CACHE_S


class Doorkeeper(Repeating):
    """Asks once for each key and session, however many streams are open with it."""

    name = "doorkeeper"
    every_s = CACHE_S

    async def step(self) -> bool:
        """One look at everybody inside."""
        inside = [stream for stream in self.services.hub.watchers if isinstance(stream, Stream)]
        callers = {id(stream.who): stream.who for stream in inside}  # many streams, few callers
        refused = await self._refused(callers.values()) if callers else set()
        for stream in inside:
            if refused and stream.who in refused:
                stream.end()
        return False

    async def _refused(self, callers: Collection[Caller]) -> set[Caller]:
        access = self.services.access
        gone = await access.gone(
            {who.key_id for who in callers if who.key_id}, {who.session for who in callers if who.session}
        )
        needed = any(not who.key_id for who in callers) and keys_needed(self.services.settings, await access.any_keys())
        return {who for who in callers if who.key_id in gone or who.session in gone or (needed and not who.key_id)}
