#!/usr/bin/env bash
# Builds rows_bench against the release build and runs it on CPU 1, alone. Usage: lab/kernels/run.sh [part of a case's
# name]
set -euo pipefail
cd "$(dirname "$0")/../.."
cmake --preset release > /dev/null
cmake --build build/release --target rmsnorm_static
mkdir -p build/lab-kernels
g++ -std=c++20 -O2 -Wall -Wextra -Iinclude -Isrc lab/kernels/rows_bench.cc build/release/librmsnorm.a -lpthreadpool \
  -o build/lab-kernels/rows_bench
taskset -c 1 build/lab-kernels/rows_bench "$@"
