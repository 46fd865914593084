"""`python -m jflow` is the command `jflow`."""

import sys

from jflow.cli.main import main

sys.exit(main())
