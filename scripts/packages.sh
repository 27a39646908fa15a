# Which packages the commands of ./dev need, and how they are installed. Names are those of Debian 12 and Ubuntu 24.04.

build_packages=(g++ cmake ninja-build pkg-config libpthreadpool-dev libcli11-dev libfmt-dev nlohmann-json3-dev
  libprotobuf-dev protobuf-compiler)
test_packages=(git libgtest-dev libbenchmark-dev)
mpi_packages=(libopenmpi-dev openmpi-bin) # examples/mpi
python_packages=(python3-venv python3-dev)
lab_packages=("${mpi_packages[@]}" zlib1g-dev dataset-fashion-mnist fortunes-zh)
arm64_packages=(g++-aarch64-linux-gnu qemu-user)
# Libraries for the cross build, unpacked into build/arm64-root.
arm64_libraries=(libpthreadpool0:arm64 libpthreadpool-dev:arm64 libfmt9:arm64 libfmt-dev:arm64 libgtest-dev:arm64
  libcli11-dev nlohmann-json3-dev)

has_apt() { command -v apt-get >/dev/null && command -v dpkg-query >/dev/null; }

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

list_packages() {
  local name
  for name in "$@"; do
    if ! has_apt; then
      echo "$name"
    elif installed "$name"; then
      echo "$name: installed"
    else
      echo "$name: missing"
    fi
  done
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

install_packages() {
  local missing=() name
  if ! has_apt; then
    echo "This system has no apt-get. The following must be there already, under the names of Debian 12:"
    echo "  $*"
    return 0
  fi
  for name in "$@"; do
    installed "$name" || missing+=("$name")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    echo "Packages are missing and there is neither root nor sudo; install them and run this again: ${missing[*]}" >&2
    return 1
  fi
  echo "Installing ${missing[*]}"
  mkdir -p build
  if ! { refresh_package_lists && as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends "${missing[@]}"; } >build/install.log 2>&1; then
    cat build/install.log >&2
    return 1
  fi
}

lists_refreshed=
refresh_package_lists() { # once a run
  [ -n "$lists_refreshed" ] || as_root apt-get update -qq
  lists_refreshed=yes
}

# clang's sanitizer and fuzzer libraries carry its version in their package's name.
install_clang() {
  install_packages clang
  ! has_apt || install_packages "libclang-rt-$(clang -dumpversion | cut -d. -f1)-dev"
}

# Fetches arm64 libraries through an apt state of its own, so that the machine needs no foreign architecture.
fetch_arm64_libraries() {
  local root=$PWD/build/arm64-root state=$PWD/build/arm64-apt name
  [ ! -f "$root/complete" ] || return 0
  rm -rf "$root" "$state"
  mkdir -p "$root" "$state/lists/partial" "$state/cache/archives/partial"
  local options=(-qq -o "APT::Architectures::=arm64" -o "Dir::State::lists=$state/lists" -o "Dir::Cache=$state/cache"
    -o "APT::Sandbox::User=$(id -un)")
  apt-get "${options[@]}" update || return 1
  (cd "$state" && apt-get "${options[@]}" download "${arm64_libraries[@]}") || return 1
  for name in "$state"/*.deb; do
    dpkg-deb -x "$name" "$root" || return 1
  done
  rm -rf "$state"
  touch "$root/complete"
}
