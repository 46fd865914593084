import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.cluster import ClusterSpec, estimator, learn, parse_cluster, read_tf_config

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 3) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)
ADDRESSES = st.sampled_from(["a", "a:1", "[::1]", "", "a:b", "\n"]) | JSON
CLUSTERS = st.dictionaries(
    st.sampled_from(["ps", "worker", "chief", "master", ""]),
    st.lists(ADDRESSES, max_size=2) | st.dictionaries(st.sampled_from("01x"), ADDRESSES) | JSON,
)
TASKS = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["ps", "worker", "chief", "evaluator"]) | JSON,
        "index": st.sampled_from([0, 1, "0", "x"]) | JSON,
    },
)
CONFIGS = JSON | st.fixed_dictionaries(
    {}, optional={"cluster": CLUSTERS | JSON, "task": TASKS | JSON, "model_dir": JSON, "tsak": JSON}
)


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


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "at its end: line 1 column 2"),
        ("{'cluster': {}}", "double quotes.* before \"{?'cluster': {}}\": line 1 column 2"),
        ('{"cluster": {},}', "no comma after the last element"),
        ('{"cluster":\n {"ps": [a:1]}}', r"before 'a:1\]}}': line 2 column 10"),
    ],
)
def test_what_is_not_json_is_a_json_error_that_shows_the_place(text, words):
    with pytest.raises(json.JSONDecodeError, match=f"^TF_CONFIG is not JSON.*{words}") as raised:
        read_tf_config({"TF_CONFIG": text})
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([], r'TF_CONFIG must be an object such as {"cluster": .*, got \[\]'),
        ("ps", "TF_CONFIG must be an object .*, got 'ps'"),
        ({"task": "ps"}, r'TF_CONFIG\["task"\] must be an object such as {"type": .*, got \'ps\''),
        ({"task": {"index": "first"}}, r'TF_CONFIG\["task"\]\["index"\] .* got \'first\''),
        ({"task": {"index": -1}}, r'TF_CONFIG\["task"\]\["index"\] must be a number from 0'),
        ({"task": {"index": True}}, r'TF_CONFIG\["task"\]\["index"\] .* got True'),
        ({"task": {"type": 3}}, r'TF_CONFIG\["task"\]\["type"\] must be a string, got 3'),
        ({"model_dir": 3}, r'TF_CONFIG\["model_dir"\] must be a string, got 3'),
        ({"cluster": ["a:1"]}, r'TF_CONFIG\["cluster"\]: a cluster is a dict .*, got \[\'a:1\'\]'),
        ({"cluster": {"ps": "a:1"}}, r'TF_CONFIG\["cluster"\]: the tasks of job \'ps\' are a list'),
        ({"cluster": {"ps": [1]}}, r'TF_CONFIG\["cluster"\]: the address of /job:ps/task:0'),
        ({"cluster": {"ps": {"x": "a:1"}}}, r'TF_CONFIG\["cluster"\]: a task index of job \'ps\''),
        ({"cluster": {"ps": ["a:port"]}}, r'TF_CONFIG\["cluster"\]: /job:ps/task:0: .* \'port\''),
    ],
)
def test_parts_of_the_wrong_form_are_a_value_error_that_names_the_place(content, words):
    with pytest.raises(ValueError, match=f"^{words}") as raised:
        _read(content)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"clutser": {}}, "TF_CONFIG has the unknown key 'clutser'; did you mean 'cluster'"),
        ({"Cluster": {}}, "TF_CONFIG has the unknown key 'Cluster'; did you mean 'cluster'"),
        ({"cluster_spec": {}}, "'cluster_spec'; did you mean 'cluster'"),
        ({"cluster": {}, "taks": {}}, "'taks'; did you mean 'task'"),
        ({"task": {"tpye": "ps"}}, r'TF_CONFIG\["task"\] .* \'tpye\'; did you mean \'type\''),
        ({"task": {"type": "ps", "indx": 0}}, "'indx'; did you mean 'index'"),
    ],
)
def test_a_misspelt_key_is_named_with_the_right_one(content, words):
    with pytest.raises(ValueError, match=words):
        _read(content)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '{"cluster": {"ps": {"0": "a:1", "0": "b:1"}}}',
            "TF_CONFIG has '0' twice: 'a:1' and 'b:1'",
        ),
        ('{"task": {"type": "ps"}, "task": {"type": "worker"}}', "TF_CONFIG has 'task' twice"),
        ('{"cluster": {"ps": ["a:1"], "worker": ["a:1"]}}', "have one address, a:1; give each"),
    ],
)
def test_one_task_with_two_addresses_and_two_with_one_are_named(text, words):
    with pytest.raises(ValueError, match=words):
        read_tf_config({"TF_CONFIG": text})


def test_keys_of_tensorflow_and_of_managers_are_accepted():
    config = _read(
        {
            "cluster": {"worker": ["a"]},
            "cluster_name": "the one in the cellar",
            "environment": "cloud",
            "eval_session_master": "grpc://b:1",
            "job": {"region": "north"},
            "model_dir": "/models",
            "rpc_layer": "grpc",
            "service": {"name": "x"},
            "session_master": "grpc://a:1",
            "task": {"type": "worker", "index": 0, "trial": "1", "cloud": "x", "type_id": 3},
        }
    )
    assert (config.environment, config.model_dir) == ("cloud", "/models")
    assert (config.session_master, config.evaluation_master) == ("grpc://a:1", "grpc://b:1")
    assert config.cluster.task_address("worker", 0) == "a:2222"


def test_a_cluster_on_the_command_line_is_read_by_the_same_rules():
    assert parse_cluster('{"worker": {"3": "c"}}', "--cluster").as_dict() == {
        "worker": {3: "c:2222"}
    }
    with pytest.raises(json.JSONDecodeError, match=r"^--cluster is not JSON"):
        parse_cluster("worker=a:1", "--cluster")
    with pytest.raises(ValueError, match=r"^--cluster: a cluster is a dict .*, got \['a'\]"):
        parse_cluster('["a"]', "--cluster")


@given(CONFIGS)
@pytest.mark.parametrize("use", [read_tf_config, learn.RunConfig, estimator.RunConfig])
def test_whatever_json_it_is_it_is_read_or_refused_in_one_line(use, content):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_CONFIG", json.dumps(content))
        message = _refusal(use)
    assert message is None or ("TF_CONFIG" in message and "\n" not in message)


def _refusal(use):
    try:
        use()
    except ValueError as error:
        return str(error)
    return None
