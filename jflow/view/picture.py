"""Diagrams of placed graphs, and their forms: SVG, JSON, DOT and Mermaid."""

from __future__ import annotations

import os
from pathlib import Path

from jflow.compiler.placement import Explanation, Placement
from jflow.view.build import build_diagram, with_reasons
from jflow.view.drawing import draw
from jflow.view.fold import folded
from jflow.view.formats import dot_text, json_text, mermaid_text
from jflow.view.model import Diagram

Placed = Placement | Explanation
"""A device for each operation; or these with their reasons, as `Session.explain` returns them."""

MAX_BOXES = 40
"""As many as are still readable on one screen."""


def diagram(placement: Placed, max_boxes: int | None = None) -> Diagram:
    """Returns the boxes and arrows of a placed graph as plain data, for programs.

    There is a box for each operation, for each variable or resource with its plain reads, and for
    each fed value. Where there are too many, the operations that share a name scope and a device
    become one box, a fold.

    Args:
      placement: a device for each operation, such as `Session.placement` returns. All operations
        belong to one graph; the order does not matter. Or an explanation, as `Session.explain`
        returns it: then each operation that is shown alone has its reason and alternatives, and
        the diagram the predicted time of the step and its lower bound.
      max_boxes: fold name scopes, the largest first, until there are at most this many boxes. There
        may be too few scopes for that; with more than three times as many boxes, runs of operations
        fold too. None folds nothing.

    Returns:
      The diagram, equal for equal placements.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    if max_boxes is not None and max_boxes < 1:
        raise ValueError(f"max_boxes must be at least 1, got {max_boxes}")
    explanation = placement if isinstance(placement, Explanation) else None
    whole = build_diagram(placement.placement if isinstance(placement, Explanation) else placement)
    shown = whole if max_boxes is None else folded(whole, max_boxes)
    return shown if explanation is None else with_reasons(shown, explanation)


def picture(placement: Placed, max_boxes: int | None = MAX_BOXES) -> str:
    """Returns a placed graph as an SVG image, coloured by device.

    Data flows from top to bottom, and each device has a lane. Reads of a variable are part of its
    cylinder; values that are fed with each step are pills. Of an explanation, the tooltips have the
    reasons, and the legend the predicted time of the step and its lower bound.

    Args:
      placement, max_boxes: as for `diagram`.

    Returns:
      An SVG document without scripts, fonts or links, the same for the same placement.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    return draw(diagram(placement, max_boxes))


def save_picture(
    placement: Placed, path: str | os.PathLike[str], max_boxes: int | None = MAX_BOXES
) -> None:
    """Writes the SVG image of a placed graph to a file, which any web browser opens.

    Args:
      placement, max_boxes: as for `diagram`.
      path: the file to write.

    Raises:
      ValueError: if `max_boxes` is not positive.
      OSError: if the file cannot be written.
    """
    Path(path).write_text(picture(placement, max_boxes), encoding="utf-8", newline="\n")


def to_json(placement: Placed, max_boxes: int | None = None) -> str:
    """Returns a placed graph as JSON, for other programs.

    The document is an object with these keys:

    * ``format``: ``"jflow.diagram"``.
    * ``version``: 1. It grows when a key changes its meaning or is removed; new keys can be added
      without that.
    * ``devices``: the full names of the devices in use, sorted.
    * ``boxes``: a list of *boxes*.
    * ``arrows``: a list of *arrows*.
    * ``prediction``: of an explanation, an object with ``strategy``, ``seconds`` (the predicted
      time of the step) and ``lower_bound``; null otherwise.

    A *box* has the keys ``kind`` (``"operation"``; ``"access"``, an operation on state;
    ``"state"``, a variable or resource with its plain reads; or ``"feed"``), ``name``, ``device``,
    ``made_at`` (the user's line, or null), ``operations`` (objects with ``name``, ``type``,
    ``outputs``, a list of *values*, ``uses``, the names of the variables and resources that it
    accesses, and ``reason``: of an explanation, an object with ``why``, ``seconds`` and
    ``alternatives``, the time of the step by device; null otherwise), ``state`` (an object with
    ``kind``, such as ``"variable"`` or ``"queue"``, ``name``, ``container``, ``dtype`` and
    ``shape``, the last two null for resources; null for other boxes and for state that no operation
    accesses), ``fed`` (the *value* of a feed, or null) and ``members`` (the *boxes* that a fold
    replaces).

    An *arrow* has the keys ``source`` and ``target`` (indices into ``boxes``), ``flow``
    (``"data"``, ``"control"`` or ``"state"``), ``crosses`` (whether it connects different devices),
    ``values`` (the *values* on it, none unless data flows) and ``sent`` (the names of those whose
    transfer to the target's device no earlier arrow has).

    A *value* has the keys ``name``, ``dtype`` and ``shape``: a list of sizes, null for each that is
    unknown, or null if the rank is unknown.

    Args:
      placement, max_boxes: as for `diagram`.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    return json_text(diagram(placement, max_boxes))


def to_dot(placement: Placed, max_boxes: int | None = MAX_BOXES) -> str:
    """Returns a placed graph in the DOT language of Graphviz, with a cluster for each device.

    Args:
      placement, max_boxes: as for `diagram`.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    return dot_text(diagram(placement, max_boxes))


def to_mermaid(placement: Placed, max_boxes: int | None = MAX_BOXES) -> str:
    """Returns a placed graph as a Mermaid flowchart, with a subgraph for each device.

    Args:
      placement, max_boxes: as for `diagram`.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    return mermaid_text(diagram(placement, max_boxes))
