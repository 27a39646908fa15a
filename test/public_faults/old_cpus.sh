#!/bin/sh
# old_cpus.sh RMSNORM [QEMU]: the program on emulated CPUs that lack what this machine has. Each must choose the best
# target that it can run, and compute with it what the reference says; one computes all bits.
set -eu
rmsnorm=$1
qemu=${2:-}
if [ ! -x "$qemu" ]; then # empty where CMake found none
  echo "skipped: there is no qemu-x86_64"
  exit 77
fi
unset RMSNORM_TARGET RMSNORM_THREADS
built=$("$rmsnorm" info | sed -n '/^targets/,/^in use/p')
expected=$("$rmsnorm" check --bits | awk '{ print $2 }' | sort -u)
echo "expected: $expected"
[ "$(echo "$expected" | wc -l)" = 1 ]

runs() { # runs CPU TARGET: on that CPU the library chooses TARGET
  echo "$1: $2"
  case "$built" in
    *" $2 "*) ;;
    *) echo "  left out: not in this build" && return ;;
  esac
  chosen=$("$qemu" -cpu "$1" "$rmsnorm" info 2>&1 | sed -n 's/^in use   \([a-z0-9_]*\) .*/\1/p')
  if [ "$chosen" != "$2" ]; then
    echo "  chosen is $chosen; it must be $2"
    exit 1
  fi
  for type in f32 f16 bf16 f64; do
    "$qemu" -cpu "$1" "$rmsnorm" check add_layer_norm "x=3x1000:$type" w=f32 b=f32 2>/dev/null
  done
}
runs qemu64 scalar          # nothing above SSE3
runs Nehalem sse4           # x86-64-v2
runs SandyBridge sse4       # AVX alone is not enough
runs Haswell avx2           # x86-64-v3
runs Haswell,-xsave sse4    # an operating system that does not save AVX registers

case "$built" in *" sse4 "*)
  bits=$("$qemu" -cpu Nehalem "$rmsnorm" check --bits --target sse4 | awk '{ print $2 }')
  echo "bits: $bits"
  [ "$bits" = "$expected" ]
  ;;
esac
