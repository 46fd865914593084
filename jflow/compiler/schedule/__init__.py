"""Schedules of operation graphs on devices: strategies, a simulator and bounds."""

from jflow.compiler.schedule.graph import Dependency as Dependency
from jflow.compiler.schedule.graph import OperationGraph as OperationGraph
from jflow.compiler.schedule.graph import graph_of as graph_of
from jflow.compiler.schedule.problem import BUFFERED as BUFFERED
from jflow.compiler.schedule.problem import ONE_PORT as ONE_PORT
from jflow.compiler.schedule.problem import UNLIMITED as UNLIMITED
from jflow.compiler.schedule.problem import Constraints as Constraints
from jflow.compiler.schedule.problem import Costs as Costs
from jflow.compiler.schedule.problem import Problem as Problem
from jflow.compiler.schedule.problem import lower_bound as lower_bound
from jflow.compiler.schedule.schedule import PlaceFunction as PlaceFunction
from jflow.compiler.schedule.schedule import Schedule as Schedule
from jflow.compiler.schedule.schedule import scheduled as scheduled
from jflow.compiler.schedule.schedule import strategy as strategy
from jflow.compiler.schedule.simulate import SimulatedTransfer as SimulatedTransfer
from jflow.compiler.schedule.simulate import Timeline as Timeline
from jflow.compiler.schedule.simulate import simulate as simulate
from jflow.compiler.schedule.simulate import trace_of as trace_of
from jflow.compiler.schedule.stage_run import predicted_seconds as predicted_seconds
