#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json. The output goes to a log file; its end is shown on failure.
#
#   scripts/build.sh                            the preset release, into build/release
#   scripts/build.sh asan                       another preset
#   scripts/build.sh release -DNAME=VALUE …     with CMake variables
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
variables=("${@:2}")
log=build/$preset.log
mkdir -p build
: > "$log"

# logged COMMAND…: runs it silently.
logged() {
  if ! "$@" >> "$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "failed: $*" >&2
    echo "the whole output is in $PWD/$log" >&2
    exit 1
  fi
}

echo "build: configuring build/$preset"
logged cmake --preset "$preset" "${variables[@]}"
echo "build: building with $(nproc) jobs (minutes the first time; follow it with: tail -f $log)"
logged cmake --build --preset "$preset" -j "$(nproc)"
echo "build: done after $SECONDS s"
