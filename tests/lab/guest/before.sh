#!/bin/sh
# mmdebstrap's essential hook, before the kernel is unpacked: files that the package scripts read. $1: root, $2: guest/
set -eu
cp -r "$2/tree/." "$1/"
