"""The master: takes clients' steps and runs them on the tasks that take part."""

from jflow.master.master import Master as Master
