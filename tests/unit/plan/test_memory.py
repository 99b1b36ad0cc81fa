import pytest
from hypothesis import given
from hypothesis import strategies as st

from ktfleet import plan, recipes
from ktfleet.config import Gpu, HugepagePolicy, Hugepages, Workstation
from ktfleet.host.state import HostState
from ktfleet.plan import memory
from ktfleet.problem import Problem
from tests.states import GIB, hosts, workstation

RECIPE = recipes.load("dsv4-flash-amxint4")


def problems(state: HostState, need: memory.Memory) -> tuple[Problem, ...]:
    return (*memory.too_small(state, need, RECIPE), *memory.starved(state, need))


def lines(node_gib: tuple[float, float], hugepages: Hugepages) -> list[str]:
    need = memory.divide(RECIPE, hugepages, 2)
    return [str(problem) for problem in problems(workstation(node_gib=node_gib), need)]


@pytest.mark.parametrize("policy", ["thp", "off"])
def test_no_pool_unless_the_policy_is_hugetlb(policy: HugepagePolicy) -> None:
    assert memory.divide(RECIPE, Hugepages(policy=policy), 2).hugepages_per_node == 0


def test_gigantic_pages_are_not_there_for_the_weights() -> None:
    state = workstation()
    need = memory.divide(RECIPE, Hugepages(), 2)
    pool = {memory.GIGANTIC_PAGES.replace("node*", "node1"): "50"}
    crowded = state.model_copy(update={"sysfs": {**state.sysfs, **pool}})
    (problem,) = problems(crowded, need)
    assert (problem.what, problem.seen) == ("node 1 has too little memory for dsv4-flash-amxint4", "76.0 GiB")


def test_a_default_pool_holds_the_shard() -> None:
    need = memory.divide(RECIPE, Hugepages(policy="hugetlb"), 2)
    assert need.shard_bytes < need.hugepages_per_node * memory.HUGEPAGE_BYTES < need.shard_bytes * 1.05


def test_a_pool_that_is_too_small_for_the_weights_is_noted() -> None:
    small = memory.divide(RECIPE, Hugepages(policy="hugetlb", per_node=512), 2)
    assert small.notes == (
        "the huge page pool holds 1.0 GiB of each node's 64.8 GiB of weights: the rest gets ordinary pages",
    )
    assert memory.divide(RECIPE, Hugepages(policy="hugetlb"), 2).notes == ()
    assert memory.divide(RECIPE, Hugepages(), 2).notes == ()


def test_the_fleet_has_enough_under_every_policy() -> None:
    for policy in ("thp", "hugetlb", "off"):
        assert lines((126, 126), Hugepages(policy=policy)) == []


def test_too_little_memory_names_node_and_sizes() -> None:
    assert lines((126, 62), Hugepages()) == [
        "node 1 has too little memory for dsv4-flash-amxint4: seen 62.0 GiB, wanted 76.8 GiB "
        "(weights 64.8 GiB, everything else 12.0 GiB); add memory to this socket or choose a smaller recipe"
    ]


def test_a_pool_that_starves_the_rest_is_refused_with_the_largest_that_fits() -> None:
    found = lines((126, 126), Hugepages(policy="hugetlb", per_node=60_000))
    assert found[0] == (
        "node 0's huge page pool starves everything else: seen a pool of 117.2 GiB in 126.0 GiB, "
        "wanted 12.0 GiB left beside it; set hugepages.per_node to at most 58368"
    )
    assert lines((126, 126), Hugepages(policy="hugetlb", per_node=58368)) == []


@given(
    hosts(),
    st.sampled_from(["thp", "hugetlb", "off"]),
    st.none() | st.integers(1, 300_000),
)
def test_an_admitted_plan_never_needs_more_than_a_node_has(state: HostState, policy: str, per_node: int | None) -> None:
    hugepages = Hugepages.model_validate({"policy": policy, "per_node": per_node if policy == "hugetlb" else None})
    made = plan.make(state, Workstation(hugepages=hugepages), RECIPE)
    if made.refusals or made.unknown:
        return
    pool = made.memory.hugepages_per_node * 2 * 1024**2
    weights_outside = max(0, made.memory.shard_bytes - pool)
    for node in state.nodes:
        assert node.mem_total is not None
        assert pool + weights_outside + made.memory.reserve_bytes <= node.mem_total


@given(hosts(), st.integers(1, 200_000))
def test_a_node_is_refused_exactly_when_it_is_too_small(state: HostState, per_node: int) -> None:
    need = memory.divide(RECIPE, Hugepages(policy="hugetlb", per_node=per_node), len(state.nodes))
    small = {node.node for node in state.nodes if node.mem_total and node.mem_total < need.needed_bytes}
    refused = {int(problem.what.removeprefix("node ").split("'")[0].split()[0])
               for problem in problems(state, need)}  # fmt: skip
    assert refused == small


def test_sizes_are_those_of_the_recipe() -> None:
    """129.5 GiB of int4 experts in all, half of it on each node."""
    assert RECIPE.experts.total_bytes == 139_053_760_512
    assert round(RECIPE.shard_bytes(2) / GIB, 2) == 64.75


@pytest.mark.parametrize("name", recipes.names())
def test_every_recipe_fits_the_card(name: str) -> None:
    assert memory.card_too_small(Gpu(), recipes.load(name)) == ()


@pytest.mark.parametrize(("name", "override", "seen", "do"), [
    ("dsv4-flash-amxint4", {"context": {"total_tokens": 2_000_000}},
     "38.1 GiB (weights 8.4 GiB, experts 0.0 GiB, 2000000 tokens 29.7 GiB)",
     "set context.total_tokens to at most 1255792"),
    ("qwen3-30b-a3b-bf16", {"offload": {"gpu_experts": 128}},
     "62.9 GiB (weights 2.9 GiB, experts 54.0 GiB, 65536 tokens 6.0 GiB)",
     "set offload.gpu_experts to at most 50 and context.total_tokens to 32768"),
    ("dsv4-flash-amxint4", {"context": {"total_tokens": 2_000_000, "length": 2_000_000}},
     "38.1 GiB (weights 8.4 GiB, experts 0.0 GiB, 2000000 tokens 29.7 GiB)", "choose a shorter context.length"),
])  # fmt: skip
def test_a_context_that_does_not_fit_the_card(name: str, override: dict[str, object], seen: str, do: str) -> None:
    (problem,) = memory.card_too_small(Gpu(), recipes.load(name, override))
    assert problem.what == f"the context of {name} does not fit the card"
    assert (problem.seen, problem.wanted) == (seen, "at most 27.1 GiB (0.85 of its 31.8 GiB)")
    assert problem.do.startswith(do)


def test_what_the_remedy_says_fits() -> None:
    smaller = {"offload": {"gpu_experts": 50}, "context": {"total_tokens": 32_768}}
    assert memory.card_too_small(Gpu(), recipes.load("qwen3-30b-a3b-bf16", smaller)) == ()


def test_without_a_card_nothing_has_to_fit_it() -> None:
    recipe = recipes.load("dsv4-flash-amxint4", {"context": {"total_tokens": 2_000_000}})
    assert memory.card_too_small(None, recipe) == ()
