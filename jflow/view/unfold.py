"""Pictures whose folds open at a click: HTML without scripts.

Each fold has a checkbox in its box. While it is checked, a style sheet shows what is inside below
the picture. The numbers of boxes name the checkboxes, and selectors begin at the picture around
them, so any number of pictures fits into one page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape

from jflow.view.captions import box_label
from jflow.view.drawing import draw
from jflow.view.fold import folded
from jflow.view.model import Box, BoxFlow, Diagram, Sketch

MAX_INSIDE = 200
"""How many boxes all pictures of insides may have together; what is deeper does not open."""

_MAX_NEIGHBOURS = 16

_STYLE = """<style>
.jflow-unfold > .jflow-inside { display: none; margin: 8px 0 0 12px; }
.jflow-unfold svg { max-width: 100%; height: auto; }
.jflow-inside > b { font: 600 13px system-ui, sans-serif; }
.jflow-unfold label { display: block; width: 100%; height: 100%; cursor: pointer; }
.jflow-unfold input { position: absolute; top: 2px; right: 2px; width: 12px; height: 12px;
  margin: 0; cursor: pointer; }
</style>"""


class Unfolding:
    """Draws a sketch with folds, and what is inside of them.

    Args:
      sketch: what to draw.
      max_boxes: fold each picture until it has about this many boxes.
      finish: adds what the pictures show beyond the sketch to each diagram.
    """

    def __init__(
        self, sketch: Sketch, max_boxes: int, finish: Callable[[Diagram], Diagram]
    ) -> None:
        self._sketch = sketch
        # With fewer, the inside of a fold could be one fold again.
        self._max_boxes = max(2, max_boxes)
        self._finish = finish
        self._devices = sorted({box.device for box in sketch.boxes})
        self._room = MAX_INSIDE

    def html(self) -> str:
        """Returns an element with a style of its own."""
        return _STYLE + self._picture(self._sketch, 0)

    def _picture(self, sketch: Sketch, n_around: int) -> str:
        """Returns a picture and those of its folds.

        Args:
          sketch: what it shows.
          n_around: the number of boxes at the beginning that are around it, and do not open.
        """
        shown = sketch
        if len(sketch.boxes) - n_around > self._max_boxes:
            shown = folded(sketch, self._max_boxes, n_around)
        opens = [n for n, box in enumerate(shown.boxes) if n >= n_around and self._has_room(box)]
        rules = "".join(
            f".jflow-unfold:has(> svg .jflow-fold-{number}:checked) > .jflow-inside-{number}"
            "{display:block}"
            for number in opens
        )
        panels = "".join(
            f'<div class="jflow-inside jflow-inside-{number}"><b>'
            f"{escape(box_label(shown.boxes[number]))}</b>{self._picture(*inside)}</div>"
            for number, inside in _insides(sketch, shown, opens)
        )
        style = f"<style>{rules}</style>" if rules else ""
        svg = draw(self._finish(shown.diagram()), opens, self._devices)
        return f'{style}<div class="jflow-unfold">{svg}{panels}</div>'

    def _has_room(self, box: Box) -> bool:
        """Whether a box opens; reserves the room for what is inside."""
        size = min(len(box.members), self._max_boxes)
        if not size or size > self._room:
            return False
        self._room -= size
        return True


def _insides(
    sketch: Sketch, shown: Sketch, numbers: Sequence[int]
) -> Iterator[tuple[int, tuple[Sketch, int]]]:
    """Yields for some folds the boxes around it and what is inside, and how many are around."""
    fold_of = {id(each): n for n, box in enumerate(shown.boxes) for each in (box, *box.members)}
    place = [fold_of[id(box)] for box in sketch.boxes]
    members: dict[int, list[int]] = {number: [] for number in numbers}
    links: dict[int, list[BoxFlow]] = {number: [] for number in numbers}
    for i, number in enumerate(place):
        if number in members:
            members[number].append(i)
    for link in sketch.links:
        for number in {place[link[0]], place[link[1]]}.intersection(members):
            links[number].append(link)
    for number in numbers:
        near = dict.fromkeys(place[end] for link in links[number] for end in link[:2])
        near.pop(number, None)
        outer = [] if len(near) > _MAX_NEIGHBOURS else [*near]
        boxes = [shown.boxes[n] for n in outer]
        index = {i: len(boxes) + k for k, i in enumerate(members[number])}
        boxes += [sketch.boxes[i] for i in members[number]]
        position = {n: k for k, n in enumerate(outer)}
        own_links = _relinked(links[number], place, index, position)
        yield number, (Sketch(boxes, own_links), len(outer))


def _relinked(
    links: Iterable[BoxFlow],
    place: Sequence[int],
    index: Mapping[int, int],
    outer: Mapping[int, int],
) -> list[BoxFlow]:
    """Returns those links whose ends are both in a new sketch, with their indices there.

    Args:
      links: the links.
      place: the number of the shown box of each box.
      index: the new index of a box.
      outer: the new index of a shown box, for boxes that have none of their own.
    """
    relinked: list[BoxFlow] = []
    for source, target, flow, values in links:
        ends = [index.get(end, outer.get(place[end], -1)) for end in (source, target)]
        if min(ends) >= 0:
            relinked.append((ends[0], ends[1], flow, values))
    return relinked
