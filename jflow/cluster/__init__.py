"""Names in a cluster: jobs, tasks, devices and addresses. Opens no connections."""

from jflow.cluster.address import join_address as join_address
from jflow.cluster.address import names_no_machine as names_no_machine
from jflow.cluster.address import numeric_host as numeric_host
from jflow.cluster.address import split_address as split_address
from jflow.cluster.certified import CLIENT_NAME as CLIENT_NAME
from jflow.cluster.certified import OF_TASKS as OF_TASKS
from jflow.cluster.certified import certified_name as certified_name
from jflow.cluster.config import TaskConfig as TaskConfig
from jflow.cluster.config import parse_cluster as parse_cluster
from jflow.cluster.config import read_tf_config as read_tf_config
from jflow.cluster.device import LOCAL_TASK as LOCAL_TASK
from jflow.cluster.device import Device as Device
from jflow.cluster.device import DeviceSpec as DeviceSpec
from jflow.cluster.device import Task as Task
from jflow.cluster.kubernetes import KubernetesClusterResolver as KubernetesClusterResolver
from jflow.cluster.open_mpi import OpenMPIClusterResolver as OpenMPIClusterResolver
from jflow.cluster.resolvers import ClusterResolver as ClusterResolver
from jflow.cluster.resolvers import SimpleClusterResolver as SimpleClusterResolver
from jflow.cluster.resolvers import TFConfigClusterResolver as TFConfigClusterResolver
from jflow.cluster.slurm import SlurmClusterResolver as SlurmClusterResolver
from jflow.cluster.spec import ClusterSpec as ClusterSpec
from jflow.cluster.target import Target as Target
from jflow.cluster.target import checked_cluster_name as checked_cluster_name
from jflow.cluster.union import UnionResolver as UnionResolver
from jflow.cluster.wiring import SAME_PROCESS as SAME_PROCESS
from jflow.cluster.wiring import Wiring as Wiring
