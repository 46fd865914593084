"""A coordinator counts elements of datasets in a variable of a parameter server."""

import jflow as tf

strategy = tf.distribute.experimental.ParameterServerStrategy(
    tf.distribute.cluster_resolver.TFConfigClusterResolver()
)
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy)

with strategy.scope():
    total = tf.Variable(initial_value=0)


@tf.function
def add_next(numbers):
    def add(number):
        total.assign_add(number)
        return total.read_value()

    return strategy.run(add, args=(next(numbers),))


def dataset():
    return tf.data.Dataset.from_tensor_slices([5, 5, 5])


numbers = iter(coordinator.create_per_worker_dataset(dataset))
print(coordinator.fetch(coordinator.schedule(add_next, args=(numbers,))))
for _ in range(2):
    coordinator.schedule(add_next, args=(numbers,))
coordinator.join()
print(coordinator.done(), int(total.numpy()), total.device)
