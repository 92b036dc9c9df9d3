"""Redis as a cluster, as small as it gets: one node with every slot, or two masters of which one has a replica."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from tests.support.processes import free_port
from tests.support.valkey import Valkey
from tests.support.wait import until_sync
from unbroken.tasks import keys

SLOTS = 16_384


def _node() -> Valkey:
    options = {"cluster-enabled": "yes", "cluster-port": str(free_port()), "cluster-node-timeout": "2000"}
    return Valkey(aof=True, port=free_port(), options=options | {"repl-diskless-sync-delay": "0"})


def tcp(node: Valkey) -> str:
    """Its URL; redirections lead to ports, not to sockets."""
    return f"redis://127.0.0.1:{node.port}"


def ask(node: Valkey, *words: str | int) -> Any:
    """One command, to this node alone."""
    with redis.Redis(unix_socket_path=str(node.socket), decode_responses=True) as client:
        return client.execute_command(*words)


def _info(node: Valkey) -> dict[str, str]:
    return dict(ask(node, "CLUSTER INFO"))


@contextmanager
def one_node() -> Iterator[Valkey]:
    """A cluster that is one node: what a script may not do in a cluster fails here."""
    with _node() as node:
        ask(node, "CLUSTER ADDSLOTSRANGE", 0, SLOTS - 1)
        until_sync(lambda: _info(node)["cluster_state"] == "ok", "the cluster to be up")
        yield node


@dataclass
class Cluster:
    """holder: has the slot of shard 0; replica: of it; other: has nothing of ours."""

    holder: Valkey
    replica: Valkey
    other: Valkey

    def fail_over(self) -> None:
        """The replica takes over in order, and the old holder is gone."""
        ask(self.replica, "CLUSTER FAILOVER")
        until_sync(lambda: ask(self.replica, "ROLE")[0] == "master", "the replica to take over")
        self.holder.kill()


@contextmanager
def three_nodes() -> Iterator[Cluster]:
    """Two masters, and a replica of the one that has our slot."""
    with ExitStack() as stack:
        first, second, replica = (stack.enter_context(_node()) for _ in range(3))
        half = SLOTS // 2
        low = int(ask(first, "CLUSTER KEYSLOT", keys.prefix())) < half
        holder, other = (first, second) if low else (second, first)
        ask(first, "CLUSTER ADDSLOTSRANGE", 0, half - 1)
        ask(second, "CLUSTER ADDSLOTSRANGE", half, SLOTS - 1)
        for node in (second, replica):
            ask(first, "CLUSTER MEET", "127.0.0.1", node.port, node._settings["cluster-port"])
        nodes = (first, second, replica)
        until_sync(lambda: all(_info(n)["cluster_known_nodes"] == "3" for n in nodes), "all nodes to know each other")
        name = ask(holder, "CLUSTER MYID")
        ask(replica, "CLUSTER REPLICATE", name)
        until_sync(lambda: all(_info(n)["cluster_state"] == "ok" for n in nodes), "the cluster to be up")
        until_sync(lambda: ask(replica, "ROLE")[3] == "connected", "the replica to follow")
        yield Cluster(holder, replica, other)
