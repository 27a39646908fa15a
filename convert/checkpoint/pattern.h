// Names with holes: `h.{i}.attn.{q,k}_proj`. A brace with a comma lists alternatives that are all meant; a brace with
// one letter is an index.
#ifndef RMSNORM_CONVERT_CHECKPOINT_PATTERN_H_
#define RMSNORM_CONVERT_CHECKPOINT_PATTERN_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace rmsnorm::convert::checkpoint {

using Indices = std::map<char, std::int64_t>;

inline constexpr std::size_t kMaxExpansions = 256;  // of one name's lists

// "a.{q,k}.{i}" -> "a.q.{i}", "a.k.{i}". Empty: a brace is not closed, or there are too many names.
std::vector<std::string> expand_lists(std::string_view pattern);

// The letters of its indices, each once.
std::string index_letters(std::string_view pattern);

// With the indices filled in; all letters of the pattern must be there.
std::string fill(std::string_view pattern, const Indices& indices);

// True if the name is the pattern with some numbers as indices; `*` stands for any run of characters.
bool matches(std::string_view pattern, std::string_view name);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_PATTERN_H_
