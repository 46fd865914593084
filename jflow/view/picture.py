"""Diagrams of placed graphs, and their forms: SVG, JSON, DOT and Mermaid."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from html import escape
from pathlib import Path

from jflow.base.files import replace_file
from jflow.compiler.placement import Explanation, Placement
from jflow.view.build import sketched, with_reasons
from jflow.view.contract import contracted
from jflow.view.drawing import draw
from jflow.view.fold import folded
from jflow.view.formats import dot_text, json_text, mermaid_text
from jflow.view.model import Diagram, Sketch
from jflow.view.unfold import Unfolding

Placed = Placement | Explanation
"""A device for each operation; or these with their reasons, as `Session.explain` returns them."""

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title></head>
<body><main>{picture}</main></body></html>
"""

MAX_BOXES = 40
"""As many as are still readable on one screen."""


def diagram(placement: Placed, max_boxes: int | None = None) -> Diagram:
    """Returns the boxes and arrows of a placed graph as plain data, for programs.

    There is a box for each operation, for each variable or resource with its plain reads, and for
    each fed value. Where there are too many, conversions and constants are hidden in the boxes of
    their neighbours, the slots of an optimizer in those of their variables, and the operations that
    share a name scope and a device become one box, a fold. Scopes are those of `jflow.name_scope`
    and of `jax.named_scope`, so modules of Flax and Equinox are boxes, too.

    Args:
      placement: a device for each operation, such as `Session.placement` returns. All operations
        belong to one graph; the order does not matter. Or an explanation, as `Session.explain`
        returns it: then each operation that is shown alone has its reason and alternatives, and
        the diagram the predicted time of the step and its lower bound.
      max_boxes: fold name scopes, those inside of others first, until there are at most this many
        boxes. There may be too few scopes for that; with more than three times as many boxes, runs
        of boxes fold too. None folds nothing.

    Returns:
      The diagram, equal for equal placements.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    _check(max_boxes)
    sketch, finish = _sketched(placement)
    if max_boxes is not None and len(sketch.boxes) > max_boxes:
        sketch = folded(contracted(sketch), max_boxes)
    return finish(sketch.diagram())


def _check(max_boxes: int | None) -> None:
    if max_boxes is not None and max_boxes < 1:
        raise ValueError(f"max_boxes must be at least 1, got {max_boxes}")


def _sketched(placement: Placed) -> tuple[Sketch, Callable[[Diagram], Diagram]]:
    """Returns the sketch of a placement, and what adds an explanation's reasons to diagrams."""
    if isinstance(placement, Explanation):
        return sketched(placement.placement), lambda diagram: with_reasons(diagram, placement)
    return sketched(placement), lambda diagram: diagram


def html_picture(placement: Placed, max_boxes: int = MAX_BOXES) -> str:
    """Returns a placed graph as HTML: the picture, in which a click on a fold shows its inside.

    It needs no script. The insides of very large graphs do not open all the way down.

    Args:
      placement, max_boxes: as for `diagram`.

    Returns:
      An element with a style of its own, for a page or a notebook.

    Raises:
      ValueError: if `max_boxes` is not positive.
    """
    _check(max_boxes)
    sketch, finish = _sketched(placement)
    if len(sketch.boxes) > max_boxes:
        sketch = contracted(sketch)
    return Unfolding(sketch, max_boxes, finish).html()


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
    """Writes the picture of a placed graph to a file, which any web browser opens.

    Args:
      placement, max_boxes: as for `diagram`.
      path: the file to write: a page whose folds open at a click if its name ends in ".html",
        else an SVG image.

    Raises:
      ValueError: if `max_boxes` is not positive.
      OSError: if the file cannot be written.
    """
    path = Path(path)
    if path.suffix.lower() in (".html", ".htm"):
        # No fold, if nothing is to fold.
        drawn = html_picture(placement, sys.maxsize if max_boxes is None else max_boxes)
        content = _PAGE.format(title=escape(path.stem), picture=drawn)
    else:
        content = picture(placement, max_boxes)
    replace_file(path, content, follows=True)


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
    accesses), ``fed`` (the *value* of a feed, or null), ``members`` (the *boxes* that a fold
    replaces) and ``hidden`` (the *boxes* that are part of this one where boxes fold: conversions
    and constants beside an operation, and the slots of an optimizer for a variable).

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
