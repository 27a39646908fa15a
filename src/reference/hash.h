// Hashes of results, equal where results are equal: all NaNs count as one value.
#ifndef RMSNORM_REFERENCE_HASH_H_
#define RMSNORM_REFERENCE_HASH_H_

#include <cstdint>
#include <cstring>

#include "reference/format.h"

namespace rmsnorm::reference {

inline constexpr std::uint64_t kHashSeed = 0xcbf29ce484222325u;  // FNV-1a

constexpr std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) { return (hash ^ word) * 0x100000001b3u; }

// Stored bits of a type, NaNs as one pattern.
class CanonicalBits {
 public:
  explicit CanonicalBits(rn_type type) : e4m3_(type == RN_F8E4M3) {
    const Format f = format_of(type);
    if (is_integer(type)) return;
    infinity_ = ((std::uint64_t{1} << (f.bits - f.precision)) - 1) << (f.precision - 1);
    magnitude_ = (std::uint64_t{1} << (f.bits - 1)) - 1;
  }

  std::uint64_t operator()(std::uint64_t stored) const {
    if (e4m3_) return (stored & 0x7f) == 0x7f ? 0x7f : stored;
    return (stored & magnitude_) > infinity_ ? infinity_ + 1 : stored;
  }

 private:
  bool e4m3_;
  std::uint64_t infinity_ = 0, magnitude_ = 0;
};

// Of element `index`.
inline std::uint64_t canonical_bits(rn_type type, const void* data, std::int64_t index) {
  return CanonicalBits(type)(stored_bits(type, data, index));
}

inline std::uint64_t hash_elements(std::uint64_t hash, rn_type type, const void* data, std::int64_t count) {
  const CanonicalBits canonical(type);
  const auto take = [&](auto element) {
    const char* bytes = static_cast<const char*>(data);
    for (std::int64_t i = 0; i < count; ++i, bytes += sizeof element) {
      std::memcpy(&element, bytes, sizeof element);
      hash = hash_word(hash, canonical(element));
    }
    return hash ^ hash >> 32;
  };
  switch (format_of(type).bits) {
    case 8:
      return take(std::uint8_t{});
    case 16:
      return take(std::uint16_t{});
    case 32:
      return take(std::uint32_t{});
    default:
      return take(std::uint64_t{});
  }
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_HASH_H_
