// Enumerators by their names on the command line and in logs.
#ifndef RMSNORM_LAB_MODELS_NAMES_H_
#define RMSNORM_LAB_MODELS_NAMES_H_

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <stdexcept>
#include <string>

namespace rmsnorm::lab {

// The enumerator at the place of `name` in `names`, which stand in the order of the enumeration. Unknown names throw.
template <class E, std::size_t N>
E value_of(const char* what, const std::string& name, const std::array<const char*, N>& names) {
  for (std::size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<E>(i);
  }
  throw std::invalid_argument(fmt::format("{} is \"{}\"; it must be one of {}", what, name, fmt::join(names, ", ")));
}

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_MODELS_NAMES_H_
