"""The kinds that this worker runs: built-in ones and users'."""

from __future__ import annotations

from unbroken.tasks.kind import Kind
from unbroken.tasks.registry import register, user_kinds
from unbroken.tasks.settings import Settings
from unbroken.worker.kinds.batch import Batch
from unbroken.worker.kinds.chain import Chain
from unbroken.worker.kinds.text import TextKind


def load_kinds(settings: Settings) -> dict[str, Kind]:
    """One instance of each kind by name. Raises BadKind for a module that cannot be used or a name that is taken."""
    registry = register([TextKind, Batch, Chain])
    register(user_kinds(settings), registry)
    kinds = {name: kind() for name, kind in registry.kinds.items()}
    kinds[Batch.name] = Batch(
        settings.batch_parallel, settings.item_attempts, base_s=settings.backoff_base_s, cap_s=settings.backoff_cap_s
    )
    return kinds
