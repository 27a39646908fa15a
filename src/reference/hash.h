// Hashes of results, equal where results are equal: all NaNs count as one value.
#ifndef RMSNORM_REFERENCE_HASH_H_
#define RMSNORM_REFERENCE_HASH_H_

#include <cstdint>
#include <cstring>

#include "reference/format.h"

namespace rmsnorm::reference {

inline constexpr std::uint64_t kHashSeed = 0xcbf29ce484222325u;  // FNV-1a

constexpr std::uint64_t hash_word(std::uint64_t hash, std::uint64_t word) { return (hash ^ word) * 0x100000001b3u; }

// The stored bits of element `index`, NaNs as one pattern.
inline std::uint64_t canonical_bits(rn_type type, const void* data, std::int64_t index) {
  const Format f = format_of(type);
  const std::size_t bytes = static_cast<std::size_t>(f.bits / 8);
  std::uint64_t stored = 0;  // little endian: the low bytes
  std::memcpy(&stored, static_cast<const char*>(data) + index * static_cast<std::int64_t>(bytes), bytes);
  if (is_integer(type)) return stored;
  if (type == RN_F8E4M3) return (stored & 0x7f) == 0x7f ? 0x7f : stored;
  const std::uint64_t infinity = ((std::uint64_t{1} << (f.bits - f.precision)) - 1) << (f.precision - 1);
  const std::uint64_t magnitude = stored & ((std::uint64_t{1} << (f.bits - 1)) - 1);
  return magnitude > infinity ? infinity + 1 : stored;
}

inline std::uint64_t hash_elements(std::uint64_t hash, rn_type type, const void* data, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) hash = hash_word(hash, canonical_bits(type, data, i));
  return hash ^ hash >> 32;
}

}  // namespace rmsnorm::reference

#endif  // RMSNORM_REFERENCE_HASH_H_
