#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json. The output goes to a log file; its end is shown on failure.
#
#   scripts/build.sh                            the preset release, into build/release
#   scripts/build.sh asan                       another preset
#   scripts/build.sh release -DNAME=VALUE …     with CMake variables
#   scripts/build.sh release --target NAME      only this target: programs leaves out the tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
if [[ $preset == -* ]]; then
  echo "usage: scripts/build.sh [PRESET [--target NAME] [-DNAME=VALUE …]]; PRESET is one of CMakePresets.json" >&2
  exit 2
fi
targets=()
variables=("${@:2}")
if [[ ${2:-} == --target ]]; then
  targets=(--target "$3")
  variables=("${@:4}")
fi
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
logged cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}"
echo "build: done after $SECONDS s"
