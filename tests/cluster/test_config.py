import json

import pytest

from jflow.cluster import ClusterSpec, read_tf_config


def _read(content):
    return read_tf_config({"TF_CONFIG": json.dumps(content)})


@pytest.mark.parametrize("environ", [{}, {"TF_CONFIG": ""}, {"TF_CONFIG": "{}"}])
def test_without_the_variable_there_is_no_cluster_and_no_role(environ):
    config = read_tf_config(environ)
    assert not config.cluster
    assert (config.job, config.index) == (None, None)


def test_it_says_the_cluster_and_the_role():
    cluster = {"ps": ["p:2222"], "worker": ["a:2222", "b:2222"]}
    config = _read({"cluster": cluster, "task": {"type": "worker", "index": 1}})
    assert config.cluster == ClusterSpec(cluster)
    assert (config.job, config.index) == ("worker", 1)


def test_keys_that_are_for_others_are_ignored():
    config = _read({"environment": "cloud", "rpc_layer": "grpc", "task": {"type": "ps", "x": 1}})
    assert (config.job, config.index) == ("ps", None)


def test_an_index_may_be_written_as_a_string():
    assert _read({"task": {"type": "ps", "index": "3"}}).index == 3


def test_indices_of_sparse_jobs_are_numbers_though_json_has_only_strings():
    config = _read({"cluster": {"worker": {"1": "b:2222"}}})
    assert config.cluster.task_address("worker", 1) == "b:2222"


def test_the_environment_is_read_anew_at_each_call(monkeypatch):
    for index in (0, 1):
        monkeypatch.setenv("TF_CONFIG", json.dumps({"task": {"type": "ps", "index": index}}))
        assert read_tf_config().index == index
    monkeypatch.delenv("TF_CONFIG")
    assert read_tf_config().job is None


def test_what_is_not_json_is_a_json_error():
    with pytest.raises(json.JSONDecodeError):
        read_tf_config({"TF_CONFIG": "{"})


@pytest.mark.parametrize(
    "content",
    [
        [],
        "ps",
        {"task": "ps"},
        {"task": {"index": "first"}},
        {"cluster": {"ps": {"first": "a:1"}}},
        {"cluster": {"ps": ["a:port"]}},
    ],
)
def test_parts_of_the_wrong_form_are_a_value_error(content):
    with pytest.raises(ValueError, match=r"TF_CONFIG|invalid literal|expected an address"):
        _read(content)


@pytest.mark.parametrize("cluster", [["a:1"], {"ps": "a:1"}, {"ps": [1]}])
def test_a_cluster_of_the_wrong_form_is_a_type_error_as_for_cluster_spec(cluster):
    with pytest.raises(TypeError):
        _read({"cluster": cluster})
