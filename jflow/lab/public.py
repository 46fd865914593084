"""The public names of `jflow.lab`, at which tracebacks of exceptions end."""

from jflow.base import tracebacks as _tracebacks
from jflow.client.runtime.calibration_file import calibration_path as calibration_path
from jflow.client.runtime.calibration_file import current_calibration as current_calibration
from jflow.compiler.pipeline import StepRequest as StepRequest
from jflow.compiler.pipeline import compile_placed as compile_placed
from jflow.compiler.pipeline import region_problem as region_problem
from jflow.compiler.schedule import Schedule as Schedule
from jflow.compiler.schedule import predicted_seconds as predicted_seconds
from jflow.compiler.schedule import scheduled as scheduled
from jflow.compiler.schedule import simulate as simulate
from jflow.compiler.schedule import trace_of as trace_of
from jflow.compiler.schedule.strategies import STRATEGIES as STRATEGIES
from jflow.lab.calibration import calibration_report as calibration_report
from jflow.lab.calibration.report import check_predictions as check_predictions
from jflow.lab.exporting import to_dnn_partitioning as to_dnn_partitioning
from jflow.lab.exporting import to_dot as to_dot
from jflow.lab.families import random_problem as random_problem
from jflow.lab.importing import problem_of_json as problem_of_json
from jflow.lab.importing import read_dnn_partitioning as read_dnn_partitioning
from jflow.lab.measure import MeasuringCluster as MeasuringCluster
from jflow.lab.suite import SuiteOptions as SuiteOptions
from jflow.lab.suite import compare as compare
from jflow.lab.timed import TimedCluster as TimedCluster
from jflow.lab.timed import run_timed as run_timed
from jflow.lab.timed import timed_problem as timed_problem
from jflow.lab.workloads import WORKLOADS as WORKLOADS
from jflow.plan.trace import merged as merged

_tracebacks.end_here(globals())
