# src/cpu/*kernels.cc are compiled once for each instruction set. A set is kept when the compiler and the assembler take
# its flags; the flags reach no other file, so the library runs on any CPU of the architecture.
include(CheckCXXSourceCompiles)

set(RMSNORM_KERNEL_SOURCES
  src/cpu/backward_kernels.cc
  src/cpu/channel_kernels.cc
  src/cpu/gated_rms_norm_kernels.cc
  src/cpu/kernels.cc
  src/cpu/qk_norm_rope_kernels.cc
  src/cpu/quantize_kernels.cc
  src/cpu/slice_sum_kernels.cc)
set(RMSNORM_KERNEL_TARGETS "") # names, best first
set(RMSNORM_KERNEL_OBJECTS "") # their objects, as generator expressions

# The sanitizer builds take a few, because each set is a minute of compiling.
set(RMSNORM_ONLY_TARGETS "" CACHE STRING "Build these kernels only, for instance avx2;scalar; empty: all")
# Instrumented and optimised kernels take minutes to compile, and their tests are short.
set(RMSNORM_KERNEL_OPTIONS "" CACHE STRING "More compile options for the kernels, for instance -O0")

# rmsnorm_add_target(<name> <flags> <source that needs them>)
function(rmsnorm_add_target name flags probe)
  if(RMSNORM_ONLY_TARGETS AND NOT name IN_LIST RMSNORM_ONLY_TARGETS)
    return()
  endif()
  string(TOUPPER "${name}" upper)
  set(CMAKE_REQUIRED_FLAGS "${flags}")
  check_cxx_source_compiles("${probe}" RMSNORM_HAVE_${upper})
  if(NOT RMSNORM_HAVE_${upper})
    message(STATUS "rmsnorm: target ${name} left out: the compiler does not take ${flags}")
    return()
  endif()
  separate_arguments(flag_list UNIX_COMMAND "${flags}")
  add_library(rmsnorm_${name} OBJECT ${RMSNORM_KERNEL_SOURCES})
  target_include_directories(rmsnorm_${name} PRIVATE include src)
  target_compile_definitions(rmsnorm_${name} PRIVATE RMSNORM_TARGET=${name} RMSNORM_TARGET_IS_${upper})
  target_compile_options(rmsnorm_${name} PRIVATE -ffp-contract=off -fno-math-errno -Wall -Wextra ${flag_list})
  # -O3 makes no kernel faster (lab/kernels/notes.md) and takes four times as long to compile.
  target_compile_options(rmsnorm_${name} PRIVATE $<$<CONFIG:Release>:-O2> ${RMSNORM_KERNEL_OPTIONS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC 12 warns about its own intrinsics, which start from undefined registers.
    target_compile_options(rmsnorm_${name} PRIVATE -Wno-uninitialized -Wno-maybe-uninitialized)
  endif()
  set_target_properties(rmsnorm_${name} PROPERTIES POSITION_INDEPENDENT_CODE ON CXX_VISIBILITY_PRESET hidden
                                                   VISIBILITY_INLINES_HIDDEN ON)
  set(RMSNORM_KERNEL_TARGETS ${RMSNORM_KERNEL_TARGETS} ${name} PARENT_SCOPE)
  set(RMSNORM_KERNEL_OBJECTS ${RMSNORM_KERNEL_OBJECTS} $<TARGET_OBJECTS:rmsnorm_${name}> PARENT_SCOPE)
endfunction()

if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64|amd64)$")
  set(avx512 "-mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c -mprefer-vector-width=512")
  rmsnorm_add_target(avx512 "${avx512} -mavx512bf16"
    "#include <immintrin.h>\nint main() { __m512 a = _mm512_setzero_ps(); return _mm512_cvtne2ps_pbh(a, a)[0] != 0; }")
  rmsnorm_add_target(avx512_base "${avx512}"
    "#include <immintrin.h>\nint main() { return _mm512_cvtsi512_si32(_mm512_setzero_si512()); }")
  rmsnorm_add_target(avx2 "-mavx2 -mfma -mf16c"
    "#include <immintrin.h>\nint main() { return _mm256_extract_epi32(_mm256_setzero_si256(), 0); }")
  rmsnorm_add_target(sse4 "-msse4.1"
    "#include <smmintrin.h>\nint main() { return _mm_extract_epi32(_mm_setzero_si128(), 0); }")
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  rmsnorm_add_target(neon "" "#include <arm_neon.h>\nint main() { return vgetq_lane_s32(vdupq_n_s32(0), 0); }")
endif()
rmsnorm_add_target(scalar "" "int main() { return 0; }")
# The list as C++ reads it: RMSNORM_TARGETS(DO) is DO(name) for each.
set(list "")
foreach(name IN LISTS RMSNORM_KERNEL_TARGETS)
  string(APPEND list " DO(${name})")
endforeach()
file(CONFIGURE OUTPUT "${CMAKE_CURRENT_BINARY_DIR}/generated/cpu/target_list.h"
     CONTENT "// Written by cmake/RmsnormTargets.cmake.\n#define RMSNORM_TARGETS(DO)${list}\n")
message(STATUS "rmsnorm: targets ${RMSNORM_KERNEL_TARGETS}")
