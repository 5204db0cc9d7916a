#!/usr/bin/env bash
# Installs what the tests need, builds, and runs them. See --help.
set -euo pipefail

usage() {
  cat << 'TEXT'
usage: tools/test.sh [--nightly | --asan | --tsan | --cuda]

  (nothing)  Release build, tests labelled fast, then slow
  --nightly  the same, then those labelled nightly (fuzzing, kills, mutations), then --tsan; an hour
             or more. Fuzzing takes its seed from SLUICE_FUZZ_SEED, the date when that is not set
  --asan     AddressSanitizer and UndefinedBehaviorSanitizer, fast only
  --tsan     ThreadSanitizer, fast only
  --cuda     compiles the CUDA sources, runs nothing

Builds in build/test, build/asan, build/tsan or build/cuda of this clone. Packages that are missing
are installed with apt (with sudo when not root). Exit status 0 when everything passed.
TEXT
}

kind=test
if [ $# -gt 1 ]; then
  usage >&2
  exit 2
fi
case "${1:-}" in
  "") ;;
  --nightly | --asan | --tsan | --cuda) kind=${1#--} ;;
  -h | --help)
    usage
    exit 0
    ;;
  *)
    usage >&2
    exit 2
    ;;
esac

cd "$(dirname "${BASH_SOURCE[0]}")/.."
# shellcheck source=tools/lib/packages.sh
source tools/lib/packages.sh

options=(-DSLUICE_CUDA=OFF -DCMAKE_BUILD_TYPE=Release)
labels=(fast slow)
build=build/$kind
case $kind in
  nightly)
    labels=(fast slow nightly)
    build=build/test
    export SLUICE_FUZZ_SEED=${SLUICE_FUZZ_SEED:-$(date +%Y%m%d)}
    echo "== SLUICE_FUZZ_SEED=$SLUICE_FUZZ_SEED"
    ;;
  asan)
    options=(-DSLUICE_CUDA=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSLUICE_SANITIZE=address)
    labels=(fast)
    ;;
  tsan)
    options=(-DSLUICE_CUDA=OFF -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSLUICE_SANITIZE=thread)
    labels=(fast)
    ;;
  cuda)
    if [ -z "$(find kernels engine -name '*.cu' -print -quit)" ]; then
      echo "== No CUDA sources in this tree: nothing to compile"
      exit 0
    fi
    options=(-DSLUICE_CUDA=ON -DCMAKE_BUILD_TYPE=Release)
    labels=()
    ;;
esac

install_missing "${build_packages[@]}" libgtest-dev clang-format python3
if command -v ccache > /dev/null; then
  options+=(-DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
fi

echo "== Configuring $build (${options[*]})"
cmake -S . -B "$build" -G Ninja -DSLUICE_TESTS=ON -DSLUICE_TOOLS=ON "${options[@]}" > /dev/null
echo "== Building"
cmake --build "$build"
for label in "${labels[@]}"; do
  echo "== Tests labelled $label"
  ctest --test-dir "$build" -L "^$label\$" --output-on-failure --no-tests=error -j "$(nproc)"
done
if [ "$kind" = nightly ]; then
  exec tools/test.sh --tsan
fi
echo "== All passed"
