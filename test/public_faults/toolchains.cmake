# cmake -DSOURCE=.. -DWORK=.. -DCC=.. -DCXX=.. -DGENERATOR=.. -P toolchains.cmake: compilers and assemblers that lack
# instruction sets leave out those targets only, and say so; no flag of an instruction set reaches another file.

cmake_minimum_required(VERSION 3.25)

file(REMOVE_RECURSE "${WORK}")
file(MAKE_DIRECTORY "${WORK}/bin" "${WORK}/old_binutils")

function(write_program name text)
  file(WRITE "${WORK}/${name}" "#!/bin/sh\n${text}\n")
  file(CHMOD "${WORK}/${name}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endfunction()

# refusing_compiler(<name> <pattern>): the C++ compiler, but command lines of that shell pattern are errors.
function(refusing_compiler name pattern)
  write_program(bin/${name} "case \" $* \" in
${pattern}) echo 'unknown option' >&2; exit 1 ;;
esac
exec '${CXX}' \"$@\"")
endfunction()

# configure(<name> <arguments>..): the library alone; its output in `log`.
function(configure name)
  set(off "")
  foreach(part TOOLS TESTS BENCH EXAMPLES INSTALL)
    list(APPEND off -DRMSNORM_${part}=OFF)
  endforeach()
  execute_process(COMMAND "${CMAKE_COMMAND}" -G "${GENERATOR}" -S "${SOURCE}" -B "${WORK}/${name}" ${off}
                          "-DCMAKE_C_COMPILER=${CC}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_EXPORT_COMPILE_COMMANDS=ON ${ARGN}
                  OUTPUT_VARIABLE log ERROR_VARIABLE log RESULT_VARIABLE result)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${name}: configuring failed\n${log}")
  endif()
  set(log "${log}" PARENT_SCOPE)
endfunction()

function(expect_targets name)
  if(NOT log MATCHES "rmsnorm: targets ([^\n]*)\n" OR NOT CMAKE_MATCH_1 STREQUAL "${ARGN}")
    message(SEND_ERROR "${name}: targets are ${CMAKE_MATCH_1}; they must be ${ARGN}\n${log}")
  endif()
endfunction()

function(expect_left_out name)
  foreach(target IN LISTS ARGN)
    if(NOT log MATCHES "rmsnorm: target ${target} left out: the compiler does not take ")
      message(SEND_ERROR "${name}: nothing says that ${target} was left out\n${log}")
    endif()
  endforeach()
endfunction()

configure(own "-DCMAKE_CXX_COMPILER=${CXX}")
if(NOT log MATCHES "rmsnorm: targets ([^\n]*)\n")
  message(FATAL_ERROR "configuring does not say what was kept\n${log}")
endif()
set(all ${CMAKE_MATCH_1})
file(READ "${WORK}/own/compile_commands.json" commands)
string(JSON count LENGTH "${commands}")
math(EXPR last "${count} - 1")
set(kernels 0)
foreach(i RANGE ${last})
  string(JSON file GET "${commands}" ${i} file)
  string(JSON command GET "${commands}" ${i} command)
  if(file MATCHES "/src/cpu/[a-z_]*kernels\\.cc$")
    math(EXPR kernels "${kernels} + 1")
  elseif(command MATCHES " -m[a-z]")
    message(SEND_ERROR "a flag of an instruction set reaches ${file}: ${command}")
  endif()
endforeach()
list(LENGTH all wanted)
file(GLOB sources "${SOURCE}/src/cpu/*kernels.cc")
list(LENGTH sources files)
math(EXPR wanted "${wanted} * ${files}")
if(NOT kernels EQUAL wanted)
  message(SEND_ERROR "kernels are compiled ${kernels} times; it must be ${wanted} times, ${files} files for each target")
endif()

# A compiler from before AVX-512 BF16.
refusing_compiler(old_compiler "*avx512bf16*")
configure(old_compiler "-DCMAKE_CXX_COMPILER=${WORK}/bin/old_compiler")
set(kept ${all})
list(REMOVE_ITEM kept avx512)
expect_targets(old_compiler ${kept})
if("avx512" IN_LIST all)
  expect_left_out(old_compiler avx512)
endif()

# An assembler that does not know what the compiler writes: with GCC it is a program of its own.
execute_process(COMMAND "${CXX}" --version OUTPUT_VARIABLE version)
if(version MATCHES "clang")
  message(STATUS "left out: clang has its own assembler")
else()
  execute_process(COMMAND "${CXX}" -print-prog-name=as OUTPUT_VARIABLE assembler OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_program(assembler_path "${assembler}" REQUIRED)
  write_program(old_binutils/as "for file; do
  case $file in
    *.s) if grep -q %zmm \"$file\"; then echo 'no such instruction' >&2; exit 1; fi ;;
  esac
done
exec '${assembler_path}' \"$@\"")
  configure(old_assembler "-DCMAKE_CXX_COMPILER=${CXX}" "-DCMAKE_CXX_FLAGS=-B${WORK}/old_binutils")
  list(REMOVE_ITEM kept avx512_base)
  expect_targets(old_assembler ${kept})
  if("avx512_base" IN_LIST all)
    expect_left_out(old_assembler avx512 avx512_base)
  endif()
endif()

# A compiler that knows no instruction set: the library is there, and works.
refusing_compiler(plain_compiler "*' -m'*")
configure(plain_compiler "-DCMAKE_CXX_COMPILER=${WORK}/bin/plain_compiler" -DRMSNORM_EXAMPLES=ON)
list(FILTER all INCLUDE REGEX "^(scalar|neon)$") # NEON is part of AArch64
expect_targets(plain_compiler ${all})
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${WORK}/plain_compiler" --target example_quick_start OUTPUT_VARIABLE log
                ERROR_VARIABLE log RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "plain_compiler: the build failed\n${log}")
endif()
execute_process(COMMAND "${WORK}/plain_compiler/examples/example_quick_start" OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
file(READ "${SOURCE}/examples/quick_start.txt" expected)
if(NOT output STREQUAL expected)
  message(SEND_ERROR "plain_compiler: quick_start prints\n${output}it must print\n${expected}")
endif()

# 16-bit types: compilers without _Float16 or __bf16 take the conversions, which use neither.
execute_process(COMMAND "${CXX}" -std=c++20 -fsyntax-only -D_Float16=absent -D__fp16=absent -D__bf16=absent
                        -I "${SOURCE}/src" -I "${SOURCE}/include" -include core/float16.h -include rmsnorm/rmsnorm.hpp
                        -x c++ /dev/null
                RESULT_VARIABLE result ERROR_VARIABLE log)
if(NOT result EQUAL 0)
  message(SEND_ERROR "16-bit types: the conversions need a type of the compiler\n${log}")
endif()
