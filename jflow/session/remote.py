from typing import Any
class RemoteBackend:
    def __init__(self,*a: Any): pass
def reset_containers(*a: Any) -> None: pass
