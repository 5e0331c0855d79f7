#!/usr/bin/env bash
# Everything that can be checked without a GPU: hours. Its record is docs/measurements/nightly.md, one row per step, which
# is written after every step. A step that passed is not run again until a commit changes something other than that page,
# so an interrupted night is continued by calling it again.
#
#   scripts/nightly.sh              the steps that have not passed at this commit; goes on after one that fails
#   scripts/nightly.sh STEP…        these steps, in any case
#   scripts/nightly.sh --list       the names of all steps
#
# Needs root (for packages and fresh systems) and the working tree as it was committed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source scripts/checks.sh

steps=(formatting build_without_warnings all_tests documentation one_definition walk_throughs levels_of_processors
  package cuda_architectures oldest_cuda sanitized_build mutated_inputs sanitized_tests all_races kills random_settings arm64
  fresh_debian_12 fresh_debian_13 fresh_ubuntu_24_04)
page=docs/measurements/nightly.md

case ${1:-} in
  --list)
    printf '%s\n' "${steps[@]}"
    exit
    ;;
  -*)
    sed -n '2,10s/^# \{0,1\}//p' "$0"
    exit 2
    ;;
esac
for step in "$@"; do
  if [[ " ${steps[*]} " != *" $step "* ]]; then
    echo "nightly: there is no step '$step'; --list names them" >&2
    exit 2
  fi
done
if ! git diff --quiet HEAD -- . ":!$page"; then
  echo "nightly: the working tree has changes that are not committed: commit them first, so that the page can name what was checked" >&2
  exit 2
fi

# row STEP: its row of the page; empty if it has none.
row() { grep "^| $1 |" "$page" 2> /dev/null || true; }

# has_passed STEP: whether it passed at a commit that differs from this one by the page at most.
has_passed() {
  local commit result
  IFS='|' read -r _ _ result commit _ <<< "$(row "$1")"
  [[ $result == " passed " ]] && git diff --quiet "${commit// /}" HEAD -- . ":!$page" 2> /dev/null
}

# new_row STEP STATUS: the row of a step that has just run.
new_row() {
  local result=passed seconds passed failed skipped
  [[ $2 == 0 ]] || result="**FAILED**"
  read -r seconds passed failed skipped < "$checks/$1.result"
  echo "| $1 | $result | $(git rev-parse --short HEAD) | $(date +%F) | $((seconds / 60)) min $((seconds % 60)) s | $passed | $failed | $skipped |"
}

# write_page STEP ROW: the page with that row in place of the step's old one.
write_page() {
  local name
  {
    cat << 'END'
# The nightly run

`scripts/nightly.sh` runs everything that can be checked without a GPU, and writes this page. A step's name is that of its
function in `scripts/checks.sh`. The columns on the right count the tests that CTest ran; the other steps check by programs
of their own.

| step | result | commit | date | time | passed | failed | skipped |
|---|---|---|---|---:|---:|---:|---:|
END
    for name in "${steps[@]}"; do
      if [[ $name == "$1" ]]; then echo "$2"; else row "$name"; fi
    done | grep .
    echo
    echo "On $(nproc) cores of an $(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)."
  } > "$checks/nightly.md"
  mv "$checks/nightly.md" "$page"
}

run_step set_up_for_all
failed_steps=()
for step in "${steps[@]}"; do
  if [[ $# -gt 0 ]]; then
    [[ " $* " == *" $step "* ]] || continue
  elif has_passed "$step"; then
    echo "== $step: has passed"
    continue
  fi
  status=0
  run_step "$step" || status=$?
  [[ $status == 0 ]] || failed_steps+=("$step")
  write_page "$step" "$(new_row "$step" "$status")"
done
if [[ ${#failed_steps[@]} -gt 0 ]]; then
  echo "nightly: failed: ${failed_steps[*]}; their output is in $checks/STEP.log" >&2
  exit 1
fi
