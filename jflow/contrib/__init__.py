"""Names that TensorFlow 1 has under tf.contrib."""

from typing import TYPE_CHECKING

from jflow.api import on_first_use as _on_first_use

if TYPE_CHECKING:
    from jflow.contrib import learn as learn
    from jflow.contrib import lookup as lookup
    from jflow.contrib import training as training
else:
    _MODULES = ("learn", "lookup", "training")
    __getattr__, __dir__ = _on_first_use(
        globals(), "jflow.contrib", modules=_MODULES, starred=_MODULES
    )
