"""`ParameterServerStrategy`: variables on parameter servers, functions on workers."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from jflow.base.cluster import ClusterSpec, Device, Task
from jflow.base.context import Stack
from jflow.base.options import ConfigProto
from jflow.client.functions import Connection
from jflow.client.ops import Variable
from jflow.client.ops.creators import Creator, variable_creator_scope, without_creators
from jflow.client.ops.variable import VariableLike, on_device_of
from jflow.client.variables.partitioners import Partitioner
from jflow.client.variables.sharded import ShardedVariable
from jflow.compiler.graph import colocate_with, device, owners
from jflow.data import Dataset
from jflow.plan.xla import internals
from jflow.state.members import MemberList
from jflow.training.parameter_servers import replicas
from jflow.training.parameter_servers.datasets import DistributedDataset, InputContext
from jflow.training.parameter_servers.device_setter import Choice, choice_of
from jflow.training.parameter_servers.per_worker import PerWorkerVariable
from jflow.training.parameter_servers.replicas import ReduceOp
from jflow.training.parameter_servers.roles import PS_JOB, WORKER_JOB, cluster_of
from jflow.training.parameter_servers.sharding import Initial, n_shards_of

_LOG = logging.getLogger(__name__)


class ParameterServerStrategy:
    """Puts variables on the parameter servers of a cluster, for functions that run on its workers.

    Variables that are made in `scope()` live on the CPUs of the tasks of the job "ps". A
    `ClusterCoordinator` schedules functions that use them on the tasks of the job "worker". The
    program that does this need not be a task of the cluster.

    The cluster is contacted when the first variable is made. A function that is called, and not
    scheduled, in `scope()` runs on the first parameter server.

    Args:
      cluster_resolver: the source of the cluster, such as `TFConfigClusterResolver()`; or a
        `ClusterSpec`, or a dict as it takes.
      variable_partitioner: a function of `shape` and `dtype` that says into how many shards each
        variable of rank 1 or more is cut: a list of one number for each dimension, all but the
        first of them 1. Variables of several shards are `ShardedVariable`. None for no shards.
      variable_placement: how variables and shards are divided among the parameter servers:
        "round_robin" in the order in which they are made; "by_size" to the one with the fewest
        bytes; or a function of a shape and a dtype that returns the index of a parameter server.
      config: options of the connections to the cluster.

    Attributes:
      cluster_spec: the cluster.
      config: a copy of those that were given.
      connection: the connection that owns the variables; it is opened on the first parameter
        server, so that variables can be read and written while workers are down.
      ps_tasks, worker_tasks: the tasks of these jobs, in order.

    Raises:
      TypeError: if the cluster or an argument is of another type.
      ValueError: if there is no parameter server or no worker, a job other than chief, worker, ps
        and evaluator, more than one chief, or an unknown variable placement.
    """

    def __init__(
        self,
        cluster_resolver: Any,
        variable_partitioner: Partitioner | None = None,
        *,
        variable_placement: str | Choice = "round_robin",
        config: ConfigProto | None = None,
    ) -> None:
        if variable_partitioner is not None and not callable(variable_partitioner):
            raise TypeError(
                f"expected a function as variable_partitioner, got {variable_partitioner!r:.80}"
            )
        self.cluster_spec: ClusterSpec = cluster_of(cluster_resolver)
        self.cluster_resolver = cluster_resolver
        self._members: MemberList | None = None
        self._successors: dict[Task, Task] = {}
        self.config = None if config is None else config.copy()
        self.ps_tasks = self._tasks_of(PS_JOB)
        self.worker_tasks = self._tasks_of(WORKER_JOB)
        self._partitioner = variable_partitioner
        self._choose = choice_of(variable_placement, len(self.ps_tasks))
        self._n_replicas: int | None = None
        self._per_worker: weakref.WeakSet[PerWorkerVariable] = weakref.WeakSet()
        self.connection = Connection(self.target_of(self.ps_tasks[0]), config)

    def __repr__(self) -> str:
        ps, workers = len(self.ps_tasks), len(self.worker_tasks)
        return f"<jflow.distribute.ParameterServerStrategy ps={ps} workers={workers}>"

    def target_of(self, task: Task) -> str:
        """Returns the target of a task, for `jflow.connect` and sessions."""
        return f"grpc://{self.cluster_spec.task_address(task.job, task.index)}?task={task}"

    def take_members(self, members: MemberList) -> None:
        """Takes the present members of the cluster, of which some may have joined or left.

        New variables are requested on the same tasks as before; a request for one that has left
        means its successor.
        """
        former, self._members = self._members, members
        self._successors = members.left
        spec = self.cluster_spec
        # Without those that have left: others may have their addresses.
        known = {
            task: spec.task_address(task.job, task.index)
            for task in spec.tasks()
            if task not in members.left
        }
        for name, address in members.addresses.items():
            task = Task.parse(name)
            # Programs may reach tasks at other addresses than these reach each other.
            if task not in known or (former is not None and former.addresses.get(name) != address):
                known[task] = address
        jobs: dict[str, dict[int, str]] = {}
        for task, address in known.items():
            jobs.setdefault(task.job, {})[task.index] = address
        self.cluster_spec = ClusterSpec(jobs)

    def successor_of(self, task: Task) -> Task:
        """Returns the task that has the variables of a parameter server."""
        return self._successors.get(task, task)

    @property
    def present_ps_tasks(self) -> tuple[Task, ...]:
        """The tasks that have the variables."""
        return tuple(dict.fromkeys(map(self.successor_of, self.ps_tasks)))

    def close(self) -> None:
        """Closes the connection that owns the variables; what the cluster has of them stays."""
        self.connection.close()

    @property
    def extended(self) -> ParameterServerStrategy:
        """The strategy itself; TensorFlow has some of its methods there."""
        return self

    # Variables --------------------------------------------------------------------------------

    @contextmanager
    def scope(self) -> Iterator[ParameterServerStrategy]:
        """A block whose variables are made on the parameter servers; yields the strategy.

        Device blocks inside it are ignored, and so are creators of variables
        (`variable_creator_scope`) that put variables elsewhere; creators around it are obeyed.
        Variables are eager: they are used as arrays, inside and outside of functions.

        Raises:
          RuntimeError: inside of the scope of another strategy.
        """
        around = _SCOPES.top
        if around is not None and around is not self:
            raise RuntimeError(
                f"the scope of {self!r} cannot be entered in that of another strategy, {around!r}"
            )
        with (
            _SCOPES.pushed(self),
            owners.owned_by(self.connection),
            variable_creator_scope(self._create),
        ):
            yield self

    @contextmanager
    def colocate_vars_with(self, colocate_with_variable: Variable) -> Iterator[None]:
        """A block whose variables are on the device of another one, without counting as a turn.

        They are never cut into shards.
        """
        with on_device_of(colocate_with_variable), without_creators():
            yield

    def variable_created_in_scope(self, v: VariableLike) -> bool:
        """Returns whether a variable was made in the scope of this strategy."""
        shards = v.variables if isinstance(v, ShardedVariable) else [v]
        return all(
            isinstance(each, Variable) and each.operations.ref.owner is self.connection
            for each in shards
        )

    def _create(self, next_creator: Creator, **arguments: Any) -> VariableLike:
        """Makes a variable; see `variable_creator_scope`."""
        if owners.current() is not self.connection:  # a block of graph code, or of a connection
            variable: VariableLike = next_creator(**arguments)
            return variable
        if arguments.pop("per_worker_variable", False):
            return self._create_per_worker(arguments)
        initial = Initial.of(arguments.get("initial_value"), arguments.get("dtype"))
        partitioner = self._partitioner if initial.shape else None
        n_shards = 1 if partitioner is None else n_shards_of(partitioner, initial)
        if n_shards == 1:
            return self._create_on_next(next_creator, arguments, initial)
        return self._create_shards(next_creator, arguments, initial, n_shards)

    def _create_shards(
        self, next_creator: Creator, arguments: dict[str, Any], initial: Initial, n_shards: int
    ) -> ShardedVariable:
        name = arguments.get("name") or self.connection.unnamed("ShardedVariable")
        shards = []
        for number, value in enumerate(initial.shards(n_shards)):
            own = arguments | {"initial_value": value, "name": f"{name}/part_{number}"}
            shards.append(self._create_on_next(next_creator, own, Initial.of(value)))
        return ShardedVariable(shards)

    def _create_on_next(
        self, next_creator: Creator, arguments: dict[str, Any], initial: Initial
    ) -> Variable:
        task = self.ps_tasks[self._choose(initial.shape, initial.dtype)]
        own = arguments | {"initial_value": initial.value}
        with colocate_with(None, ignore_existing=True), device(f"{task}/device:CPU:0"):
            variable: Variable = next_creator(**own)
        return variable

    def _create_per_worker(self, arguments: dict[str, Any]) -> PerWorkerVariable:
        with without_creators():
            variable = PerWorkerVariable(self.connection, self.worker_tasks, arguments)
        self._per_worker.add(variable)
        return variable

    def prepare_worker(self, task: Task) -> None:
        """Makes on a worker that has joined or returned the per-worker variables that it lacks."""
        for variable in list(self._per_worker):
            variable.create_on(task)

    # Functions --------------------------------------------------------------------------------

    @property
    def num_replicas_in_sync(self) -> int:
        """The number of GPUs of each worker, or 1 if they have none.

        Raises:
          ValueError: if workers have different numbers of GPUs.
          UnavailableError: if the first parameter server does not answer.
        """
        if self._n_replicas is None:
            devices = [Device.parse(info.name) for info in self.connection.list_devices()]
            self._n_replicas = replicas.n_replicas_of(devices)
        return self._n_replicas or 1

    def run(
        self, fn: Callable[..., Any], args: Any = (), kwargs: Any = None, options: Any = None
    ) -> Any:
        """Calls a function for each replica of the worker that runs it.

        It is for functions that a coordinator schedules; elsewhere it calls `fn` and logs a
        warning.

        Args:
          fn: the function.
          args, kwargs: its arguments, in which a `PerReplica` gives each replica its own value.
          options: without effect.

        Returns:
          What `fn` returns; with several replicas in the same structure, with `PerReplica` as
          leaves.
        """
        if not internals.is_tracing():
            _LOG.warning(
                "ParameterServerStrategy.run was called outside of a function that a coordinator "
                "schedules; the function is called in this program"
            )
            return fn(*args, **(kwargs or {}))
        n = self.num_replicas_in_sync
        results = []
        for number in range(n):
            own, named = replicas.component((tuple(args), kwargs or {}), number)
            with device(f"/device:GPU:{number}" if n > 1 else ""):
                results.append(fn(*own, **named))
        return replicas.joined(results)

    def reduce(self, reduce_op: ReduceOp | str, value: Any, axis: int | None = None) -> Any:
        """Returns the sum or mean over the replicas of what `run` has returned.

        Args:
          reduce_op: `ReduceOp.SUM` or `ReduceOp.MEAN`, or its name.
          value: what `run` has returned.
          axis: an axis to reduce as well, None for none.

        Raises:
          ValueError: if there is no such operation.
        """
        return replicas.reduced(reduce_op, value, axis)

    def experimental_local_results(self, value: Any) -> tuple[Any, ...]:
        """Returns the values of all replicas."""
        return replicas.values_of(value)

    # Datasets ---------------------------------------------------------------------------------

    def distribute_datasets_from_function(
        self, dataset_fn: Callable[[InputContext], Dataset], options: Any = None
    ) -> DistributedDataset:
        """Returns a dataset for each worker, for `ClusterCoordinator.create_per_worker_dataset`.

        Args:
          dataset_fn: makes the dataset of a worker; its `InputContext` says which worker it is.
          options: without effect.

        Raises:
          TypeError: if `dataset_fn` is not callable.
        """
        return DistributedDataset(dataset_fn, self._contexts())

    def experimental_distribute_dataset(
        self, dataset: Dataset, options: Any = None
    ) -> DistributedDataset:
        """Returns the same dataset for each worker, for `create_per_worker_dataset`.

        Every worker sees all elements, in the same order; `distribute_datasets_from_function` can
        give workers different ones.

        Args:
          dataset: the dataset.
          options: without effect.

        Raises:
          TypeError: if it is not a dataset.
        """
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"expected a jflow.data.Dataset, got {dataset!r:.80} of type "
                f"{type(dataset).__name__}"
            )
        return DistributedDataset(lambda _: dataset, self._contexts())

    def _contexts(self) -> dict[int, InputContext]:
        n = len(self.worker_tasks)
        return {
            task.index: InputContext(n, number, self.num_replicas_in_sync)
            for number, task in enumerate(self.worker_tasks)
        }

    def _tasks_of(self, job: str) -> tuple[Task, ...]:
        return tuple(Task(job, index) for index in self.cluster_spec.task_indices(job))


_SCOPES: Stack[ParameterServerStrategy] = Stack()
