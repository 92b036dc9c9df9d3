"""Lists in a narrow terminal: what somebody has to copy is whole, and the rest gives way."""

from __future__ import annotations

import asyncio
import re

import pytest

from tests.cli.desk import Terminal
from tests.cli.test_terminal import in_terminal
from unbroken.cli.widths import layout


async def test_an_id_is_whole_in_any_terminal(terminal: Terminal) -> None:
    await terminal("submit", "A long story about a lighthouse and the people who live beside it", "--topic", "harbour")
    task_id = (await terminal("list")).out.split("\t")[0]
    for command, columns in (("list", 30), ("audit", 80)):
        code, written = await asyncio.to_thread(in_terminal, command, columns=columns)
        assert code == 0, written
        assert task_id in written, (columns, command, written)
    code, written = await asyncio.to_thread(in_terminal, "list", columns=80)
    assert task_id in written
    assert "A long sto" in written
    assert "pending" in written
    assert "sender" not in written.splitlines()[0], "nobody has one"
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", row)) for row in written.splitlines()) <= 80


def test_what_fits_is_not_touched() -> None:
    fit = layout({0: 29, 1: 10}, 80, gives=[1])
    assert fit.widths == {0: 29, 1: 10}
    assert not fit.left_out


@pytest.mark.parametrize("room", range(1, 120))
def test_fixed_columns_keep_their_width_and_rows_fit_where_they_can(room: int) -> None:
    natural = {0: 29, 1: 10, 2: 60, 3: 40, 4: 5}
    fit = layout(natural, room, gives=[3, 2], wraps=[4])
    assert fit.widths[0] == 29
    assert fit.widths[1] == 10
    assert fit.widths[4] == 5
    assert fit.total <= max(room, 29 + 10 + 5 + 2 * 2)
    assert list(fit.left_out) == [3, 2][: len(fit.left_out)]
    if room >= 29 + 10 + 5 + 12 + 12 + 4 * 2:
        assert not fit.left_out
        assert fit.total == min(room, 144 + 4 * 2)
