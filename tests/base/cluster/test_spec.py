import pytest
from hypothesis import given
from hypothesis import strategies as st

from jflow.base.cluster import ClusterSpec, Task

DENSE = {"worker": ["w0:2222", "w1:2222"], "ps": ["p0:2222"]}
SPARSE = {"worker": {3: "w3:2222", 1: "w1:2222"}}

JOBS = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
ADDRESSES = st.builds("h{}:{}".format, st.integers(0, 99), st.integers(0, 65535))


def have_distinct_addresses(jobs):
    lists = [tasks if isinstance(tasks, list) else [*tasks.values()] for tasks in jobs.values()]
    found = [one for tasks in lists for one in tasks if not one.endswith(":0")]
    return len(set(found)) == len(found)


CLUSTERS = st.dictionaries(
    JOBS,
    st.lists(ADDRESSES, max_size=4) | st.dictionaries(st.integers(0, 20), ADDRESSES, max_size=4),
    max_size=4,
).filter(have_distinct_addresses)


def test_jobs_are_in_alphabetical_order():
    assert ClusterSpec(DENSE).jobs == ["ps", "worker"]


def test_a_list_numbers_its_tasks_from_zero():
    spec = ClusterSpec(DENSE)
    assert spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [0, 1]
    assert spec.task_address("worker", 1) == "w1:2222"
    assert spec.job_tasks("worker") == ["w0:2222", "w1:2222"]


def test_a_sparse_job_keeps_its_indices_and_shows_holes():
    spec = ClusterSpec(SPARSE)
    assert spec.num_tasks("worker") == 2
    assert spec.task_indices("worker") == [1, 3]
    assert spec.task_address("worker", 3) == "w3:2222"
    assert spec.job_tasks("worker") == [None, "w1:2222", None, "w3:2222"]


def test_tasks_come_by_job_and_then_by_index():
    spec = ClusterSpec({**DENSE, **SPARSE})
    assert list(spec.tasks()) == [Task("ps", 0), Task("worker", 1), Task("worker", 3)]


@pytest.mark.parametrize("ask", ["num_tasks", "task_indices", "job_tasks"])
def test_an_unknown_job_is_an_error_that_lists_the_jobs(ask):
    with pytest.raises(ValueError, match=r"no job 'chief'.*\['ps', 'worker'\]"):
        getattr(ClusterSpec(DENSE), ask)("chief")


def test_an_unknown_task_is_an_error_that_lists_the_tasks():
    with pytest.raises(ValueError, match=r"no job 'chief'"):
        ClusterSpec(DENSE).task_address("chief", 0)
    with pytest.raises(ValueError, match=r"no task 2; it has \[1, 3\]"):
        ClusterSpec(SPARSE).task_address("worker", 2)


def test_as_dict_gives_lists_for_dense_jobs_and_dicts_for_sparse_ones():
    assert ClusterSpec(DENSE).as_dict() == DENSE
    assert ClusterSpec(SPARSE).as_dict() == SPARSE
    assert ClusterSpec({"a": {0: "x:1", 1: "y:1"}}).as_dict() == {"a": ["x:1", "y:1"]}
    assert ClusterSpec({}).as_dict() == {}


def test_a_job_may_have_no_tasks():
    spec = ClusterSpec({"ps": []})
    assert (spec.jobs, spec.num_tasks("ps"), spec.job_tasks("ps")) == (["ps"], 0, [])


def test_a_job_without_tasks_is_an_empty_dict_in_as_dict():
    assert ClusterSpec({"ps": [], "worker": ["w:1"]}).as_dict() == {"ps": {}, "worker": ["w:1"]}
    assert ClusterSpec({"ps": {}}).as_dict() == {"ps": {}}
    assert isinstance(ClusterSpec({"ps": []}).as_dict()["ps"], dict)


@pytest.mark.parametrize(
    ("given", "normalized"),
    [
        ("ps.example.com", "ps.example.com:2222"),
        ("10.0.0.1", "10.0.0.1:2222"),
        ("[fd00::1]", "[fd00::1]:2222"),
        ("grpc://ps.example.com", "ps.example.com:2222"),
        ("grpc://[fd00::1]:80", "[fd00::1]:80"),
        ("ps.example.com:80", "ps.example.com:80"),
    ],
)
def test_an_address_without_a_port_has_port_2222_for_every_reader(given, normalized):
    spec = ClusterSpec({"ps": [given]})
    assert spec.task_address("ps", 0) == normalized
    assert spec.job_tasks("ps") == [normalized]
    assert spec.as_dict() == {"ps": [normalized]}
    assert spec == ClusterSpec({"ps": [normalized]})
    assert ClusterSpec({}).replace(Task("ps", 1), given).task_address("ps", 1) == normalized


def test_indices_may_be_decimal_strings_because_json_has_no_other_keys():
    assert ClusterSpec({"worker": {"10": "b:1", "3": "a:1"}}).as_dict() == {
        "worker": {3: "a:1", 10: "b:1"}
    }
    with pytest.raises(ValueError, match="job 'worker' has two tasks 3"):
        ClusterSpec({"worker": {"3": "a:1", 3: "b:1"}})


def test_two_tasks_at_one_address_are_refused_with_both_names():
    with pytest.raises(ValueError, match=r"/job:ps/task:0 and /job:worker/task:1 have one address"):
        ClusterSpec({"ps": ["a"], "worker": ["b", "grpc://a:2222"]})
    assert ClusterSpec({"ps": ["a:0"], "worker": ["a:0"]})  # ports that are chosen later


def test_only_the_cluster_without_jobs_is_false():
    assert not ClusterSpec({})
    assert ClusterSpec(DENSE)


@given(CLUSTERS)
def test_a_spec_is_equal_to_one_made_of_its_dict_or_of_itself(cluster):
    spec = ClusterSpec(cluster)
    for again in (ClusterSpec(spec.as_dict()), ClusterSpec(spec)):
        assert again == spec
        assert hash(again) == hash(spec)


@given(CLUSTERS)
def test_a_spec_prints_its_jobs_in_order_whatever_order_they_came_in(cluster):
    backwards = dict(reversed(list(cluster.items())))
    assert ClusterSpec(backwards) == ClusterSpec(cluster)
    assert repr(ClusterSpec(backwards)) == repr(ClusterSpec(cluster))


def test_a_list_equals_the_dict_that_numbers_it():
    assert ClusterSpec({"ps": {0: "a:1"}}) == ClusterSpec({"ps": ["a:1"]})
    assert ClusterSpec({"ps": {1: "a:1"}}) != ClusterSpec({"ps": ["a:1"]})
    assert ClusterSpec({"ps": ["a:1"]}) != {"ps": ["a:1"]}


def test_a_later_change_of_the_dict_does_not_reach_the_spec():
    cluster = {"ps": ["a:1"]}
    spec = ClusterSpec(cluster)
    cluster["ps"].append("b:1")
    spec.as_dict()["ps"].append("c:1")
    spec.job_tasks("ps").append("d:1")
    assert spec.as_dict() == {"ps": ["a:1"]}


def test_replacing_an_address_makes_another_spec():
    spec = ClusterSpec(DENSE)
    other = spec.replace(Task("worker", 1), "new:1")
    assert other.job_tasks("worker") == ["w0:2222", "new:1"]
    assert spec.job_tasks("worker") == DENSE["worker"]
    assert spec.replace(Task("chief", 0), "c:1").jobs == ["chief", "ps", "worker"]


@pytest.mark.parametrize(
    "cluster",
    [
        None,
        7,
        "ps",
        ["a:1"],
        {"ps": "a:1"},
        {"ps": b"a:1"},
        {"ps": 3},
        {"ps": [3]},
        {"ps": [None]},
        {"ps": {0: 3}},
        {0: ["a:1"]},
        {"": ["a:1"]},
    ],
)
def test_another_form_of_cluster_is_a_type_error(cluster):
    with pytest.raises(TypeError):
        ClusterSpec(cluster)


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        ({"ps": ["a:1", ""]}, "/job:ps/task:1: the address is empty"),
        ({"ps": ["host:port"]}, "/job:ps/task:0: .* 'port'"),
        ({"ps": {7: "a:70000"}}, "/job:ps/task:7: .* '70000'"),
        ({"ps": {-1: "a:1"}}, "a task index of job 'ps' is a number from 0, got -1"),
        ({"ps": {"first": "a:1"}}, "a task index of job 'ps' .* got 'first'"),
        ({"ps": {True: "a:1"}}, "a task index of job 'ps' .* got True"),
    ],
)
def test_a_malformed_address_or_index_is_an_error_that_says_where_it_is(cluster, words):
    with pytest.raises(ValueError, match=words):
        ClusterSpec(cluster)
