"""Unbroken: long AI generations that survive everything between the model and the reader.

Users who write their own kind of task import what they need from here; see `unbroken.tasks.kind`.
"""

from unbroken.tasks.errors import Permanent, TaskError, Transient
from unbroken.tasks.kind import Checkpoint, Item, Kind, Progress, Rewind, Run, Text

__version__ = "0.1.0"

__all__ = [
    "Checkpoint",
    "Item",
    "Kind",
    "Permanent",
    "Progress",
    "Rewind",
    "Run",
    "TaskError",
    "Text",
    "Transient",
    "__version__",
]
