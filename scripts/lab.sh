#!/usr/bin/env bash
# The labs of the chapters: write the blanks of chapters/NN_*/lab, and have them graded.
#
#   scripts/lab.sh start 3            what to open and what to write in lab 3
#   scripts/lab.sh check 3            builds what lab 3 needs, and grades it
#   scripts/lab.sh hint 3 1           the first of its three hints; "hint 4 1 2" is that of part 2 of lab 4
#   scripts/lab.sh draw 5             draws the schedule that you wrote in lab 5
#   scripts/lab.sh score              the points of all labs
#
# For teachers (docs/teaching.md):
#   scripts/lab.sh grade FOLDER…      grades hand-ins, each a folder with the blanks of one or more labs; the results are
#                                     in runs/grades, or in the folder of --out
#   scripts/lab.sh new-class SEED     changes sizes and data for a class; 0 is as in the repository
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# usage [CODE]: prints the comment above, as an error unless the exit code is 0.
usage() {
  local code=${1:-2}
  sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' scripts/lab.sh >&$((code == 0 ? 1 : 2))
  exit "$code"
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

# Builds the graders of these labs, and nothing else. Says so if that takes long.
build_labs() {
  if [[ ! -e $build/build.ninja ]]; then
    scripts/setup.sh
    scripts/build.sh release --target "$1" || return 1
  fi
  local steps
  steps=$(ninja -C "$build" -n "$@" 2> /dev/null | grep -c '^\[' || true)
  if [[ $steps -gt 30 ]]; then
    echo "building $1: $steps steps, some minutes"
  elif [[ ! -e $build/bin/$1 ]]; then
    echo "building $1: $steps steps, less than a minute"
  fi
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
  echo "The first check builds the library: up to ten minutes on two cores; start it now, and read on. For the chapter's"
  echo "own commands run scripts/quickstart.sh (or scripts/build.sh release --target programs and"
  echo "build/release/bin/make_generated_data data/generated) once."
  echo "When you are stuck, the first of three hints:"
  echo "  scripts/lab.sh hint $1 1"
  echo "Grade it as often as you like:"
  echo "  scripts/lab.sh check $1"
  echo "What your code prints is shown below each criterion that fails."
}

check() {
  lab_folder "$1" > /dev/null
  build_labs "lab_$1" || { echo "lab $1: 0 points: it does not compile; the errors are above" && exit 1; }
  "$build/bin/lab_$1"
}

# hint LAB LEVEL [PART]
hint() {
  local folder
  folder=$(lab_folder "$1")
  local text
  text=$(awk -v level="$2" -v part="${3:-}" '
    /^## Part / { in_part = $3 }
    /^<details><summary>/ && index($0, "Hint " level ":") && (part == "" || part == in_part) {
      gsub(/<[^>]*>/, "")
      printf "%s%s\n", in_part == "" ? "" : "Part " in_part ". ", $0
      shown = 1
      next
    }
    /^<\/details>/ { shown = 0 }
    shown' "$folder/hints.md")
  if [[ -z $text ]]; then
    echo "lab.sh: lab $1 has no such hint: expected a level from 1 to 3 and, in labs with parts, the number of one; got ${*:2}" >&2
    exit 2
  fi
  echo "$text"
}

draw() {
  lab_folder "$1" > /dev/null
  build_labs "lab_$1" || { echo "lab $1: it does not compile; the errors are above" && exit 1; }
  "$build/bin/lab_$1" --draw
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
  hint/3 | hint/4) hint "${@:2}" ;;
  draw/2) draw "$2" ;;
  score/1) score ;;
  new-class/2) new_class "$2" ;;
  start/1 | check/1 | draw/1)
    echo "lab.sh: which lab? Expected a number, such as: scripts/lab.sh $1 3" >&2
    exit 2
    ;;
  hint/1 | hint/2)
    echo "lab.sh: which hint? Expected a lab and a level from 1 to 3, such as: scripts/lab.sh hint 3 1" >&2
    exit 2
    ;;
  --help/1 | -h/1) usage 0 ;;
  grade/0 | grade/1) usage ;;
  grade/*) grade "${@:2}" ;;
  *) usage ;;
esac
