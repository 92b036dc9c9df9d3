"""TRAPS.md names tests; here they exist. A table that names what is not there any more promises too much."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parents[1]
_FILE = re.compile(r"\b([a-z]+/test_\w+\.py|test_\w+\.py|[a-z]+/[a-z]\w+\.py)")
_NAME = re.compile(r"\b(test_\w+)(?!\w|\.py)")


def named() -> list[tuple[int, str, str]]:
    """(line, file, test) for every test that the table names; test is '' for a file alone."""
    found = []
    for number, line in enumerate((HERE / "TRAPS.md").read_text().splitlines(), 1):
        folder = ""
        for part in re.split(r"[;|]", line):
            for piece in re.split(r"(?= and test_\w+\.py)|(?=, test_\w+\.py)", part):
                file = _FILE.search(piece)
                if file is None:
                    continue
                where = file.group(1)
                if "/" in where:
                    folder = where.partition("/")[0]
                else:
                    where = f"{folder}/{where}"
                names = [name for name in _NAME.findall(piece) if f"{name}.py" not in piece]
                found += [(number, where, name) for name in names or [""]]
    return found


def test_every_test_that_the_table_names_exists() -> None:
    wrong = []
    for line, where, name in named():
        file = HERE / where
        if not file.exists():
            wrong.append(f"line {line}: there is no {where}")
        elif name and not re.search(rf"def {name}\b" if not name.endswith("_") else rf"def {name}", file.read_text()):
            wrong.append(f"line {line}: {where} has no {name}")
    assert wrong == []


def test_the_table_is_understood() -> None:
    assert len({where for _, where, _ in named()}) > 40
    assert sum(bool(name) for _, _, name in named()) > 120
