"""From a placed graph to a picture of it, the stages in their order."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from jflow.cluster import Device
from jflow.graph import Operation
from jflow.inspect.diagram import build_diagram
from jflow.inspect.fold import folded
from jflow.inspect.svg import draw

MAX_BOXES = 40
"""As many as are still readable on one screen."""


def picture(placement: Mapping[Operation, Device], max_boxes: int = MAX_BOXES) -> str:
    """A placed graph as an SVG image, coloured by device.

    Data flows from top to bottom. Reads of a variable are part of its cylinder, so that state is
    one shape wherever it is used; values that come with each step are pills. Where there are too
    many boxes, the operations that share a name scope and a device become one.

    Args:
      placement: a device for each operation, all of one graph; the order does not matter.
      max_boxes: fold scopes, the largest first, until there are no more boxes than this. Names may
        not be enough for it; with three times as many, runs of operations fold too.

    Returns:
      An SVG document without scripts, fonts or links, the same for the same placement.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    if max_boxes < 1:
        raise ValueError(f"max_boxes must be at least 1, got {max_boxes}")
    return draw(folded(build_diagram(placement), max_boxes))


def save_picture(
    placement: Mapping[Operation, Device],
    path: str | os.PathLike[str],
    max_boxes: int = MAX_BOXES,
) -> None:
    """Writes the picture to a file, which any web browser opens; see `picture`.

    Raises:
      ValueError: if `max_boxes` is not positive.
      OSError: if the file cannot be written.
    """
    Path(path).write_text(picture(placement, max_boxes), encoding="utf-8", newline="\n")
