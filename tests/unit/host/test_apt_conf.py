"""apt.conf(5) as apt itself reads it: every example is also shown to `apt-config`."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ktfleet.host.probe import apt_conf, values
from tests.trees import put
from tests.unit.host.probed import state

APT = pytest.mark.skipif(shutil.which("apt-config") is None, reason="needs apt")
LIST = "Unattended-Upgrade::Package-Blacklist"


def apt_dump(folder: Path) -> tuple[bool, list[tuple[str, str]]]:
    """Whether apt likes the files below etc/apt, and what it takes from them: option in lower case, value."""
    main = folder / "apt.conf"
    main.write_text(f'Dir::Etc "{folder}/etc/apt";\n')
    command = ["apt-config", "dump", "--format", "%f\x01%v\x02%n"]
    done = subprocess.run(
        command, capture_output=True, text=True, env={"APT_CONFIG": str(main), "PATH": os.environ["PATH"]}
    )
    pairs = (row.strip("\n").partition("\x01") for row in done.stdout.split("\x02\n"))
    return done.returncode == 0, [(name.lower(), value) for name, _, value in pairs if name.lower().startswith("x")]


def our_dump(text: str) -> tuple[bool, list[tuple[str, str]]]:
    """The same of one file by the probe's parser, in the order of apt's tree."""
    options = apt_conf.AptOptions()
    good = True
    try:
        apt_conf.parse_apt_conf(text, options)
    except values.ReadError:
        good = False
    children: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for path in options.values:
        children.setdefault(path[:-1], []).append(path)

    def walk(place: tuple[str, ...]) -> list[tuple[str, str]]:
        below = children.get(place, [])
        name = "::".join("" if part.startswith("\0") else part for part in place)
        return [(name, options.values.get(place, "")), *(row for path in below for row in walk(path))]

    return good, [row for row in walk(())[1:] if row[0].startswith("x")]


EXAMPLES = [
    'X::A "v";',
    'x::a "1"; X::A "2"; X::b "3";',
    'X { A "v"; B { C "w"; }; };',
    'X::L:: "a"; X::L:: "b c";',
    'X::L { "a"; "b"; };',
    'X::L { "a"; };\nX::L { "b"; };\n#clear X::L;\nX::L { "c"; };',
    'X::A "v" ; // comment\nX::B "//no"; # comment\nX::C "a#b";',
    '/* one */ X::A "1"; /* two\n X::B "2";\n three */ X::C "3";',
    'X::A "1" /* in */ ;',
    "X::A v; X::B 12;",
    'X::A "a" "b";',
    'X::A\n  "v"\n;',
    'X::A "50%";X::B 50%41;',
    "X { };",
    'X "own" { A "v"; };',
    'X::"q" "v";',
    'X::A[b c] "v";',
    'X::A "v"',
    'X::A "v" junk more;',
    '{ "v"; };',
    "X::A { \"v\"; }\nX::B \"w\";",
    '#clear;',
    '#unknown X; X::A "v";',
    'X::A "tab\there";',
    'X::A "a;b{c}d";',
    "X::A \"open;\nX::B \"v\";",
    '} X::A "v";',
    'X::::A "v"; X::A::::B "w";',
    'X::A "";',
    "X;",
]  # fmt: skip


@APT
@pytest.mark.parametrize("text", EXAMPLES)
def test_apt_reads_the_same(tmp_path: Path, text: str) -> None:
    put(tmp_path, "/etc/apt/apt.conf.d/1", text)
    (good, ours), (liked, theirs) = our_dump(text), apt_dump(tmp_path)
    assert good == liked
    assert not good or ours == theirs


STATEMENTS = st.sampled_from(
    ['X::A "1";', "x::a 2;\n", 'X::L { "x"; "y z"; };', 'X::L:: "z";\n', "#clear X::A;", "#clear X::L;\n", "X { B {",
     "}; };", 'A "3"; ', "X::C\n", '"v" "w"; ', "// X::D 4;\n", "# } \n", "/* X::E 5;\n",
     "*/", 'X::F "/*6*/";', "X::%41 7;"]
)  # fmt: skip
PIECES = st.sampled_from(
    ["X", "X::B::", "::", '"', "word", "{", "}", "};", ";", " ", "\n", "//", "/*", "*/", "#", "[", "]", "\t"]
)
CONF = st.lists(st.one_of(STATEMENTS, STATEMENTS, STATEMENTS, PIECES), max_size=12).map("".join)


@APT
@settings(max_examples=40, deadline=None)
@given(CONF)
def test_apt_reads_any_file_the_same(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    """apt refuses to go on after an error, so it is only known that it is one."""
    folder = tmp_path_factory.mktemp("apt")
    put(folder, "/etc/apt/apt.conf.d/1", text)
    (good, ours), (liked, theirs) = our_dump(text), apt_dump(folder)
    assert good == liked
    assert not good or ours == theirs


FILES = (
    "10a",
    "20b.conf",
    "30c.disabled",
    ".40d",
    "50e~",
    "60f.conf.dpkg-old",
    "70-g_h:i",
    "B",
    "a.b.conf",
    "9.",
    "x y",
)


@APT
def test_the_files_that_apt_reads(tmp_path: Path) -> None:
    """By name, and apt.conf last."""
    for name in FILES:
        put(tmp_path, f"/etc/apt/apt.conf.d/{name}", f'X::L:: "{name}"; X::Last "{name}";')
    put(tmp_path, "/etc/apt/apt.conf", 'X::Last "main";')
    seen = state(tmp_path, apt=["x::l", "X::Last", "X::None"])
    _, rows = apt_dump(tmp_path)
    assert seen.apt == {"x::l": " ".join(value for name, value in rows if name == "x::l::"), "X::Last": "main"}
    assert seen.apt["x::l"] == "10a 20b.conf 70-g_h:i B a.b.conf"


def test_what_the_plan_asks(tree: Path) -> None:
    """A list that holds only comments is not set; a broken file is named, the others count."""
    text = (
        'Unattended-Upgrade::Package-Blacklist {\n    // "linux-";\n};\nUnattended-Upgrade::Automatic-Reboot "false";\n'
    )
    put(tree, "/etc/apt/apt.conf.d/50unattended-upgrades", text)
    asked = [LIST, "Unattended-Upgrade::Automatic-Reboot", "DPkg::Lock::Timeout"]
    assert state(tree, apt=asked).apt == {"Unattended-Upgrade::Automatic-Reboot": "false"}
    put(tree, "/etc/apt/apt.conf.d/51", f'{LIST} {{ "nvidia"; "linux-image"; }};')
    put(tree, "/etc/apt/apt.conf.d/52", 'DPkg::Lock::Timeout "60";\n{ broken')
    seen = state(tree, apt=asked)
    assert seen.apt == {
        LIST: "nvidia linux-image",
        "Unattended-Upgrade::Automatic-Reboot": "false",
        "DPkg::Lock::Timeout": "60",
    }
    assert seen.unreadable["/etc/apt/apt.conf.d/52"] == "line 2: block without a name"


def test_an_include_is_named(tree: Path) -> None:
    put(tree, "/etc/apt/apt.conf", '#include "/etc/apt/other";\n')
    why = state(tree, apt=["X"]).unreadable["/etc/apt/apt.conf"]
    assert re.match("line 1: directive that is not followed: seen '#include'", why)
