// All that a call wrote, as one number.
#ifndef RMSNORM_TEST_SUPPORT_OUTCOME_H_
#define RMSNORM_TEST_SUPPORT_OUTCOME_H_

#include "check/operands.h"
#include "reference/hash.h"

namespace rmsnorm::test {

inline std::uint64_t outcome(const check::Case& c, const check::Operands& o) {
  std::uint64_t hash = o.result(c.in_place).hash();
  for (const check::Matrix* matrix : {&o.sum(c.in_place), &o.mean, &o.inv}) {
    if (matrix->present()) hash = reference::hash_word(hash, matrix->hash());
  }
  return hash;
}

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_OUTCOME_H_
