"""Run a command that dies with its parent: `python -I -S tether.py PARENT_PID COMMAND [ARG...]`.

A supervisor killed with -9 cannot stop its children, so the kernel has to do it (PR_SET_PDEATHSIG). The
setting is made here, after exec and in a process of its own: a `preexec_fn` would run Python code between
fork and exec, which is not safe beside threads. The file imports nothing of the package and is run without
site-packages, so that the detour costs a few milliseconds.

The race is closed by looking at the parent afterwards: if it died before the setting was made, we leave.
Where the kernel has no such setting (macOS), the command simply runs.
"""

from __future__ import annotations

import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def tie(parent: int) -> None:
    """Ask the kernel to kill this process when the thread that started it ends; leave now if it is gone."""
    if not sys.platform.startswith("linux"):
        return
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG)")
    if os.getppid() != parent:
        os._exit(1)


def command(parent: int, argv: list[str]) -> list[str]:
    """The command line that runs `argv` tied to the process `parent`, which has to start it itself."""
    return [sys.executable, "-I", "-S", os.path.abspath(__file__), str(parent), *argv]


def main() -> None:
    """Tie this process to its parent, then become the command."""
    if len(sys.argv) < 3 or not sys.argv[1].isdigit():
        sys.exit("usage: tether.py PARENT_PID COMMAND [ARG...]")
    tie(int(sys.argv[1]))
    try:
        os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")


if __name__ == "__main__":
    main()
