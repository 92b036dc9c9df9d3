"""Which tests go to which of several processes, and when (pytest -n 4).

What shares something that takes long to start (a site, a loaded model, a stack of processes) goes to one process, and
first; all else is given out test by test, folder by folder: what takes long before what is quick, so that the
processes end at about the same time.

pytest-xdist can group tests itself (`xdist_group`), by a change of their ids that pytest 9.2 does not see any more; it
then gives them out one by one without a word. So the groups are found here, from plain ids."""

from __future__ import annotations

import pytest
from xdist.scheduler import LoadScopeScheduling  # type: ignore[import-untyped]

ORDER = (
    *("browser", "chaos", "deploy", "worker", "journeys", "faults"),
    *("inbox", "bench", "server", "store", "cli", "core"),
)
# One Chromium and one site serve them one after the other; four of each at once only wait for a processor.
BROWSER = (
    *("1_watching", "2_healing", "3_recover", "4_safety", "5_long_text", "6_people", "7_pictures"),
    *("8_behind_nginx", "8_options", "9_honesty"),
)
# A file below tests/, or one test of it, and the name of its group.
TOGETHER = {
    **{f"browser/test_{name}.py": "browser" for name in BROWSER},
    "browser/test_2_networks.py": "networks",
    "deploy/test_as_deployed.py": "deployed",
    "journeys/test_1_reading.py": "reading",
    "journeys/test_2_workers_die.py": "workers die",
    "journeys/test_3_recover.py": "recover",
    "journeys/test_4_submitting.py": "submitting",
    "journeys/test_5_one_command.py::test_it_is_private_and_finds_its_own_way": "one command",
    "journeys/test_5_one_command.py::test_a_second_one_and_a_taken_port_are_refused": "one command",
    "journeys/test_6_local_model.py": "local model",
    "journeys/test_7_command_line.py": "command line",
    "worker/test_backend_local.py": "model",
    "worker/test_backend_openai_llama.py": "model",
}
# Files whose tests take long although they stand alone: right after the groups, lest one of them is the last to end.
LONG = {
    "core/test_stream_js.py",
    "journeys/test_5_one_command.py",
    "store/test_cache_and_callbacks.py",
    "store/test_model.py",
    "worker/test_example.py",
    "worker/test_objects.py",
}


def group(nodeid: str) -> str | None:
    """The group of a test, by its id (`tests/folder/file.py::test[parameters]`), or None."""
    place = nodeid.partition("[")[0].removeprefix("tests/")
    return TOGETHER.get(place) or TOGETHER.get(place.partition("::")[0])


def turn(nodeid: str) -> tuple[int, int]:
    """When it is given out, smaller is earlier: groups first, as each is one long piece of work, then what is long; the
    rest folder by folder, unknown ones last."""
    place = nodeid.removeprefix("tests/").partition("::")[0]
    folder = place.partition("/")[0]
    size = 0 if group(nodeid) or folder == "chaos" else 1 if place in LONG else 2
    return size, ORDER.index(folder) if folder in ORDER else len(ORDER)


class Turns(LoadScopeScheduling):  # type: ignore[misc]
    """Gives out groups at once and other tests one by one, in the order of the collection."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid) or nodeid


def several(config: pytest.Config) -> bool:
    """Do several processes share the tests? Asked in each of them."""
    return hasattr(config, "workerinput") or config.getoption("dist", "no") != "no"
