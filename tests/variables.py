"""Variables in containers, read and set as programs do."""

from jflow.resources import Access, VariableId


class _Setting(Access):
    def __init__(self, store, place, spec, array):
        super().__init__((), (place,))
        self.store, self.place, self.spec, self.array = store, place, spec, array
        self.variable = None

    def take(self):
        self.store.find(self.place, self.spec)

    def put(self):
        self.variable = self.store.set(self, self.place, self.spec, self.array, None)

    def rollback(self):
        pass

    def reason(self, ahead, writer):
        return ""


def set_variable(store, device, spec, array):
    """Sets a variable, which nothing else may be writing, and so initializes it."""
    setting = _Setting(store, VariableId.of(device, spec.key), spec, array)
    assert store.begin(setting)
    setting.result()
    store.end(setting)
    return setting.variable


def get_variable(store, device, spec):
    """A variable, which must be initialized."""
    return store.get(VariableId.of(device, spec.key), spec)
