"""Logs of tasks that never ran, made by hypothesis, and the plain fold to compare with."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from hypothesis import strategies as st

from unbroken.server.sse import Entry
from unbroken.tasks import events

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40) | st.sampled_from(
    ["\n\n", "data: x\n\n", "id: 5\nevent: done\n", "\r", "\u2028", "\0", "🙂" * 50, "a" * 4096, "\x01" * 4096]
)


@dataclass
class Log:
    """Events as append.lua would write them."""

    entries: list[Entry] = field(default_factory=list)
    text: str = ""
    epoch: int = 1_767_225_600_000

    def add(self, name: str, data: bytes) -> None:
        """One event under the next number."""
        self.entries.append((f"{self.epoch}-{len(self.entries) + 1}", name, data))

    def chunk(self, offset: int, text: str) -> None:
        """Text at an offset; a smaller one than the length is a rewind."""
        self.text = self.text[:offset] + text
        self.add(events.CHUNK, events.chunk(offset, text, 0.25))

    def do(self, what: str, text: str, share: float) -> None:
        """One random step."""
        match what:
            case "write":
                self.chunk(len(self.text), text)
            case "rewind":
                self.chunk(int(len(self.text) * share), text)
            case "claim":
                self.epoch += 7
                self.add(events.STATUS, b'{"state":"processing","attempt":1,"at":"x"}')
            case "checkpoint":
                self.add(events.CHECKPOINT, events.encode({"offset": len(self.text), "progress": 0.5, "saved_at": "x"}))
            case "progress":
                self.add(events.PROGRESS, events.encode({"progress": share, "done": 1, "total": 2, "unit": "x"}))
            case "item":
                self.add(events.ITEM, events.encode({"index": len(self.entries), "ok": True, "result": text}))
            case "foreign":
                self.add("error", b"{}")


STEPS = st.tuples(
    st.sampled_from(["write"] * 6 + ["rewind", "claim", "checkpoint", "progress", "item", "foreign"]),
    TEXTS,
    st.floats(0, 1),
)


@st.composite
def logs(draw: st.DrawFn, size: int = 60) -> Log:
    """A log, begun as every log begins."""
    log = Log()
    log.add(events.STATUS, b'{"state":"pending","attempt":0,"at":"x"}')
    for what, text, share in draw(st.lists(STEPS, max_size=size)):
        log.do(what, text, share)
    return log


def texts_of(entries: list[Entry]) -> list[str]:
    """The text after each event."""
    text, found = "", []
    for _, name, data in entries:
        if name == events.CHUNK:
            value = json.loads(data)
            text = text[: value["offset"]] + value["text"]
        found.append(text)
    return found
