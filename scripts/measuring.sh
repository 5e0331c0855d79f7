# What the scripts that measure begin with. They source it, with the variable `takes` set to the least and the most
# arguments that they take (`DATA [PYTHON]` if it is not set), and `preset` to what is built.
# Sets `data` and `python`, `programs`, which it builds, and `runs`, a folder that is removed when they end.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
read -r least most <<< "${takes:-1 2}"
if [[ $# -lt $least || $# -gt $most || ${1:-} == -* ]]; then
  sed -n '2,6s/^# \{0,1\}//p' "scripts/${0##*/}"
  exit 2
fi
data=${1:-}
python=${2:-}
preset=${preset:-benchmarks}
programs=build/$preset/bin
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
mkdir -p docs/measurements docs/figures

scripts/setup.sh --for-benchmarks
scripts/build.sh "$preset"

# say TEXT: prints it to the terminal, also while standard output is a page.
exec 3>&1
say() { echo "$1" >&3; }

# begin_page TITLE [NAME]: sets `page` to docs/measurements/NAME.md, after the script if no name is given, and says there
# what made it. Standard output is that page from then on.
begin_page() {
  local machine script=${0##*/}
  machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
  page=${script#measure_}
  page=docs/measurements/${2:-${page%.sh}}.md
  exec > "$page"
  printf '# %s\n\nMade by `scripts/%s` on %s: %s, commit %s.\n' "$1" "$script" "$(date -u +%F)" "$machine" \
    "$(git rev-parse --short HEAD)"
}

# train NAME PROGRAM FLAGS…: ten epochs on the virtual clock, with the flags in `training` too.
training=()
train() {
  say "measuring: $1"
  "$programs/$2" --data "$data" --epochs 10 --optimizer adam --clock virtual --out "$runs/$1" "${training[@]}" \
    "${@:3}" > "$runs/$1.log"
}

# epochs_of NAME: the lines that this training printed.
epochs_of() {
  printf '\nThe epochs of `%s`:\n\n```text\n' "$1"
  grep '^Epoch:' "$runs/$1.log"
  printf '```\n'
}
