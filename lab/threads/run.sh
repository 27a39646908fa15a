#!/bin/sh
# Compiles pool_bench once for each pool and prints the table of notes.md. Needs libtbb-dev and libpthreadpool-dev.
set -e
cd "$(dirname "$0")/../.."
build=build/lab-threads
mkdir -p "$build"
compile() { # name, flags and sources
  name=$1
  shift
  g++ -std=c++20 -O2 lab/threads/pool_bench.cc -o "$build/$name" "$@" -ldl -pthread
}
compile openmp -DPOOL_OPENMP -fopenmp
compile tbb -DPOOL_TBB -ltbb
compile spin -DPOOL_PTHREADPOOL -lpthreadpool
compile yield -DPOOL_PTHREADPOOL -DPOOL_YIELD -lpthreadpool
compile rmsnorm -Iinclude -Isrc src/cpu/threads.cc -lpthreadpool
echo '| pool | first call | warm median | warm 99 % | after 10 ms | CPU burnt | malloc/call | after fork | nested |' \
  'no threads | 2 callers | 8 callers |'
echo '|---|---|---|---|---|---|---|---|---|---|---|---|'
for name in openmp tbb spin yield rmsnorm; do "$build/$name" || echo "| $name | died |"; done
