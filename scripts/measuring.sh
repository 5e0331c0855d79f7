# What the scripts that measure pipelines begin with; they source it, with the variables `page` set to what they write,
# and `least_arguments` (1 if it is not set) and `most_arguments` to how many arguments they take.
# Sets `programs`, which it builds (with the preset `preset`), and `runs`, a folder that is removed when they end.
if [[ $# -lt ${least_arguments:-1} || $# -gt $most_arguments || ${1:-} == -* ]]; then
  sed -n '2,7s/^# \{0,1\}//p' "$0"
  exit 2
fi
preset=${preset:-benchmarks}
programs=build/$preset/bin
runs=$(mktemp -d)
trap 'rm -rf "$runs"' EXIT
mkdir -p docs/measurements docs/figures

scripts/setup.sh --for-benchmarks
scripts/build.sh "$preset"

# begin_page TITLE: says what made the page.
begin_page() {
  local machine
  machine="$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1), $(nproc) cores"
  printf '# %s\n\nMade by `scripts/%s` on %s: %s, commit %s.\n' "$1" "${0##*/}" "$(date -u +%F)" "$machine" \
    "$(git rev-parse --short HEAD)" > "$page"
}
