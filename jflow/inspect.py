"""Looking at what will run: placed graphs as pictures, as data, and in other tools' formats."""

from jflow.view.model import Arrow as Arrow
from jflow.view.model import Box as Box
from jflow.view.model import BoxKind as BoxKind
from jflow.view.model import Diagram as Diagram
from jflow.view.model import Flow as Flow
from jflow.view.model import OpInfo as OpInfo
from jflow.view.model import Prediction as Prediction
from jflow.view.model import StateInfo as StateInfo
from jflow.view.model import TensorInfo as TensorInfo
from jflow.view.picture import diagram as diagram
from jflow.view.picture import html_picture as html_picture
from jflow.view.picture import picture as picture
from jflow.view.picture import save_picture as save_picture
from jflow.view.picture import to_dot as to_dot
from jflow.view.picture import to_json as to_json
from jflow.view.picture import to_mermaid as to_mermaid
from jflow.view.timeline import timeline as timeline
