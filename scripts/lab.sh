#!/usr/bin/env bash
# The labs of the chapters: write the blanks of chapters/NN_*/lab, and have them graded.
#
#   scripts/lab.sh start 3            what to open and what to write in lab 3
#   scripts/lab.sh check 3            builds what lab 3 needs, and grades it
#   scripts/lab.sh score              the points of all labs
#
# For teachers (docs/teaching.md):
#   scripts/lab.sh grade FOLDER…      grades hand-ins, each a folder with the blanks of one or more labs; the results are
#                                     in runs/grades, or in the folder of --out
#   scripts/lab.sh new-class SEED     changes sizes and data for a class; 0 is as in the repository
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage() {
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' scripts/lab.sh >&2
  exit 2
}

build=build/release

labs() { printf '%s\n' chapters/0*/lab | sed 's|chapters/0\([0-9]\)_.*|\1|'; }

# lab_folder N: "chapters/03_gpipe/lab"
lab_folder() {
  local folder
  folder=$(echo chapters/0"$1"_*/lab)
  if [[ ! $1 =~ ^[0-9]$ || ! -d $folder ]]; then
    echo "lab.sh: there is no lab $1: expected one of $(labs | tr '\n' ' ')" >&2
    exit 2
  fi
  echo "$folder"
}

# Builds the graders of these labs, and nothing else. The first time this takes minutes, and says so.
build_labs() {
  if [[ ! -e $build/build.ninja ]]; then
    scripts/setup.sh
    scripts/build.sh release --target "$1"
  fi
  [[ -e $build/bin/$1 ]] || echo "building $1: minutes the first time"
  # Errors of the compiler are those of the student, so they are shown.
  ninja -C "$build" --quiet "$@" | { grep -v '^ninja: no work to do' || true; }
}

start() {
  local folder
  folder=$(lab_folder "$1")
  echo "Lab $1: read $folder/README.md first. What you write:"
  grep --files-with-matches 'throw NotWritten' "$folder"/*.cpp | sed 's/^/  /' || echo "  nothing: no blank is left in $folder"
  echo "The contracts, beside them:"
  printf '  %s\n' "$folder"/*.h
  echo "Grade it as often as you like:"
  echo "  scripts/lab.sh check $1"
}

check() {
  lab_folder "$1" > /dev/null
  build_labs "lab_$1" || { echo "lab $1: 0 points: it does not compile; the errors are above" && exit 1; }
  "$build/bin/lab_$1"
}

score() {
  local number
  for number in $(labs); do
    if build_labs "lab_$number" > /dev/null 2>&1; then
      "$build/bin/lab_$number" --points || true
    else
      echo "lab $number: 0 points: it does not compile; scripts/lab.sh check $number shows why"
    fi
  done
}

grade() {
  scripts/setup.sh --for-labs
  # shellcheck disable=SC2046  # one word per lab; with the solutions all is built that a hand-in is linked with
  build_labs $(labs | sed 's/.*/lab_&_solution/')
  exec python3 tests/labs/grade.py "$@"
}

new_class() {
  if [[ ! $1 =~ ^[0-9]{1,18}$ ]]; then
    echo "lab.sh: the seed of a class is a number: expected at most 18 digits, got $1" >&2
    exit 2
  fi
  echo "$((10#$1))" > tests/labs/class_seed.txt
  echo "tests/labs/class_seed.txt is $((10#$1)): give it to all students, and build again"
}

case ${1:-}/$# in
  start/2) start "$2" ;;
  check/2) check "$2" ;;
  score/1) score ;;
  new-class/2) new_class "$2" ;;
  grade/0 | grade/1) usage ;;
  grade/*) grade "${@:2}" ;;
  *) usage ;;
esac
