"""What tests run against; `jflow.testing` has it for users' projects too."""

from jflow.testing import BACKENDS as BACKENDS
from jflow.testing import in_process as in_process
from jflow.testing import local as local
from jflow.testing import processes as processes
from jflow.testing import start_servers as start_servers
