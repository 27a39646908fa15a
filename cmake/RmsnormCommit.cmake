# Writes OUTPUT, a source file with the commit of SOURCE, when it is not there or says another: cmake -P, at every build.
execute_process(COMMAND git -C "${SOURCE}" describe --always --dirty --abbrev=12 --match=no-tag OUTPUT_VARIABLE commit
                OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE status)
if(NOT status EQUAL 0)
  set(commit unknown)
endif()
file(CONFIGURE OUTPUT "${OUTPUT}" @ONLY CONTENT [[#include "lab/experiments/commit.h"

namespace rmsnorm::lab {
const char* const kCommit = "@commit@";
}
]])
