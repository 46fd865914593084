"""Two hosts at 40 ms, with and without loss: arrays and small steps, beside a plain socket."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

from jflow.base.cluster import ClusterSpec
from jflow.net.wire.authority import write_certificates
from jflow.testing import ProgramProcess
from tests.network_hosts import NetworkHosts
from tests.programs.packet_link import Conditions

NEAR, FAR = range(2)
DELAY_S, LOSS = 0.02, 0.01
"""One way, so a round trip takes 40 ms; the loss is that of each direction."""
WITH_TLS = " with TLS"
TRANSPORTS = ("tcp", f"tcp{WITH_TLS}", "grpc")


def measure(transport: str, conditions: Conditions, words: list[str]) -> None:
    """Prints the figures of a client on the near host.

    Args:
      transport: what messages go over.
      conditions: of the link.
      words: what `bench.wan_client` measures.
    """
    with ExitStack() as stack:
        hosts = stack.enter_context(NetworkHosts(2))
        hosts.link(NEAR, FAR, conditions)
        jobs = {"worker": NEAR, "ps": FAR}
        cluster = {job: [f"{hosts.address(host)}:2222"] for job, host in jobs.items()}
        shared = {
            "JFLOW_TOKEN": "of these two hosts, and long enough",
            "JFLOW_TRANSPORT": transport.removesuffix(WITH_TLS),
            "BENCH_NAME": transport,
        }
        if transport.endswith(WITH_TLS):
            made = stack.enter_context(TemporaryDirectory())
            Path(made).chmod(0o700)
            write_certificates(Path(made), ClusterSpec(cluster), days=1)
            shared["JFLOW_TLS_DIR"] = made
        else:
            shared |= {"JFLOW_INSECURE": "1", "JFLOW_LOG": "error"}
        for job, host in jobs.items():
            told = {"cluster": cluster, "task": {"type": job, "index": 0}}
            command = hosts.command(host, [sys.executable, "-m", "jflow", "server"])
            environment = {**shared, "TF_CONFIG": json.dumps(told)}
            server = stack.enter_context(ProgramProcess(command, environment))
            assert "is ready" in server.read_line()
        command = [sys.executable, "-m", "bench.plain_socket", hosts.address(FAR)]
        plain = stack.enter_context(ProgramProcess(hosts.command(FAR, command)))
        client = [sys.executable, "-m", "bench.wan_client", *words, plain.read_line()]
        subprocess.run(
            hosts.command(NEAR, client),
            env={**os.environ, **shared, "TF_CONFIG": json.dumps({"cluster": cluster})},
            check=True,
        )


if __name__ == "__main__":
    for transport in TRANSPORTS:
        measure(transport, Conditions(DELAY_S), ["bulk", "100", ""])
        measure(transport, Conditions(DELAY_S, LOSS), ["bulk", "10", " at 1 % loss"])
        measure(transport, Conditions(DELAY_S), ["steps"])
