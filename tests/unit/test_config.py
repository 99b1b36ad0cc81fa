from pathlib import Path

import pytest

from ktfleet import config
from ktfleet.config import Workstation
from ktfleet.problem import Refused


def refusal(data: dict[str, object]) -> list[str]:
    with pytest.raises(Refused) as refused:
        config.parse(data, "ws03")
    return str(refused.value).splitlines()


def test_nothing_is_needed() -> None:
    assert config.parse({}, "ws01") == Workstation()


def test_inventories_write_lists_and_dictionaries() -> None:
    found = config.parse({"kernel_command_line": ["mitigations"], "hugepages": {"policy": "off"}}, "ws01")
    assert (found.kernel_command_line, found.hugepages.policy) == (("mitigations",), "off")


def test_a_card_is_named_as_its_users_name_it() -> None:
    found = config.parse({"gpu": {"capability": [9, 0]}}, "ws01").gpu
    assert found is not None
    assert (found.sm, found.architecture, found.toolkit_folder) == ("sm_90", "90a", "/usr/local/cuda-12.9")
    assert (config.Gpu().sm, config.Gpu().architecture) == ("sm_120", "120a")
    assert config.Gpu(capability=(8, 9)).architecture == "89", "older chips have no code of their own kind"
    assert config.parse({"gpu": None}, "ws01").gpu is None
    assert config.parse({"gpu": False}, "ws01").gpu is None, "TOML has no null"
    assert refusal({"gpu": True}) != []


@pytest.mark.parametrize(("key", "value"), [
    ("repository", "ftp://mirror/cuda"), ("repository", "https://mirror/cuda/"), ("repository", "https://m/a b"),
    ("keyring_sha256", "d2a6"),
    ("repository", "https://m/$(id)"), ("driver_branch", "580-open"), ("minimum_driver", "580"), ("toolkit", "12.9; x"),
    ("capability", [12]), ("capability", ["12", "0"]), ("capability", [12, 10]), ("power_limit_w", 5000),
])  # fmt: skip
def test_what_goes_into_commands_is_checked(key: str, value: object) -> None:
    (line,) = refusal({"gpu": {key: value}})[:1]
    assert line.startswith(f"ws03: gpu.{key}")


@pytest.mark.parametrize(("data", "line"), [
    ({"recipie": "x"}, "ws03: recipie: seen an unknown key, wanted one of recipe, override, accept, server, "
                       "hardware, hugepages, cpuinfer, "
                       "wake_latency_us, data, weights, stack, gpu, kernel_command_line, "
                       "measure, interrupt, reference; did you mean 'recipe'?"),
    ({"zebra": 1}, "ws03: zebra: seen an unknown key, wanted one of recipe, override, accept, server, "
                       "hardware, hugepages, cpuinfer, "
                   "wake_latency_us, data, weights, stack, gpu, kernel_command_line, measure, interrupt, "
                   "reference; remove it"),
    ({"hugepages": {"polcy": "thp"}}, "ws03: hugepages.polcy: seen an unknown key, wanted one of policy, per_node; "
                                      "did you mean 'policy'?"),
    ({"hugepages": {"policy": "2M"}}, "ws03: hugepages.policy: seen '2M', wanted 'thp', 'hugetlb' or 'off'; "
                                      "correct hugepages.policy"),
    ({"cpuinfer": "40"}, "ws03: cpuinfer: seen '40', wanted a valid integer; correct cpuinfer"),
    ({"cpuinfer": 0}, "ws03: cpuinfer: seen 0, wanted greater than or equal to 1; correct cpuinfer"),
    ({"cpuinfer": True}, "ws03: cpuinfer: seen True, wanted a valid integer; correct cpuinfer"),
    ({"hugepages": {"policy": "thp", "per_node": 64}},
     "ws03: hugepages: seen {'per_node': 64, 'policy': 'thp'}, wanted per_node together with the policy hugetlb only; "
     "correct hugepages"),
    ({"gpu": {"capabilty": [9, 0]}},
     "ws03: gpu.capabilty: seen an unknown key, wanted one of capability, driver_branch, minimum_driver, toolkit, "
     "repository, keyring_sha256, memory_mib, power_limit_w; did you mean 'capability'?"),
    ({"gpu": {"minimum_driver": "595.10"}},
     "ws03: gpu: seen {'minimum_driver': '595.10'}, wanted a driver_branch of at least 595; correct gpu"),
    ({"gpu": {"power_limit_w": 5}}, "ws03: gpu.power_limit_w: seen 5, wanted greater than or equal to 100; "
                                    "correct gpu.power_limit_w"),
    ({"recipe": 4}, "ws03: recipe: seen 4, wanted a valid string; correct recipe"),
    ({"hardware": 2}, "ws03: hardware: seen 2, wanted a valid dictionary or instance of Hardware; correct hardware"),
    ({"kernel_command_line": "mitigations"}, "ws03: kernel_command_line: seen 'mitigations', wanted a valid list; "
                                             "correct kernel_command_line"),
])  # fmt: skip
def test_a_mistake_names_host_and_key(data: dict[str, object], line: str) -> None:
    assert refusal(data) == [line]


def test_all_mistakes_at_once() -> None:
    found = refusal({"recipie": "x", "cpuinfer": "40", "hugepages": {"policy": "2M"}})
    assert len(found) == 3


def test_a_file(tmp_path: Path) -> None:
    file = tmp_path / "ws.toml"
    file.write_text('cpuinfer = 38\n[hugepages]\npolicy = "off"\n')
    assert config.load(file).cpuinfer == 38


@pytest.mark.parametrize("content", ["cpuinfer = ", b"\xff\xfe", None])
def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path, content: str | bytes | None) -> None:
    file = tmp_path / "ws.toml"
    if content is not None:
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(Refused, match=r"ws\.toml: seen .*, wanted a readable TOML file; check the path") as refused:
        config.load(file)
    assert len(str(refused.value).splitlines()) == 1


@pytest.mark.parametrize(("source", "line"), [
    ({"kind": "hub", "endpont": "x"}, "ws03: weights.source.hub.endpont: seen an unknown key, wanted one of kind, "
                                      "endpoint, token_file; did you mean 'endpoint'?"),
    ({"kind": "hubb"}, "ws03: weights.source: seen {'kind': 'hubb'}, wanted a kind of 'hub', 'rsync', 'folder'; "),
    ({}, "ws03: weights.source: seen {}, wanted a kind, as ktfleet/sources.py names them; correct weights.source"),
    *[({"kind": "rsync", "checkpoint": place}, "ws03: weights.source.rsync.checkpoint: seen ") for place in (
        "-e sh:/x", "host:x", "host:/x;y", "rsync://h", "host:/a b", "/local", "$(id):/x", "--rsh=x:/y",
    )],
    ({"kind": "folder", "checkpoint": "x"}, "ws03: weights.source.folder.checkpoint: seen 'x'"),
    ({"kind": "folder", "checkpoint": "/"}, "ws03: weights.source.folder.checkpoint: seen '/'"),
    ({"kind": "hub", "endpoint": "ftp://x"}, "ws03: weights.source.hub.endpoint: seen 'ftp://x'"),
    ({"kind": "hub", "endpoint": "https://x/"}, "ws03: weights.source.hub.endpoint: seen 'https://x/'"),
    ({"kind": "hub", "endpoint": "http://x", "token_file": "/root/token"},
     "ws03: weights.source.hub: seen {'endpoint': 'http://x', 'kind': 'hub', 'token_file': '/root/token'}, wanted "
     "token_file together with an endpoint that begins with https:// only"),
])  # fmt: skip
def test_a_source_that_is_none(source: dict[str, str], line: str) -> None:
    (found,) = refusal({"weights": {"source": source}})
    assert found.startswith(line)


@pytest.mark.parametrize("place", ["nas:/models/x", "me@nas.lan:/models/x", "rsync://nas:873/models/x"])
def test_places_that_rsync_knows(place: str) -> None:
    made = config.parse({"weights": {"source": {"kind": "rsync", "checkpoint": place}}}, "ws01")
    assert made.weights is not None


@pytest.mark.parametrize("key", ["repository", "commit", "path", "sha256"])
def test_the_converter_is_pinned(key: str) -> None:
    (line,) = refusal({"weights": {"converter": {key: "--upload-pack=x"}}})
    assert line.startswith(f"ws03: weights.converter.{key}: seen '--upload-pack=x'")


@pytest.mark.parametrize("data", [
    {"mount": "/srv/m", "label": "a", "uuid": "1234-ABCD"}, {"mount": "/srv/m/", "label": "a"},
    {"mount": "/", "label": "a"}, {"mount": "/srv/m", "label": "a b"}, {"mount": "/srv/m", "uuid": "../sda"},
])  # fmt: skip
def test_a_data_disk_that_cannot_be_named(data: dict[str, str]) -> None:
    assert len(refusal({"data": data})) == 1


@pytest.mark.parametrize(("server", "line"), [
    ({"host": "0.0.0.0"}, "ws03: server: seen {'host': '0.0.0.0'}, wanted a key together with a host beyond "
                          "127.0.0.1; correct server"),
    ({"host": "192.168.1.5", "port": 8000}, "wanted a key together with a host beyond 127.0.0.1"),
    ({"host": "localhost"}, "wanted host as an IP address of this host, like 127.0.0.1 or 0.0.0.0"),
    ({"port": 80}, "ws03: server.port: seen 80, wanted greater than or equal to 1024; correct server.port"),
    ({"prot": 8000}, "did you mean 'port'?"),
    ({"api_key": "s3cret"}, "ws03: server.api_key: seen an unknown key"),
    ({"key": "s3cret"}, "ws03: server.key: seen {}, wanted file or command, and not both; correct server.key"),
    ({"key": {"value": "s3cret"}}, "ws03: server.key.value: seen an unknown key"),
    ({"key": {}}, "wanted file or command, and not both"),
    ({"key": {"command": []}}, "ws03: server.key.command: seen []"),
    ({"host": "0.0.0.0", "key": False}, "ws03: server.key"),
])  # fmt: skip
def test_nobody_is_served_without_a_key_by_mistake(server: dict[str, object], line: str) -> None:
    (found,) = refusal({"server": server})
    assert line in found
    assert "s3cret" not in found


@pytest.mark.parametrize(("host", "front"), [
    ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("0.0.0.0", "0.0.0.0"), ("::", "[::]"),
])  # fmt: skip
def test_with_a_key_the_server_itself_stays_behind_what_asks_for_it(host: str, front: str) -> None:
    server = config.parse({"server": {"host": host, "key": {"command": ["pass", "key"]}}}, "ws03").server
    assert (server.url, server.front) == ("http://127.0.0.1:30001", f"{front}:30000")


def test_without_a_key_it_is_asked_itself() -> None:
    for host, shown in (("127.0.0.2", "127.0.0.2"), ("::1", "[::1]")):
        server = config.Server(host=host)
        assert (server.url, server.front) == (f"http://{shown}:30000", None)
