"""Placement strategies by name."""

from jflow.compiler.schedule.anneal import improved as improved
from jflow.compiler.schedule.schedule import PlaceFunction
from jflow.compiler.schedule.strategies.contiguous import m_topo, min_cut_runs
from jflow.compiler.schedule.strategies.coplacing import coplaced as coplaced
from jflow.compiler.schedule.strategies.grouping import grouped as grouped
from jflow.compiler.schedule.strategies.list_scheduling import (
    cpop,
    earliest_finish,
    etf,
    etf_c,
    heft,
    heft_c,
    peft,
)
from jflow.compiler.schedule.strategies.memory import fitted as fitted
from jflow.compiler.schedule.strategies.metis import metis
from jflow.compiler.schedule.strategies.portfolio import PortfolioResult as PortfolioResult
from jflow.compiler.schedule.strategies.portfolio import auto
from jflow.compiler.schedule.strategies.portfolio import choose as choose
from jflow.compiler.schedule.strategies.sct import m_sct
from jflow.compiler.schedule.strategies.simple import (
    greedy_load,
    greedy_lpt,
    random,
    round_robin,
    single,
)

STRATEGIES: dict[str, PlaceFunction] = {
    place.__name__: place
    for place in (
        *(single, random, round_robin, greedy_load, greedy_lpt),
        *(earliest_finish, heft, heft_c, cpop, peft, etf, etf_c),
        *(m_sct, m_topo, min_cut_runs, auto),
    )
}
"""The strategies that ship, by name."""

OPTIONAL: dict[str, PlaceFunction] = {"metis": metis}
"""Strategies that need a package which jflow does not depend on, and say so without it."""
