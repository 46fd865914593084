"""Looking at what will run: placed graphs as pictures, as data, and in other tools' formats."""

from jflow.inspect.model import Arrow as Arrow
from jflow.inspect.model import Box as Box
from jflow.inspect.model import BoxKind as BoxKind
from jflow.inspect.model import Diagram as Diagram
from jflow.inspect.model import Flow as Flow
from jflow.inspect.model import OpInfo as OpInfo
from jflow.inspect.model import Prediction as Prediction
from jflow.inspect.model import StateInfo as StateInfo
from jflow.inspect.model import TensorInfo as TensorInfo
from jflow.inspect.picture import diagram as diagram
from jflow.inspect.picture import picture as picture
from jflow.inspect.picture import save_picture as save_picture
from jflow.inspect.picture import to_dot as to_dot
from jflow.inspect.picture import to_json as to_json
from jflow.inspect.picture import to_mermaid as to_mermaid
