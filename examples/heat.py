"""A kind of your own whose state is not text: heat spreads over a grid until it changes no more.

Run it with `UNBROKEN_KINDS=examples.heat unbroken up` from the project's folder (or put it into a package of yours
with an entry point in the group `unbroken.kinds`), then

    unbroken submit --kind heat '{"size": 64, "steps": 2000}'

Kill the worker as often as you like: each run goes on from the last saved grid, and the numbers that it ends with are
the same to the last bit."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from unbroken.tasks.kind import Checkpoint, Kind, Progress, Run, Text, Update


class Heat(Kind):
    """One step is one sweep over the grid. A plain generator: it computes in a thread and blocks nobody."""

    name = "heat"
    unit = "steps"
    continues = "state"  # what the log says beyond the newest checkpoint is taken back and computed again

    class Input(BaseModel):
        """size: side of the grid. steps: sweeps. every: a line of text after so many."""

        model_config = ConfigDict(extra="forbid")

        size: int = Field(default=64, ge=3, le=4_096)
        steps: int = Field(default=2_000, ge=1)
        every: int = Field(default=100, ge=1)

    def total(self, data: Input) -> int:
        """Known from the start."""
        return data.steps

    def run(self, run: Run) -> Iterator[Update]:
        """Sweep on from where the newest checkpoint was."""
        size = run.input.size
        if run.state is None:
            step, grid = 0, np.zeros((size, size))
            grid[0, :] = 100.0
        else:
            step = run.state["step"]
            grid = np.frombuffer(run.state["grid"]).reshape(size, size).copy()
        while step < run.input.steps:
            grid[1:-1, 1:-1] = (grid[:-2, 1:-1] + grid[2:, 1:-1] + grid[1:-1, :-2] + grid[1:-1, 2:]) / 4
            step += 1
            yield Progress(step, run.input.steps)
            if step % run.input.every == 0 or step == run.input.steps:
                yield Text(f"step {step}: mean {float(grid.mean())!r}\n")
            # Offered after every step, saved when it is time: the bytes are made only then, or while they are few.
            yield Checkpoint({"step": step, "grid": grid.tobytes()})
