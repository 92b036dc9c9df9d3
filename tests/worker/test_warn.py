"""A worker's warning is a fenced write as every other (G6), and never brings a deleted task back (G17)."""

from __future__ import annotations

import pytest

from tests.support.desk import OWNER
from tests.worker.crew import Crew
from unbroken.tasks import keys
from unbroken.tasks.connection import Calls
from unbroken.tasks.errors import LeaseLost
from unbroken.tasks.holder import Holder
from unbroken.tasks.lease import Claimed


async def test_a_warning_is_shown_taken_away_and_refused_once_the_lease_is_lost(crew: Crew) -> None:
    task_id = await crew.text(10)
    holder = Holder(Calls(crew.redis), crew.settings, "w")
    claimed = await holder.claim(holder.new_token())
    assert isinstance(claimed, Claimed)
    await holder.warn(claimed.lease, "look \ud800 here" + "!" * 5_000)
    shown = (await crew.look(task_id)).text("warning")
    assert shown.startswith("look ? here!")
    assert len(shown) == 1_000
    await holder.warn(claimed.lease, "")
    assert (await crew.look(task_id)).view()["warning"] is None
    await crew.store.cancel(task_id, OWNER, actor="me")
    with pytest.raises(LeaseLost, match="cancelled"):
        await holder.warn(claimed.lease, "late")
    await crew.store.purge(task_id, OWNER, actor="me")
    with pytest.raises(LeaseLost, match="gone"):
        await holder.warn(claimed.lease, "later still")
    assert not await crew.redis.exists(keys.key("task", task_id))
