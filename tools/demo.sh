#!/usr/bin/env bash
# From a bare Debian machine to a table on real text. See --help.
set -euo pipefail

usage() {
  cat << 'TEXT'
usage: tools/demo.sh [--quick | --full] [--text packages | --text wordnet | --text FILE]

Installs what is missing with apt (with sudo when not root), builds the program, makes the text,
trains a static control and a routed model on it, and prints one table on held-out text.

  --quick   a short training: shows that everything works, decides nothing
  --full    every control, three seeds; takes hours, and also writes bench/results/
  --text    packages (default): the records of the archive's packages; wordnet: the glosses of
            WordNet; or any file, whose bytes are the tokens

Writes demo/PLAN-TEXT: checkpoints, metrics, report.md, results.json. Stop it with Ctrl-C whenever
you like: the same command goes on where it was, and does nothing twice.
TEXT
}

plan=main
text=packages
while [ $# -gt 0 ]; do
  case $1 in
    --quick | --full) plan=${1#--} ;;
    --text)
      [ $# -ge 2 ] || { usage >&2; exit 2; }
      text=$2
      shift
      ;;
    -h | --help)
      usage
      exit 0
      ;;
    *)
      usage >&2
      exit 2
      ;;
  esac
  shift
done
case $text in
  packages | wordnet) ;;
  *)
    [ -f "$text" ] || { echo "demo.sh: $text: no such file" >&2; exit 1; }
    text=$(realpath "$text")
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/lib/packages.sh
source tools/lib/packages.sh

install_missing "${build_packages[@]}"
options=(-DSLUICE_CUDA=OFF -DSLUICE_TESTS=OFF -DCMAKE_BUILD_TYPE=Release)
if command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi
echo "== Building the program in build/demo"
cmake -S . -B build/demo -G Ninja "${options[@]}" > /dev/null
cmake --build build/demo --target sluice_program
sluice=build/demo/sluice

mkdir -p demo
file=$text
name=$(basename "$text")
case $text in
  packages)
    file=demo/packages.txt
    if [ ! -f "$file" ]; then
      # A machine that never ran apt-get update knows its own packages only.
      if [ "$(apt-cache dumpavail 2> /dev/null | grep -c '^Filename: ' || true)" -lt 10000 ]; then
        echo "== Fetching the archive's package lists"
        update_lists
      fi
      echo "== Writing the text $file"
      "$sluice" corpus packages --out "$file"
    fi
    ;;
  wordnet)
    file=demo/wordnet.txt
    if [ ! -f "$file" ]; then
      install_missing wordnet-base
      echo "== Writing the text $file"
      "$sluice" corpus wordnet --out "$file"
    fi
    ;;
esac

results=()
if [ "$plan" = full ]; then
  results=(--results "bench/results/meta_attention_$name")
fi
echo "== Training and evaluating: $plan plan, text $file"
exec "$sluice" demo --plan "tools/demo/$plan.json" --text "$file" --out "demo/$plan-$name" \
  "${results[@]}"
