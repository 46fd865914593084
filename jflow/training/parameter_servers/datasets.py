"""Datasets that a strategy distributes: each worker gets one of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NoReturn

from jflow.data import Dataset


@dataclass(frozen=True)
class InputContext:
    """What a function that makes the dataset of one worker gets.

    Attributes:
      num_input_pipelines: the number of workers.
      input_pipeline_id: the index of this worker.
      num_replicas_in_sync: how many replicas of a model one worker runs.
    """

    num_input_pipelines: int = 1
    input_pipeline_id: int = 0
    num_replicas_in_sync: int = 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Returns the part of a batch that one replica gets.

        Raises:
          ValueError: if the batch cannot be divided evenly.
        """
        size, rest = divmod(global_batch_size, self.num_replicas_in_sync)
        if rest:
            raise ValueError(
                f"a batch of {global_batch_size} cannot be divided among "
                f"{self.num_replicas_in_sync} replicas"
            )
        return size


class DistributedDataset:
    """A dataset for each worker, which `ClusterCoordinator.create_per_worker_dataset` takes.

    Args:
      dataset_fn: makes the dataset of one worker.
      contexts: its argument for each worker. A worker that joins later has that of one of them, so
        that the parts of a dataset which is divided stay as they are.

    Raises:
      TypeError: if `dataset_fn` is not callable.
    """

    def __init__(
        self, dataset_fn: Callable[[InputContext], Dataset], contexts: dict[int, InputContext]
    ) -> None:
        if not callable(dataset_fn):
            raise TypeError(f"expected a function that makes a dataset, got {dataset_fn!r:.80}")
        self._dataset_fn = dataset_fn
        self._contexts = contexts

    def for_worker(self, index: int) -> Dataset:
        """Makes the dataset of a worker, from its beginning.

        Args:
          index: the index of the worker in its job.

        Raises:
          TypeError: if the function does not return a dataset.
        """
        contexts = [*self._contexts.values()]
        dataset = self._dataset_fn(self._contexts.get(index, contexts[index % len(contexts)]))
        if not isinstance(dataset, Dataset):
            raise TypeError(
                f"expected the function {self._dataset_fn!r} to return a jflow.data.Dataset, got "
                f"{dataset!r:.80} of type {type(dataset).__name__}"
            )
        return dataset

    def __iter__(self) -> NoReturn:
        raise ValueError(
            f"{self!r} has elements on workers only; pass it to "
            "ClusterCoordinator.create_per_worker_dataset, and iterate over what that returns"
        )

    def __repr__(self) -> str:
        return f"<jflow.distribute.DistributedDataset for {len(self._contexts)} workers>"
