"""Run logs: files from which `jflow replay` computes a run again.

A log is one program's. It has the steps that the program registered, each of their runs with the
values that it was fed, and what the tasks of the cluster have noted of these (the journals of
`jflow.state.journal`).
"""

from jflow.client.run_log.reader import RunLog as RunLog
from jflow.client.run_log.reader import read_logs as read_logs
from jflow.client.run_log.writer import LogFullError as LogFullError
from jflow.client.run_log.writer import LogWriter as LogWriter
from jflow.client.run_log.writer import data_path as data_path
