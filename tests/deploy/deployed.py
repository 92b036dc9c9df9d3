"""compose.yaml without a container engine: every service as a process, with the command and the environment that
the file gives it, and nothing else of ours. Replaced are only ports, host names and folders.

The programs come from an environment that the Dockerfile's own lines have made (`build`)."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import httpx

from tests.deploy.compose import COMPOSE, ROOT, Service, load, services
from tests.deploy.dockerfile import stages
from tests.deploy.nginx import Nginx, free_ports
from tests.support.valkey import server_binary
from tests.support.wait import until_sync
from unbroken.cli.tether import command

PASSWORD = "a-long-random-word"


def build(folder: Path) -> Path:
    """Do what the stage `build` of the Dockerfile does, in `folder`; returns what it puts into /opt/unbroken."""
    stage, work, made = stages()["build"], folder / "build", folder / "opt"
    work.mkdir()
    env = {name: value for name, value in os.environ.items() if not name.startswith(("UV_PROJECT", "VIRTUAL_ENV"))}
    env |= stage.environment | {"UV_PROJECT_ENVIRONMENT": str(made), "UV_PYTHON": sys.executable}
    for instruction, rest in stage.steps:
        if instruction == "COPY":
            *sources, target = rest.split()
            for source in sources:
                place = work / target / (source if (ROOT / source).is_file() else "")
                if (ROOT / source).is_file():
                    shutil.copy(ROOT / source, place)
                else:
                    shutil.copytree(ROOT / source, place, ignore=shutil.ignore_patterns("__pycache__"))
        elif instruction == "RUN" and rest.startswith("uv "):
            done = subprocess.run(shlex.split(rest), cwd=work, env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, f"{rest}\n{done.stderr}"
    return made


class Running:
    """One service's process."""

    def __init__(self, name: str, argv: list[str], env: Mapping[str, str], folder: Path) -> None:
        self.name, self.log = name, folder / f"{name}.log"
        work = folder / f"{name}.cwd"
        work.mkdir(exist_ok=True)
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command(os.getpid(), argv), env=env, cwd=work, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    @property
    def alive(self) -> bool:
        """Has it not ended?"""
        return self.process.poll() is None

    def kill(self) -> None:
        """kill -9."""
        self.process.kill()
        self.process.wait()

    def stop(self, within: float) -> int:
        """SIGTERM, as a container engine sends it; the exit code. Raises TimeoutExpired when the grace is over."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(within)


class Deployed:
    """The services of compose.yaml. image: what `build` made. given: values for the file's variables. extra: more
    settings, such as a shorter lease, beside those of the file."""

    def __init__(self, image: Path, given: Mapping[str, str], extra: Mapping[str, str]) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ub-deployed-"))
        self.image = image
        self.extra = dict(extra)
        self.services = services(load(COMPOSE, given={"VALKEY_PASSWORD": PASSWORD, **given}))
        valkey, one, two = free_ports(3)
        self.ports = {"valkey": valkey, "server-1": one, "server-2": two}
        self.running: dict[str, Running] = {}
        self.nginx = Nginx([one, two])
        self.key = self.refused = ""

    @property
    def url(self) -> str:
        """Where nginx is."""
        return self.nginx.url

    def environment(self, service: Service) -> dict[str, str]:
        """What the image and the file set, for this machine."""
        stage = stages()["app"].environment
        env = stage | service.environment
        env["PATH"] = f"{self.image / 'bin'}:/usr/local/bin:/usr/bin:/bin"
        if "UNBROKEN_REDIS_URL" in env:
            assert env["UNBROKEN_REDIS_URL"].count("@valkey:6379/") == 1
            env["UNBROKEN_REDIS_URL"] = env["UNBROKEN_REDIS_URL"].replace(
                "@valkey:6379/", f"@127.0.0.1:{self.ports['valkey']}/"
            )
            env["UNBROKEN_DATA_DIR"] = str(self._folder(env["UNBROKEN_DATA_DIR"], "objects"))
        if service.name in self.ports and "UNBROKEN_PORT" in env:
            env["UNBROKEN_PORT"] = str(self.ports[service.name])
        return env | self.extra

    def _folder(self, place: str, volume: str) -> Path:
        assert place == "/data"
        folder = self.folder / volume
        folder.mkdir(exist_ok=True)
        return folder

    def argv(self, service: Service) -> list[str]:
        """Its command, with the program where it is on this machine."""
        program, *rest = service.argv
        if program == "valkey-server":
            rest += ["--port", str(self.ports["valkey"]), "--bind", "127.0.0.1"]
            return [server_binary(), *rest, "--dir", str(self._folder("/data", "valkey"))]
        return [str(self.image / "bin" / program), *rest]

    def start(self, name: str) -> Running:
        """Start a service (again). Not in a thread of its own: a process dies with the thread that started it."""
        assert name not in self.running or not self.running[name].alive
        service = self.services[name]
        self.running[name] = Running(name, self.argv(service), self.environment(service), self.folder)
        return self.running[name]

    def run_once(self, name: str, *argv: str) -> str:
        """`docker compose run --rm NAME ARGV...`; its output."""
        env = self.environment(self.services[name])
        done = subprocess.run(
            [str(self.image / "bin" / argv[0]), *argv[1:]],
            env=env,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def healthy(self, name: str) -> bool:
        """Run the service's own health check."""
        service, port = self.services[name], self.ports[name]
        kind, program, *rest = service.raw["healthcheck"]["test"]
        assert kind == "CMD"
        if program == "valkey-cli":
            program, rest = shutil.which("valkey-cli") or shutil.which("redis-cli") or "", ["-p", str(port), *rest]
            assert program, "the health check of the database needs valkey-cli or redis-cli"
        rest = [word.replace("127.0.0.1:8080", f"127.0.0.1:{port}") for word in rest]
        env = self.environment(service)
        return subprocess.run([program, *rest], env=env, capture_output=True, check=False, timeout=30).returncode == 0

    def start_healthy(self, *names: str) -> None:
        """Start services and wait as `depends_on: service_healthy` does."""
        for name in names:
            self.start(name)
        self.until_healthy(*names)

    def until_healthy(self, *names: str) -> None:
        """Wait for services that are started."""
        for name in names:
            until_sync(lambda name=name: self._healthy_or_dead(name), f"{name} to be healthy", within=60, every=0.2)  # type: ignore[misc]

    def _healthy_or_dead(self, name: str) -> bool:
        if not self.running[name].alive:
            raise RuntimeError(f"{name} ended:\n{self.running[name].log.read_text()[-3000:]}")
        return self.healthy(name)

    def up(self) -> Deployed:
        """As the head of compose.yaml says: a key first, then everything."""
        self.start_healthy("valkey")
        self.refused = self._refuses("server-1")
        self.key = self.run_once("server-1", "unbroken", "keys", "create", "alice").strip().split()[-1]
        self.start_healthy("server-1", "server-2")
        for name in ("worker-1", "worker-2"):
            self.start(name)
        self.nginx.start()
        return self

    def _refuses(self, name: str) -> str:
        """Start a service that must not start; what it says."""
        refusing = self.start(name)
        assert refusing.process.wait(60) != 0
        return refusing.log.read_text()

    @property
    def headers(self) -> dict[str, str]:
        """How a script signs in."""
        return {"Authorization": f"Bearer {self.key}"}

    def client(self) -> httpx.Client:
        """A client of nginx with the key."""
        return httpx.Client(base_url=self.url, headers=self.headers, timeout=30, trust_env=False)

    def logs(self) -> str:
        """The ends of all logs."""
        tails = [f"---- {one.name}\n{one.log.read_text(errors='replace')[-3000:]}" for one in self.running.values()]
        if self.nginx.output.exists():
            tails.append(f"---- nginx\n{self.nginx.output.read_text()[-3000:]}")
        return "\n".join(tails)

    def __enter__(self) -> Deployed:
        try:
            return self.up()
        except BaseException as error:
            self.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print(self.logs())
        for one in self.running.values():
            one.kill()
        self.nginx.__exit__(None, None, None)
        shutil.rmtree(self.folder, ignore_errors=True)
