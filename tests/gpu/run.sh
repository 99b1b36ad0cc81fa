#!/usr/bin/env bash
# Runs the GPU measurement on a machine with an NVIDIA card, from a checkout, as `deploy` would, and keeps what it
# says: tests/gpu/run.sh [ARCH]     (default 90a, an H200; an RTX 5090 is 120a)
#
# Needs python3 (3.8 or newer) and the driver; no network, nothing of ktfleet installed. Writes into $OUT (default:
# ./gpu-out) and prints a summary. What is missing is said in the JSON, not by a failure.
#   gpu.json        the measurement under load, as ktfleet/measure/gpu_record.py types it
#   idle.json       the same without load
#   wrong.json      under load, built for another architecture than the card's: "no kernel image is available"
#   tree.json       the files of /sys, /proc and /etc that it reads, path -> text
#
# PYNVML: a folder with pynvml.py of nvidia-ml-py, as .venv/lib/python3*/site-packages of a checkout has it. Without
# PYNVML the python3 of that machine has to have nvidia-ml-py. PYTHON, CUDA: another interpreter, another toolkit.
set -uo pipefail
cd "$(dirname "$0")/../.."
arch=${1:-90a}
out=${OUT:-gpu-out}
mkdir -p "$out"

find_python() {
    local name
    for name in ${PYTHON:+"$PYTHON"} python3 /usr/bin/python3; do
        if [ -n "${PYNVML:-}" ] || "$name" -I -c 'import pynvml' 2>/dev/null; then
            echo "$name"
            return
        fi
    done
    echo python3 # the measurement says that pynvml is missing
}

find_toolkit() {
    local folder nvcc
    nvcc=$(readlink -f "$(command -v nvcc || echo /nowhere)")
    for folder in ${CUDA:+"$CUDA"} ${CUDA_HOME:+"$CUDA_HOME"} /usr/local/cuda /usr/local/cuda-* "${nvcc%/bin/nvcc}"; do
        if [ -x "$folder/bin/nvcc" ]; then
            echo "$folder"
            return
        fi
    done
    echo /usr/local/cuda
}

python=$(find_python)
toolkit=$(find_toolkit)
measure=("$python" -I ktfleet/measure/gpu.py --toolkit "$toolkit" ${PYNVML:+--pynvml "$PYNVML"})
other=120a
[ "$arch" != 120a ] || other=90a

echo "==> $("$python" --version 2>&1) at $(command -v "$python"), toolkit $toolkit, arch $arch"
nvidia-smi -L 2>&1 | head -3
for step in "idle:" "gpu:--load --arch $arch" "wrong:--load --arch $other"; do
    name=${step%%:*}
    read -ra options <<<"${step#*:}"
    began=$SECONDS
    timeout -k 10 400 "${measure[@]}" "${options[@]}" >"$out/$name.json" 2>"$out/$name.err"
    echo "==> $name.json: exit $?, $((SECONDS - began)) s, $(wc -c <"$out/$name.json") bytes"
    cat "$out/$name.err"
    [ -s "$out/$name.err" ] || rm "$out/$name.err"
done

"$python" -I - "$out" <<'PYTHON'
import glob, json, os, sys

out = sys.argv[1]
patterns = (
    *("/sys/bus/pci/devices/*/" + name for name in (
        "vendor", "class", "device", "numa_node", "current_link_width", "current_link_speed", "max_link_width",
        "max_link_speed", "local_cpulist", "resource")),
    "/sys/module/nvidia/version", "/proc/driver/nvidia/version", "/proc/driver/nvidia/params",
    "/sys/devices/system/node/online", "/proc/sys/kernel/osrelease", "/etc/environment", "/etc/os-release",
)
tree = {}
for path in sorted(path for pattern in patterns for path in glob.glob(pattern)):
    folder = os.path.dirname(path)
    try:
        ours = not path.startswith("/sys/bus/pci") or open(folder + "/vendor").read().strip() == "0x10de"
        if ours:
            tree[path] = open(path, errors="replace").read()[:8192]
        link = folder + "/driver"
        if ours and os.path.islink(link):
            tree[link] = "-> " + os.readlink(link)
    except OSError as error:
        tree[path] = "! " + str(error.strerror)
tree["/boot"], tree["/lib/modules"] = (
    " ".join(sorted(os.listdir(path))) if os.path.isdir(path) else "! none" for path in ("/boot", "/lib/modules"))
with open(os.path.join(out, "tree.json"), "w") as file:
    json.dump(tree, file, indent=1)
print("==> tree.json: %d files" % len(tree))


def show(name):
    try:
        with open(os.path.join(out, name)) as file:
            record = json.load(file)
    except (OSError, ValueError) as error:
        return print("==> %s: %s" % (name, error))
    print("==> " + name)
    for key, value in record.get("driver", {}).items():
        print("   driver.%s: %s" % (key, json.dumps(value)))
    for card in record.get("cards") or ():
        for key, value in card.items():
            print("   card %d %s: %s" % (card["index"], key, json.dumps(value)))
    for key in ("kernel_build", "kernel_log", "toolkit", "unreadable"):
        print("   %s: %s" % (key, json.dumps(record.get(key))[:1500]))


show("gpu.json")
show("wrong.json")
PYTHON
