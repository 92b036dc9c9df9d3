"""One Ctrl-C ends a command, whatever it does in that moment: 130, and not a word."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

WITHIN_S = 60.0
ARMED = "from unbroken.cli import interrupt, leave\nleave.leave_at_once()\n"
# What the command line does around a command, and then this.
COMMAND = (
    "import sys, time\n"
    + ARMED
    + "try:\n    with interrupt.raised(grace_s={grace}):\n{text}\nexcept KeyboardInterrupt:\n    sys.exit(130)"
)


def start(*arguments: str, **more: str) -> subprocess.Popen[bytes]:
    """A Python process as a person's shell starts it. A suite that runs in the background ignores SIGINT, and so would
    its children."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        return subprocess.Popen(
            [sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | more
        )
    finally:
        signal.signal(signal.SIGINT, before)


def program(text: str, *, grace_s: float | None = None) -> subprocess.Popen[bytes]:
    """A command that does this, and says `here` when the moment has come."""
    return start("-c", COMMAND.format(grace=grace_s, text=textwrap.indent(textwrap.dedent(text).strip(), " " * 8)))


def interrupted(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """Send it one SIGINT when it has said `here`: its exit code, and what else it writes."""
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line == b"here\n", process.communicate(timeout=WITHIN_S)
    return ended(process)


def ended(process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
    """One SIGINT, now."""
    process.send_signal(signal.SIGINT)
    try:
        out, err = process.communicate(timeout=WITHIN_S)
    finally:
        process.kill()
        process.communicate()
    return process.returncode, out, err


@pytest.mark.parametrize("command", ["list", "watch s0-x", "submit Hello --watch"])
def test_a_command_that_waits_for_the_server(command: str) -> None:
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        mute.settimeout(WITHIN_S)
        process = start("-m", "unbroken", *command.split(), "--url", f"http://127.0.0.1:{mute.getsockname()[1]}")
        connection, _ = mute.accept()
        with connection:
            assert ended(process) == (130, b"", b"")


def test_a_command_at_any_moment_of_its_start() -> None:
    """While modules load, while the command line is read, when it connects, and after that."""
    text = ARMED + "print('here', flush=True)\nfrom unbroken.__main__ import main\nraise SystemExit(main())"
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"http://127.0.0.1:{mute.getsockname()[1]}"
        for moment in range(6):
            process = start("-c", text, "watch", "s0-x", "--url", url)
            assert process.stdout is not None
            assert process.stdout.readline() == b"here\n"
            time.sleep(moment * 0.08)  # any moment will do: this is about all of them
            assert ended(process) == (130, b"", b""), moment


def test_before_the_command_nothing_holds_it_back(tmp_path: Path) -> None:
    """A module that loads may catch everything."""
    (tmp_path / "stubborn.py").write_text(
        "import time\n"
        "try:\n    print('here', flush=True)\n    time.sleep(60)\n"
        "except BaseException:\n    time.sleep(60)\n"
    )
    process = start("-c", ARMED + "import stubborn", PYTHONPATH=str(tmp_path))
    assert interrupted(process) == (130, b"", b"")


def test_python_drops_it_in_a_finalizer() -> None:
    assert interrupted(
        program(
            """
            class Late:
                def __del__(self):
                    print("here", flush=True)
                    until = time.monotonic() + 60
                    while time.monotonic() < until:
                        pass

            late = Late()
            del late  # from where no exception gets out
            time.sleep(60)
            """
        )
    ) == (130, b"", b"")


def test_the_system_call_sleeps_although_it_has_come() -> None:
    """As if it came in the last moment before the call: the C handler runs in another thread, this one sleeps on."""
    assert interrupted(
        program(
            """
            import signal
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
            print("here", flush=True)
            time.sleep(60)
            """
        )
    ) == (130, b"", b"")


def test_what_never_comes_back_is_left_after_the_grace() -> None:
    """A mutex that is locked twice: no signal gets it out of there."""
    assert interrupted(
        program(
            """
            import ctypes, threading
            libc, mutex = ctypes.CDLL(None), ctypes.create_string_buffer(256)
            libc.pthread_mutex_lock(mutex)
            threading.Timer(0.2, print, ("here",), {"flush": True}).start()
            libc.pthread_mutex_lock(mutex)
            """,
            grace_s=0.2,
        )
    ) == (130, b"", b"")


def test_an_asyncio_command_tidies_up() -> None:
    code, out, err = interrupted(
        program(
            """
            import asyncio
            async def work():
                try:
                    print("here", flush=True)
                    await asyncio.sleep(60)
                finally:
                    await asyncio.sleep(0.2)
                    print("tidied")
            asyncio.run(work())
            """
        )
    )
    assert (code, out, err) == (130, b"tidied\n", b"")


def test_where_it_is_ignored_it_stays_ignored() -> None:
    """`nohup`, and what a script starts in its background."""
    text = COMMAND.format(grace=None, text="        signal.raise_signal(signal.SIGINT)\n        print('alive')")
    ignored = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    process = start("-c", ignored + text)
    assert process.communicate(timeout=WITHIN_S) == (b"alive\n", b"")
    assert process.returncode == 0


def test_what_was_there_before_is_there_after() -> None:
    """Wake-up descriptor, hook and thread are gone when the command is over; Ctrl-C then ends what is left."""
    text = """
        import signal, threading
        hook = sys.unraisablehook
        with interrupt.raised():
            assert len(threading.enumerate()) == 2
        assert threading.enumerate() == [threading.main_thread()]
        assert sys.unraisablehook is hook
        assert signal.set_wakeup_fd(-1) == -1
        try:
            print("here", flush=True)
            time.sleep(60)
        except BaseException:
            time.sleep(60)
        """
    process = start("-c", "import sys, time\n" + ARMED + textwrap.dedent(text))
    assert interrupted(process) == (130, b"", b"")
