"""Unbroken: long AI generations that survive everything between the model and the reader.

Users who write their own kind of task import what they need from here; see `unbroken.tasks.kind`. It is loaded when it
is asked for: the command line comes through here, too, wants to be quick, and has not yet looked after Ctrl-C.
"""

TYPE_CHECKING = False  # what `typing` calls so, for type checkers; it takes long to load
if TYPE_CHECKING:
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

_ERRORS = {"Permanent", "TaskError", "Transient"}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    home = import_module("unbroken.tasks.errors" if name in _ERRORS else "unbroken.tasks.kind")
    return getattr(home, name)
