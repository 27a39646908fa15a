#!/bin/sh
# run.sh CMAKE BUILD CC CXX: installs the build tree, moves what was installed, and uses it from there as strangers do:
# with find_package and with pkg-config, shared and static, from C and from C++.
set -eu
cmake=$1
build=$2
export CC="$3" CXX="$4"
here=$(cd "$(dirname "$0")" && pwd)
work="$build/test/install"
rm -rf "$work/first" "$work/prefix" "$work"/consumer-* "$work/programs"

DESTDIR= "$cmake" --install "$build" --prefix "$work/first" >"$work/install.log"
mv "$work/first" "$work/prefix" # nothing may depend on where it was installed

for shared in ON OFF; do
  tree="$work/consumer-$shared"
  "$cmake" -S "$here/consumer" -B "$tree" -DCMAKE_PREFIX_PATH="$work/prefix" -DBUILD_SHARED_LIBS=$shared
  "$cmake" --build "$tree"
  (cd "$tree" && "${cmake%cmake}ctest" --output-on-failure)
done
"$cmake" -S "$here/consumer_in_c" -B "$work/consumer-c" -DCMAKE_PREFIX_PATH="$work/prefix"
"$cmake" --build "$work/consumer-c"
"$work/consumer-c/use"

# Which library a program really uses: only a dynamically linked one names librmsnorm.so.
check_library() { # check_library shared|static PROGRAM
  kind=static
  if readelf -d "$2" | grep -q 'NEEDED.*librmsnorm\.so\.0\.1'; then kind=shared; fi
  if [ "$kind" != "$1" ]; then
    echo "$2 uses the $kind library; it must use the $1 one" >&2
    exit 1
  fi
}
check_library shared "$work/consumer-ON/rmsnorm_c"
check_library static "$work/consumer-OFF/rmsnorm_c"
check_library shared "$work/consumer-OFF/shared_cc"
check_library static "$work/consumer-ON/static_cc"

mkdir "$work/programs"
pc_dir=$(dirname "$(find "$work/prefix" -name rmsnorm.pc)")
export PKG_CONFIG_PATH="$pc_dir"
lib_dir=$(pkg-config --variable=libdir rmsnorm)
header_version=$(sed -n 's/^#define RMSNORM_VERSION "\(.*\)"/\1/p' "$work/prefix/include/rmsnorm/core.h")
test "$(pkg-config --modversion rmsnorm)" = "$header_version"
# shellcheck disable=SC2046 # flags are several words
{
  $CC "$here/consumer/use.c" -o "$work/programs/c_shared" $(pkg-config --cflags --libs rmsnorm)
  $CXX -std=c++20 "$here/consumer/use.cc" -o "$work/programs/cc_shared" $(pkg-config --cflags --libs rmsnorm)
  static_flags=$(pkg-config --static --cflags --libs rmsnorm | sed 's/-lrmsnorm/-l:librmsnorm.a/')
  $CC "$here/consumer/use.c" -o "$work/programs/c_static" $static_flags
  $CXX -std=c++20 "$here/consumer/use.cc" -o "$work/programs/cc_static" $static_flags
}
for program in c_shared cc_shared c_static cc_static; do
  echo "running $program"
  LD_LIBRARY_PATH="$lib_dir" "$work/programs/$program"
done
check_library shared "$work/programs/c_shared"
check_library static "$work/programs/cc_static"
