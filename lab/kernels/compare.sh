#!/usr/bin/env bash
# Two builds of the command line in turns, on CPU 1: the least time of each, in ns an element, and their quotient.
# Usage: lab/kernels/compare.sh BEFORE AFTER ROWSxCOLS OP..   BEFORE and AFTER are rmsnorm programs
set -euo pipefail
[ $# -ge 4 ] || { sed -n '2,3s/^# //p' "$0" >&2; exit 2; }
before=$1 after=$2 shape=$3
shift 3
for turn in 1 2 3 4 5; do
  for op in "$@"; do
    for which in before after; do
      taskset -c 1 "${!which}" bench "$op" --shapes "$shape" --layout dense --repeats 5 --json |
        sed -E 's/.*"ns":([0-9.e+]+).*/\0 \1/; s/^.*"op":"([^"]*)".*"type":"([^"]*)".* ([0-9.e+]+)$/\1 \2 \3/' |
        sed "s/^/$which /"
    done
  done
done | awk -v shape="$shape" '
  BEGIN { split(shape, size, "x"); elements = size[1] * size[2] }
  { key = $2 " " $3; if (!(($1, key) in least) || $4 < least[$1, key]) least[$1, key] = $4; seen[key] = 1 }
  END {
    for (key in seen) {
      b = least["before", key] / elements
      a = least["after", key] / elements
      printf "%-32s %s  %.3f -> %.3f ns  %.2f\n", key, shape, b, a, b / a
    }
  }' | sort
