"""Variables in containers, read and set as programs do."""

from jflow.state.resources import Access, VariableId


class _Setting(Access):
    def __init__(self, containers, place, spec, array):
        super().__init__((), (place,))
        self.containers, self.place, self.spec, self.array = containers, place, spec, array
        self.variable = None

    def take(self):
        self.containers.find(self.place, self.spec)

    def put(self):
        self.variable = self.containers.set(self, self.place, self.spec, self.array, None)

    def rollback(self):
        pass

    def reason(self, ahead, writer):
        return ""


def set_variable(containers, device, spec, array):
    """Sets a variable, which nothing else may be writing, and so initializes it."""
    setting = _Setting(containers, VariableId.of(device, spec.key), spec, array)
    assert containers.begin_access(setting)
    setting.result()
    containers.end_access(setting)
    return setting.variable


def get_variable(containers, device, spec):
    """A variable, which must be initialized."""
    return containers.get(VariableId.of(device, spec.key), spec)
