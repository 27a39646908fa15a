# cmake -DOBJDUMP=.. -DNM=.. -DCOMMON=.. -DKERNELS=.. -P baseline.cmake: instructions that not every x86-64 CPU has
# stand only in the kernels' objects, behind the choice at run time. COMMON: objects that run on any CPU. KERNELS:
# objects of the targets with flags of their own, NAME=FILE each.

# VEX and EVEX encoded instructions, and what came after SSE2. Not tzcnt: old CPUs run it as bsf, and the compiler
# writes it for bsf.
set(later "%[yz]mm|%k[0-7]|\tv[a-z0-9]+ [^\n]*%xmm|\t(pshufb|pinsr[bdq]|pextr[bdq]|round[sp][sd]|p?blendv|ptest")
string(APPEND later "|pmulld|pm(in|ax)(s[bd]|u[wd])|pmov[sz]x|pabs[bwd]|palignr|h(add|sub)p[sd]|movs[hl]dup|movddup")
string(APPEND later "|popcnt|lzcnt|crc32|andn[lq]? |sh[lr]x|sarx|rorx|mulx|movbe)[a-z]* ")

foreach(object IN LISTS COMMON)
  execute_process(COMMAND "${OBJDUMP}" -d "${object}" OUTPUT_VARIABLE text COMMAND_ERROR_IS_FATAL ANY)
  if(NOT text MATCHES "\tret")
    message(SEND_ERROR "${object}: no code was found in it")
  endif()
  if(text MATCHES "${later}")
    message(SEND_ERROR "${object}: it must run on any CPU of the architecture but has '${CMAKE_MATCH_0}'")
  endif()
endforeach()

# A function that two objects define is linked once, from either: one with a target's instructions must be the target's
# own.
foreach(kernel IN LISTS KERNELS)
  string(REGEX MATCH "^([^=]+)=(.+)$" ignored "${kernel}")
  set(name "${CMAKE_MATCH_1}")
  set(object "${CMAKE_MATCH_2}")
  execute_process(COMMAND "${NM}" --defined-only --extern-only "${object}" OUTPUT_VARIABLE text
                  COMMAND_ERROR_IS_FATAL ANY)
  string(REGEX MATCHALL "[^\n]+" lines "${text}")
  list(LENGTH lines count)
  if(count EQUAL 0)
    message(SEND_ERROR "${object}: no symbol was found in it")
  endif()
  string(LENGTH "${name}" length)
  foreach(line IN LISTS lines)
    if(NOT line MATCHES "7rmsnorm${length}${name}")
      message(SEND_ERROR "${object}: a symbol that is not of rmsnorm::${name}: ${line}")
    endif()
  endforeach()
endforeach()
