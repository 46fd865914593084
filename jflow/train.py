"""Clusters, servers and training under the names that TensorFlow gives them."""

from jflow.cluster import ClusterSpec as ClusterSpec
from jflow.server import Server as Server
from jflow.training import Coordinator as Coordinator
from jflow.training import LooperThread as LooperThread
from jflow.training import QueueRunner as QueueRunner
from jflow.training import add_queue_runner as add_queue_runner
from jflow.training import start_queue_runners as start_queue_runners
