// What the models refuse.
#ifndef RMSNORM_TEST_LAB_REFUSAL_H_
#define RMSNORM_TEST_LAB_REFUSAL_H_

#include <gtest/gtest.h>

#include <functional>
#include <stdexcept>
#include <string>

namespace rmsnorm::lab {

// `work` must throw std::invalid_argument with a message that has `part`.
inline void expect_refusal(const std::function<void()>& work, const std::string& part) {
  try {
    work();
    ADD_FAILURE() << "nothing was refused; expected: " << part;
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
  }
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_TEST_LAB_REFUSAL_H_
