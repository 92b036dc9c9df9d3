"""Markdown as HTML, for texts that nobody vouches for: what it may cost is bounded (G4).

It is pure Python, so a long text keeps the interpreter busy for a second or two; next to that one the server still
answers, next to eight it hardly does. One at a time, then, and each owner has one place in the queue at most."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from weakref import WeakValueDictionary

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, table

from unbroken.server.problems import Problem, retry_after

CELLS_MAX = 20_000  # of all tables in one answer: a row of two characters is filled up to the width of its table
WAITING_MAX = 20  # parts that one owner may wait for; the page asks for one at a time


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """The library's rule within CELLS_MAX. Where they are used up, what follows is plain text."""
    left: int = state.env.setdefault("cells", CELLS_MAX)
    if left <= 0 or not table(state, start, end, True):
        return False
    width = state.src.count("|", state.bMarks[start], state.eMarks[start]) + 1
    height = 1
    while start + height < end and width * height <= left and not state.isEmpty(start + height):
        height += 1
    if width * height > left:
        state.env["cells"] = 0
        return False
    if silent:
        return True
    state.env["cells"] = left - width * height
    return table(state, start, end, False)


_markdown = MarkdownIt("commonmark", {"html": False, "linkify": False}).enable("table").disable("image")
_markdown.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})


def to_html(text: str) -> str:
    """A fragment. Raw HTML in the text comes out as text, links with a script in them are not links, and images are not
    made, since fetching one would tell a stranger that somebody reads."""
    html: str = _markdown.render(text, {})
    return html


class Renderer:
    """The queue of one process."""

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._owners: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._waiting: Counter[str] = Counter()

    async def html(self, owner: str, text: Callable[[], Awaitable[str]]) -> str:
        """HTML of what `text` gives, which is asked when it is its turn. Raises Problem 429, and what `text` raises."""
        if self._waiting[owner] >= WAITING_MAX:
            raise Problem(429, "Too many parts are waiting to be rendered; ask one at a time.", headers=retry_after(1))
        mine = self._owners.get(owner) or asyncio.Lock()
        self._owners[owner] = mine
        self._waiting[owner] += 1
        try:
            async with mine, self._turn:
                return await asyncio.to_thread(to_html, await text())
        finally:
            self._waiting[owner] -= 1
            if not self._waiting[owner]:
                del self._waiting[owner]
