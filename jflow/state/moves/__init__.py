"""Moves of state between devices: where state is now, and the state machines of a move. Pure.

A *move* takes variables and queues that are colocated from one device to another while steps use
them. Every task *holds* the steps that use the state, the *source* saves it, the *target* takes the
copy, the source ends the hold as moved, which is the moment of the move, and all others follow.
Until that moment the copy at the source is the state, after it the one at the target.
"""

from jflow.state.moves.directory import Directory as Directory
from jflow.state.moves.directory import Use as Use
from jflow.state.moves.gate import Gate as Gate
from jflow.state.moves.move import End as End
from jflow.state.moves.move import EndHold as EndHold
from jflow.state.moves.move import Failed as Failed
from jflow.state.moves.move import HoldState as HoldState
from jflow.state.moves.move import Move as Move
from jflow.state.moves.move import MoveAction as MoveAction
from jflow.state.moves.move import Moved as Moved
from jflow.state.moves.move import PutState as PutState
from jflow.state.moves.move import SaveState as SaveState
from jflow.state.moves.states import EVERYTHING as EVERYTHING
from jflow.state.moves.states import Change as Change
from jflow.state.moves.states import MovedError as MovedError
from jflow.state.moves.states import StateId as StateId
from jflow.state.moves.states import changes_of as changes_of
from jflow.state.moves.states import container_on as container_on
from jflow.state.moves.states import is_restartable as is_restartable
from jflow.state.moves.states import sessions_of as sessions_of
from jflow.state.moves.states import states_of as states_of
from jflow.state.moves.states import used_by as used_by
from jflow.state.moves.states import writes_often as writes_often
