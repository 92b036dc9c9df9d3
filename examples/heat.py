"""A kind of your own whose state is not text: heat spreads over a grid until it changes no more.

Run it with `UNBROKEN_KINDS=examples.heat unbroken up` from the project's folder (or put it into a package of yours
with an entry point in the group `unbroken.kinds`), then

    unbroken submit --kind heat '{"size": 64, "steps": 2000}'

Kill the worker as often as you like: each run goes on from the last saved grid, and the numbers that it ends with are
the same to the last bit. Plain Python, so that it runs wherever `up` does; with numpy it would be quicker."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import chain

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

        size: int = Field(default=64, ge=3, le=1_000)
        steps: int = Field(default=2_000, ge=1)
        every: int = Field(default=100, ge=1)

    def total(self, data: Input) -> int:
        """Known from the start."""
        return data.steps

    def run(self, run: Run) -> Iterator[Update]:
        """Sweep on from where the newest checkpoint was."""
        size = run.input.size
        if run.state is None:
            step, grid = 0, [[100.0] * size, *([0.0] * size for _ in range(size - 1))]
        else:
            step, grid = run.state["step"], unpacked(run.state["grid"], size)
        while step < run.input.steps:
            grid = swept(grid)
            step += 1
            yield Progress(step, run.input.steps)
            if step % run.input.every == 0 or step == run.input.steps:
                yield Text(f"step {step}: mean {sum(map(sum, grid)) / size**2!r}\n")
            # Offered after every step, saved when it is time. The state is plain data: numbers, text, bytes.
            yield Checkpoint({"step": step, "grid": array("d", chain.from_iterable(grid)).tobytes()})


Grid = list[list[float]]


def swept(grid: Grid) -> Grid:
    """Each inner cell becomes the mean of its four neighbours; the rim stays."""
    inner = [
        [
            row[0],
            *((a + b + c + d) / 4 for a, b, c, d in zip(up[1:-1], down[1:-1], row, row[2:], strict=False)),
            row[-1],
        ]
        for up, row, down in zip(grid, grid[1:], grid[2:], strict=False)
    ]
    return [grid[0], *inner, grid[-1]]


def unpacked(raw: bytes, size: int) -> Grid:
    """The grid that was saved as bytes."""
    cells = array("d", raw)
    return [cells[at : at + size].tolist() for at in range(0, size * size, size)]
