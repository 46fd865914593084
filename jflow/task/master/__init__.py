"""The master: runs the steps of clients on the tasks that take part."""

from jflow.task.master.master import Master as Master
