#!/usr/bin/env bash
# Configures and builds one preset of CMakePresets.json. The output goes to a log file; its end is shown on failure.
#
#   scripts/build.sh                            the preset release, into build/release
#   scripts/build.sh asan                       another preset
#   scripts/build.sh release -DNAME=VALUE …     with CMake variables
#   scripts/build.sh release --target NAME …    only these targets: programs leaves out the tests
#   scripts/build.sh playground                 the playground, build/playground/playground.html; needs emscripten and node
#   scripts/build.sh docs                       the site, into build/docs/html; what it needs from PyPI, into build/site-venv
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

preset=${1:-release}
if [[ $preset == -* ]]; then
  echo "usage: scripts/build.sh [PRESET [--target NAME …] [-DNAME=VALUE …]]; PRESET is one of CMakePresets.json" >&2
  exit 2
fi
targets=()
variables=()
for argument in "${@:2}"; do
  if [[ $argument == -D* ]]; then
    variables+=("$argument")
  else
    targets+=("$argument")
  fi
done
log=build/$preset.log
mkdir -p build
: > "$log"

# logged COMMAND…: runs it silently.
logged() {
  if ! "$@" >> "$log" 2>&1; then
    tail -n 60 "$log" >&2
    echo "failed: $*" >&2
    echo "the full output is in $PWD/$log" >&2
    exit 1
  fi
}

# Prints a line for every tenth of the steps that the log counts as [done/all], until it is stopped.
show_progress() {
  local last=0 tenth step
  while sleep 2; do
    step=$({ grep --only-matching '^\[[0-9]*/[0-9]*\]' "$log" || true; } | tail -n 1 | tr -d '[]')  # none at first
    tenth=$((10 * ${step:-0/1}))
    if [[ $tenth -gt $last && $tenth -lt 10 ]]; then
      last=$tenth
      echo "build: ${step/\// of } steps done after $SECONDS s"
    fi
  done
}

# What builds the site, once for each state of the list. Without it the API is built.
install_sphinx() {
  local list=docs/site/requirements.txt venv=build/site-venv
  ! cmp --silent "$list" "$venv/installed.txt" || return 0
  echo "build: installing Sphinx into $venv"
  rm -rf "$venv"
  if python3 -m venv "$venv" >> "$log" 2>&1 && "$venv/bin/pip" install --quiet --requirement "$list" >> "$log" 2>&1; then
    cp "$list" "$venv/installed.txt"
  else
    rm -rf "$venv"
    echo "build: Sphinx cannot be installed from PyPI ($PWD/$log says why), so only the API is built" >&2
  fi
}

if [[ $preset == docs ]]; then
  install_sphinx
  if command -v em++ > /dev/null && command -v node > /dev/null; then
    scripts/build.sh playground
  fi
fi
echo "build: configuring build/$preset"
logged cmake --preset "$preset" "${variables[@]}"
echo "build: building with $(nproc) jobs (minutes the first time; the log is $log)"
show_progress &
trap 'kill %1 2> /dev/null' EXIT
logged cmake --build --preset "$preset" -j "$(nproc)" "${targets[@]}"
echo "build: done after $SECONDS s"
