from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.view.drawing.columns import fitted
from jflow.view.drawing.layers import Edge, layered
from jflow.view.drawing.layout import Layout, Rect, SizedBox, arrange

N_LANES = 3

Graph = tuple[list[SizedBox], list[Edge]]


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Boxes of any size and lane, and any edges between them, cycles and doubles included."""
    sizes = st.integers(10, 200)
    box = st.builds(SizedBox, sizes, sizes, st.integers(0, N_LANES - 1), st.integers(0, 2))
    boxes = draw(st.lists(box, min_size=1))
    ends = st.integers(0, len(boxes) - 1)
    edge = st.builds(Edge, ends, ends, st.sampled_from(["data", "state"]))
    return boxes, draw(st.lists(edge.filter(lambda edge: edge.source != edge.target)))


def edges(*pairs: tuple[int, int]) -> list[Edge]:
    return [Edge(*pair) for pair in pairs]


def smaller(box: Rect) -> Rect:
    """The box without what rounding may have added to it."""
    return Rect(box.x + 1e-6, box.y + 1e-6, box.width - 2e-6, box.height - 2e-6)


def laid_out(graph: Graph) -> Layout:
    return arrange(*graph, [100.0] * N_LANES)


@given(graphs())
def test_boxes_do_not_overlap_and_are_inside_their_lanes(graph: Graph) -> None:
    layout = laid_out(graph)
    assert not [pair for pair in combinations(layout.boxes, 2) if pair[0].overlaps(pair[1])]
    for item, box in zip(graph[0], layout.boxes, strict=True):
        lane = layout.lanes[item.lane]
        assert (box.width, box.height) == (item.width, item.height)
        assert lane.x < box.x < box.right < lane.right
        assert lane.y < box.y < box.bottom < lane.bottom


@given(graphs())
def test_lanes_are_side_by_side_on_the_paper(graph: Graph) -> None:
    layout = laid_out(graph)
    assert all(left.right < right.x for left, right in pairwise(layout.lanes))
    assert layout.lanes[-1].right < layout.width
    assert all(lane.bottom < layout.height for lane in layout.lanes)


@given(graphs())
def test_routes_lead_from_box_to_box(graph: Graph) -> None:
    layout = laid_out(graph)
    for (source, target, _), route in zip(graph[1], layout.routes, strict=True):
        begin, end = layout.boxes[source], layout.boxes[target]
        down = begin.y < end.y
        assert begin.x < route[0].x < begin.right
        assert route[0].enter == (begin.bottom if down else begin.y)
        assert end.x < route[-1].x < end.right
        assert route[-1].leave == (end.y if down else end.bottom)


@given(graphs())
def test_routes_pass_under_no_box(graph: Graph) -> None:
    layout = laid_out(graph)
    boxes = [smaller(box) for box in layout.boxes]
    for route in layout.routes:
        for stop in route:
            top, bottom = sorted((stop.enter, stop.leave))
            passage = Rect(stop.x, top, 0.0, bottom - top)
            assert not any(passage.overlaps(box) for box in boxes)
        for stop, following in pairwise(route):
            top, bottom = sorted((stop.leave, following.enter))
            assert not any(box.y < bottom and top < box.bottom for box in boxes)


@given(graphs())
def test_layout_is_deterministic(graph: Graph) -> None:
    assert laid_out(graph) == laid_out(graph)


def test_nothing_has_a_layout() -> None:
    assert arrange([], [], []).boxes == ()


def test_edges_point_down_but_for_those_that_close_a_cycle() -> None:
    boxes = [SizedBox(10, 10, 0)] * 4
    layout = arrange(boxes, edges((2, 3), (3, 0), (0, 1), (1, 0)), [0.0])
    tops = [box.y for box in layout.boxes]
    assert tops[2] < tops[3] < tops[0] < tops[1]


def test_what_needs_nothing_is_just_above_what_needs_it() -> None:
    layers = layered([0] * 5, edges((0, 1), (1, 2), (2, 3), (4, 3)))
    assert [sorted(v for v in row if v < 5) for row in layers.rows] == [[0], [1], [2, 4], [3]]


def test_later_phases_are_below_earlier_ones() -> None:
    layers = layered([0] * 5, edges((0, 1), (1, 2), (3, 4)), [0, 0, 0, 1, 1])
    assert [sorted(row) for row in layers.rows] == [[0], [1], [2], [3], [4]]


def test_phase_does_not_turn_an_edge_round() -> None:
    layers = layered([0] * 3, edges((0, 1), (1, 2)), [1, 0, 1])
    assert [sorted(row) for row in layers.rows] == [[0], [1], [2]]


@pytest.mark.parametrize("to_one", [False, True])
def test_edges_of_one_kind_at_one_vertex_are_one_line_that_branches(to_one: bool) -> None:
    chain = edges((0, 1), (1, 2), (2, 3), (3, 4))
    pairs = ((0, 4), (1, 4)) if to_one else ((0, 3), (0, 4))
    layers = layered([0] * 5, [*chain, *(Edge(*pair, "read") for pair in pairs)])
    first, second = (set(chain[1:-1]) for chain in layers.chains[4:])
    assert first & second
    other = layered([0] * 5, [*chain, *(Edge(*pair, str(pair)) for pair in pairs)])
    first, second = (set(chain[1:-1]) for chain in other.chains[4:])
    assert not first & second


def test_order_of_rows_avoids_crossings() -> None:
    layers = layered([0] * 6, edges((0, 5), (1, 4), (2, 3)))
    first, second = layers.rows
    partner = {0: 5, 1: 4, 2: 3}
    assert [partner[vertex] for vertex in first] == second


def test_chain_is_straight() -> None:
    boxes = [SizedBox(width, 20, 0) for width in (40, 120, 60, 90)]
    layout = arrange(boxes, edges((0, 1), (1, 2), (2, 3)), [300.0])
    assert len({stop.x for route in layout.routes for stop in route}) == 1


@given(st.lists(st.tuples(st.floats(-100, 100), st.floats(0.1, 10)), min_size=1, max_size=8))
def test_fitted_positions_keep_gaps_and_bounds(targets: list[tuple[float, float]]) -> None:
    wanted, weights = zip(*targets, strict=True)
    gaps = [5.0] * (len(wanted) - 1)
    positions = fitted(wanted, weights, gaps, -50.0, 50.0)
    assert all(b - a >= 5.0 - 1e-9 for a, b in pairwise(positions))
    assert -50.0 <= positions[0] <= positions[-1] <= 50.0 + 1e-9


def test_fitted_positions_are_the_nearest_ones() -> None:
    assert fitted([0, 10, 20], [1, 1, 1], [5, 5], -99, 99) == [0, 10, 20]
    assert fitted([0, 0], [1, 1], [10], -99, 99) == [-5, 5]
    assert fitted([0, 0], [3, 1], [8], -99, 99) == [-2, 6]
    assert fitted([30, 30], [1, 1], [4], 0, 20) == pytest.approx([16, 20])
