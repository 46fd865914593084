"""A coordinator takes the first element of a worker's dataset; TF_CONFIG names the cluster."""

import jflow as tf

strategy = tf.distribute.experimental.ParameterServerStrategy(
    cluster_resolver=tf.distribute.cluster_resolver.TFConfigClusterResolver()
)
coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(strategy=strategy)


@tf.function
def first_of(numbers):
    return next(numbers)


def dataset_of_a_worker():
    return strategy.distribute_datasets_from_function(
        lambda context: tf.data.from_tensor_slices([7] * 2)
    )


numbers = iter(coordinator.create_per_worker_dataset(dataset_of_a_worker))
print(coordinator.schedule(first_of, args=(numbers,)).fetch())
