// The element types that safetensors names.
#ifndef RMSNORM_TOOLS_FORMATS_SAFETENSORS_DTYPE_H_
#define RMSNORM_TOOLS_FORMATS_SAFETENSORS_DTYPE_H_

#include <optional>
#include <string_view>

#include "rmsnorm/rmsnorm.h"

namespace rmsnorm::tools {

struct SafetensorsDtype {
  std::string_view name;
  int bits;
  std::optional<rn_type> type;  // set for those that an operand can have
};

inline constexpr SafetensorsDtype kSafetensorsDtypes[] = {
    {"F32", 32, RN_F32},       {"F16", 16, RN_F16}, {"BF16", 16, RN_BF16}, {"F64", 64, RN_F64},
    {"BOOL", 8, {}},           {"U8", 8, {}},       {"I8", 8, RN_I8},      {"F8_E4M3", 8, RN_F8E4M3},
    {"F8_E5M2", 8, RN_F8E5M2}, {"F8_E8M0", 8, {}},  {"U16", 16, {}},       {"I16", 16, {}},
    {"U32", 32, {}},           {"I32", 32, RN_I32}, {"U64", 64, {}},       {"I64", 64, RN_I64},
    {"C64", 64, {}},           {"F4", 4, {}},       {"F6_E2M3", 6, {}},    {"F6_E3M2", 6, {}},
};

constexpr const SafetensorsDtype* find_safetensors_dtype(std::string_view name) {
  for (const auto& dtype : kSafetensorsDtypes) {
    if (dtype.name == name) return &dtype;
  }
  return nullptr;
}

// Bits of one element; nothing for a type that this list lacks.
constexpr std::optional<int> safetensors_bits(std::string_view name) {
  const auto* dtype = find_safetensors_dtype(name);
  return dtype == nullptr ? std::nullopt : std::optional(dtype->bits);
}

constexpr std::string_view safetensors_name(rn_type type) {
  for (const auto& dtype : kSafetensorsDtypes) {
    if (dtype.type == type) return dtype.name;
  }
  return {};
}

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_FORMATS_SAFETENSORS_DTYPE_H_
