"""Placement strategies, by the names that users give them."""

from jflow.schedule.schedule import PlaceFunction
from jflow.schedule.strategies.contiguous import m_topo, min_cut_runs
from jflow.schedule.strategies.coplacing import coplaced as coplaced
from jflow.schedule.strategies.grouping import grouped as grouped
from jflow.schedule.strategies.list_scheduling import (
    cpop,
    earliest_finish,
    etf,
    etf_c,
    heft,
    heft_c,
    peft,
)
from jflow.schedule.strategies.memory import fitted as fitted
from jflow.schedule.strategies.metis import metis
from jflow.schedule.strategies.portfolio import PortfolioResult as PortfolioResult
from jflow.schedule.strategies.portfolio import auto
from jflow.schedule.strategies.portfolio import choose as choose
from jflow.schedule.strategies.sct import m_sct
from jflow.schedule.strategies.search import improved as improved
from jflow.schedule.strategies.simple import greedy_load, greedy_lpt, random, round_robin, single

STRATEGIES: dict[str, PlaceFunction] = {
    place.__name__: place
    for place in (
        *(single, random, round_robin, greedy_load, greedy_lpt),
        *(earliest_finish, heft, heft_c, cpop, peft, etf, etf_c),
        *(m_sct, metis, m_topo, min_cut_runs, auto),
    )
}
"""The strategies that ship, by name."""
