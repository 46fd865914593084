"""Schedules of operation graphs on devices: strategies, a simulator and bounds."""

from jflow.schedule.bounds import lower_bound as lower_bound
from jflow.schedule.graph import Dependency as Dependency
from jflow.schedule.graph import OperationGraph as OperationGraph
from jflow.schedule.graph import graph_of as graph_of
from jflow.schedule.problem import BUFFERED as BUFFERED
from jflow.schedule.problem import ONE_PORT as ONE_PORT
from jflow.schedule.problem import UNLIMITED as UNLIMITED
from jflow.schedule.problem import Constraints as Constraints
from jflow.schedule.problem import Costs as Costs
from jflow.schedule.problem import Problem as Problem
from jflow.schedule.schedule import PlaceFunction as PlaceFunction
from jflow.schedule.schedule import Schedule as Schedule
from jflow.schedule.schedule import scheduled as scheduled
from jflow.schedule.schedule import strategy as strategy
from jflow.schedule.simulate import SimulatedTransfer as SimulatedTransfer
from jflow.schedule.simulate import Timeline as Timeline
from jflow.schedule.simulate import simulate as simulate
from jflow.schedule.stages import predicted_seconds as predicted_seconds
from jflow.schedule.trace import trace_of as trace_of
