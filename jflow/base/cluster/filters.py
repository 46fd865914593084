"""Device filters: which devices of a cluster a session sees, and which tasks a server sees."""

from __future__ import annotations

from collections.abc import Iterable

from jflow.base.cluster.device import Device, DeviceSpec, Task
from jflow.base.cluster.spec import ClusterSpec


class DeviceFilters:
    """A filter of devices by parts of their names: what matches any part is visible.

    Args:
      filters: such as "/job:ps" or "/job:worker/task:0/device:CPU:0"; a field that one omits may
        have any value. Without filters everything is seen.

    Raises:
      TypeError: if it is a string instead of several, or a filter is not a string.
      ValueError: if a filter is not a device name.
    """

    def __init__(self, filters: Iterable[str] = ()) -> None:
        if isinstance(filters, str):
            raise TypeError(f"expected a list of device filters, such as [{filters!r}], got a str")
        self._texts = tuple(filters)
        for text in self._texts:
            if not isinstance(text, str):
                raise TypeError(f"expected a device filter such as '/job:ps', got {text!r}")
        self._specs = tuple(map(DeviceSpec.parse, self._texts))

    @property
    def texts(self) -> tuple[str, ...]:
        """The filters as they were given."""
        return self._texts

    def see_task(self, task: Task) -> bool:
        """Whether any device of a task can be visible."""
        return not self._specs or any(_fits_task(spec, task) for spec in self._specs)

    def see(self, device: Device) -> bool:
        """Whether a device is visible."""
        return not self._specs or any(
            _fits_task(spec, device.task)
            and spec.type in (None, device.type)
            and spec.index in (None, device.index)
            for spec in self._specs
        )

    def seen_by(self, own: Task, cluster: ClusterSpec) -> ClusterSpec:
        """Returns the part of a cluster that a task with these filters sees, itself included."""
        jobs: dict[str, dict[int, str]] = {}
        for task in cluster.tasks():
            if task == own or self.see_task(task):
                address = cluster.task_address(task.job, task.index)
                jobs.setdefault(task.job, {})[task.index] = address
        return ClusterSpec(jobs)

    def __repr__(self) -> str:
        return f"DeviceFilters({list(self._texts)})"


class ClusterDeviceFilters:
    """The device filters of each task of a cluster, under TensorFlow's name.

    A server with filters knows the part of the cluster that they leave, and itself; sessions on it
    see no other tasks.
    """

    def __init__(self) -> None:
        self._filters: dict[Task, DeviceFilters] = {}

    def set_device_filters(
        self, job_name: str, task_index: int, device_filters: Iterable[str]
    ) -> None:
        """Sets the filters of a task, replacing any previous ones.

        Args:
          job_name, task_index: the task.
          device_filters: what it sees beside itself, such as ["/job:ps", "/job:chief"].

        Raises:
          TypeError, ValueError: if a filter is not a device name.
        """
        self._filters[Task(job_name, task_index)] = DeviceFilters(device_filters)

    def seen_by(self, task: Task, cluster: ClusterSpec) -> ClusterSpec:
        """Returns the part of a cluster that a task sees: all of it, if it has no filters."""
        return self._filters.get(task, DeviceFilters()).seen_by(task, cluster)

    def __repr__(self) -> str:
        shown = {str(task): list(filters.texts) for task, filters in self._filters.items()}
        return f"ClusterDeviceFilters({shown})"


def _fits_task(spec: DeviceSpec, task: Task) -> bool:
    return spec.job in (None, task.job) and spec.task in (None, task.index)
