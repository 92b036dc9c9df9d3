"""One Ctrl-C ends a command, whatever it does in that moment.

Python does not promise that by itself. It turns SIGINT into KeyboardInterrupt between two steps of the main thread, and
loses it in two places: in a finalizer or another callback (of the import system, of the garbage collector), from where
no exception gets out; and right before a system call, which then sleeps although the signal has come. A third place
keeps it for long: a library that waits without Python, such as a name that is being looked up.

So nothing is raised while modules load and once the command is over (`leave`). In between a thread hears of the signal
from the C handler, at once and without the main thread (`signal.set_wakeup_fd`). It knocks at the main thread until
that has ended, and ends the process itself when that takes too long. A knock is a signal that does nothing but
interrupt a system call, which Python repeats (PEP 475).

Where SIGINT is ignored (nohup, a script's background), it stays ignored."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from unbroken.cli.leave import CODE, leave

GRACE_S = 5.0
KNOCK_S = 0.05
KNOCK = signal.SIGURG  # nobody uses it, and it is ignored where it has no handler
SHOW_CURSOR = b"\x1b[?25h\n"


@contextmanager
def raised(*, surely: bool = True, grace_s: float | None = GRACE_S) -> Iterator[None]:
    """Inside, Ctrl-C is a KeyboardInterrupt (asyncio cancels its task instead), so that what is open gets closed.

    surely: see to it that it is heard, with a thread. grace_s: the process ends so many seconds after Ctrl-C at the
    latest; None leaves it the time it takes. Nothing changes where `leave_at_once` was not called before."""
    if signal.getsignal(signal.SIGINT) is not leave:
        yield
        return
    knocker = Knocker(grace_s) if surely else None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, leave)
        if knocker is not None:
            knocker.end()


class Knocker:
    """Makes the main thread hear SIGINT. Made there."""

    def __init__(self, grace_s: float | None) -> None:
        self._grace_s = grace_s
        self._main = threading.get_ident()
        self._over = threading.Event()
        self._dropped = False
        self._pipe, self._heard = os.pipe()
        os.set_blocking(self._heard, False)
        self._before = signal.set_wakeup_fd(self._heard, warn_on_full_buffer=False), sys.unraisablehook
        sys.unraisablehook = self._unraisable
        signal.signal(KNOCK, lambda *_: None)
        self._thread = threading.Thread(target=self._listen, name="interrupt", daemon=True)
        self._thread.start()

    def end(self) -> None:
        """The command has ended."""
        self._over.set()
        signal.set_wakeup_fd(self._before[0])
        sys.unraisablehook = self._before[1]
        os.close(self._heard)
        self._thread.join(1)

    def _unraisable(self, what: sys.UnraisableHookArgs) -> None:
        """Python drops an exception that nobody can catch. A KeyboardInterrupt is raised again, in a better place."""
        if issubclass(what.exc_type, KeyboardInterrupt):
            self._dropped = True
        else:
            self._before[1](what)

    def _listen(self) -> None:
        while signal.SIGINT not in (numbers := os.read(self._pipe, 64)):  # every signal writes its number
            if not numbers:
                return
        began = time.monotonic()
        while not self._over.wait(KNOCK_S):
            dropped, self._dropped = self._dropped, False
            signal.pthread_kill(self._main, signal.SIGINT if dropped else KNOCK)
            if self._grace_s is not None and time.monotonic() - began > self._grace_s:
                if sys.stderr.isatty():
                    os.write(2, SHOW_CURSOR)  # a progress bar hides it
                os._exit(CODE)
