"""The `unbroken` command. Every command is one small function; no traceback ever reaches a person.

Exit codes: 0 ok, 1 failed, 2 wrong usage or setting, 3 paused, 4 cancelled, 130 Ctrl-C."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated, Any

import typer

from unbroken.cli import interrupt
from unbroken.tasks.errors import UnbrokenError
from unbroken.tasks.settings import BadSetting, unknown_variables

# The base of typer's own errors about usage. Typer brings its own copy of click in some versions and
# needs the package in others; either way this is where the class is found.
ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")

# Commands that run parts are started often and want to be quick: a killed worker should be missed for less than a
# second. They do without the libraries that the others need.
PARTS = {"server", "worker"}
QUICK = {"up", *PARTS}


def make_app(first: str = "") -> typer.Typer:
    """The commands; only those that run parts when `first` is one of them."""
    app = typer.Typer(
        name="unbroken",
        help="Long AI generations that survive everything between the model and the reader.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
    )

    @app.callback()
    def _(
        version: Annotated[
            bool, typer.Option("--version", help="Show the version and leave.", is_eager=True, callback=_version)
        ] = False,
    ) -> None:
        """Long AI generations that survive everything between the model and the reader."""

    from unbroken.cli import serving

    serving.register(app)
    if first not in QUICK:
        from unbroken.cli import admin, keyring, operating, submitting, tasking

        for part in (submitting, tasking, operating, keyring, admin):
            part.register(app)
    return app


def _version(asked: bool) -> None:
    if asked:
        from unbroken import __version__

        print(f"unbroken {__version__}")
        raise typer.Exit


def run(arguments: list[str] | None = None) -> int:
    """What the script does. Returns the exit code."""
    arguments = sys.argv[1:] if arguments is None else arguments
    first = arguments[0] if arguments else ""
    as_json = "--json" in arguments
    if "UNBROKEN_SUPERVISED" not in os.environ:  # said once by the supervisor, not by each of its parts
        for words in unknown_variables(os.environ):
            print(f"unbroken: {words}", file=sys.stderr)
    try:
        app = make_app(first)
        # What runs for long sees to signals itself, and takes its time to stop.
        grace_s = None if first in QUICK else interrupt.GRACE_S
        with interrupt.raised(surely=first not in PARTS, grace_s=grace_s):
            code = app(args=arguments, prog_name="unbroken", standalone_mode=False)
            sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        # The reader of our output left (`| head`): nothing more to say, and nothing to flush at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except BadSetting as error:
        return _complain(error, 2, as_json)
    except UnbrokenError as error:
        return _complain(error, 1, as_json)
    except Exception as error:
        if isinstance(error, ClickException):
            _in_our_words(error)
            if as_json:
                return _complain(str(error.message), int(error.exit_code), as_json)
            error.show()
            return int(error.exit_code)
        if os.environ.get("UNBROKEN_DEBUG"):
            raise
        return _complain(f"{type(error).__name__}: {error} (UNBROKEN_DEBUG=1 shows where)", 1, as_json)


def _in_our_words(error: Any) -> None:
    """Typer checks numbers with pydantic and passes its words on; a setting and a field are refused in ours."""
    from pydantic import BaseModel, ValidationError

    from unbroken.tasks.words import sentence

    if isinstance(error.__cause__, ValidationError):
        error.message = sentence(error.__cause__.errors(include_input=False)[0], BaseModel)


def _complain(error: UnbrokenError | str, code: int, as_json: bool) -> int:
    """The one sentence to stderr; for scripts as JSON, with what the server said beside it."""
    if as_json:
        print(json.dumps({"error": str(error), **getattr(error, "problem", {})}), file=sys.stderr)
    else:
        print(f"unbroken: {error}", file=sys.stderr)
    return code
