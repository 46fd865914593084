"""What keeps state has one definition: the services of the core, for servers and local sessions."""

from __future__ import annotations

import ast
from pathlib import Path

import jflow.state.core
from jflow.net.protocol.services import MasterSession, WorkerService
from jflow.net.protocol.signatures import rpcs_of
from jflow.state.core import ClaimedRuns, ClusterState, StateMoves, StateSaves, TaskEffects

CORE = Path(jflow.state.core.__file__).parent
SERVICES = {
    "saves": StateSaves,
    "moves": StateMoves,
    "effects": TaskEffects,
    "claims": ClaimedRuns,
    "state": ClusterState,
}


def test_the_rpcs_of_state_are_methods_of_the_core() -> None:
    found: dict[str, set[str]] = {}
    for service in (WorkerService, MasterSession):
        for method, rpc in rpcs_of(service).items():
            room, _, name = rpc.name.rpartition(".")
            if room in SERVICES:
                assert vars(SERVICES[room])[name] is method
                found.setdefault(room, set()).add(name)
    marked = {
        room: {name for name, one in vars(service).items() if hasattr(one, "__remote__")}
        for room, service in SERVICES.items()
    }
    assert found == marked


def test_nothing_else_defines_them() -> None:
    """No class outside of the core has most of the methods of one of its services."""
    public = {
        service.__name__: {
            name for name, one in vars(service).items() if hasattr(one, "__remote__")
        }
        for service in SERVICES.values()
    }
    twins = []
    for path in CORE.parent.rglob("*.py"):
        if path.parent == CORE:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                names = {one.name for one in node.body if isinstance(one, ast.AsyncFunctionDef)}
                twins += [
                    f"{path.name}: {node.name} is like {service}"
                    for service, methods in public.items()
                    if len(names & methods) > len(methods) / 2
                ]
    assert not twins


def test_the_core_has_neither_threads_nor_an_event_loop() -> None:
    for path in CORE.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            for name in names:
                assert name.partition(".")[0] not in {"asyncio", "threading", "time", "random"}
