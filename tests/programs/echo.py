"""Answers one line of input, in the way that it asks for."""

import os
import sys

from jflow.base.failpoints.points import actions


def main() -> None:
    line = sys.stdin.readline().strip()
    if line.startswith("exit"):
        sys.exit(int(line.split()[1]))
    if line == "raise":
        raise ZeroDivisionError
    if line == "failpoints":
        print(len(actions), "failpoints are on")
    else:
        print(sys.argv[1], os.environ.get("JFLOW_ECHO"), line)


if __name__ == "__main__":
    main()
