#include "convert/checkpoint/pattern.h"

#include <algorithm>

namespace rmsnorm::convert::checkpoint {

namespace {

bool is_index(std::string_view text, std::size_t at) {
  return at + 2 < text.size() && text[at] == '{' && text[at + 1] >= 'a' && text[at + 1] <= 'z' && text[at + 2] == '}';
}

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::vector<std::string> expand_lists(std::string_view pattern) {
  std::vector<std::string> names{""};
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (is_index(pattern, i)) {
      for (auto& name : names) name += pattern.substr(i, 3);
      i += 2;
      continue;
    }
    if (pattern[i] == '}') return {};
    if (pattern[i] != '{') {
      for (auto& name : names) name += pattern[i];
      continue;
    }
    const std::size_t end = pattern.find('}', i);
    if (end == std::string_view::npos) return {};
    std::vector<std::string> longer;
    for (const auto& name : names) {
      for (std::size_t from = i + 1; from <= end;) {
        const std::size_t to = std::min(pattern.find(',', from), end);
        longer.push_back(name + std::string(pattern.substr(from, to - from)));
        if (longer.size() > kMaxExpansions) return {};
        from = to + 1;
      }
    }
    names = std::move(longer);
    i = end;
  }
  return names;
}

std::string index_letters(std::string_view pattern) {
  std::string letters;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (is_index(pattern, i) && letters.find(pattern[i + 1]) == std::string::npos) letters += pattern[i + 1];
  }
  return letters;
}

std::string fill(std::string_view pattern, const Indices& indices) {
  std::string name;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (is_index(pattern, i)) {
      name += std::to_string(indices.at(pattern[i + 1]));
      i += 2;
    } else {
      name += pattern[i];
    }
  }
  return name;
}

bool matches(std::string_view pattern, std::string_view name) {
  // The last star is tried again one character later when the rest does not fit: linear in practice, never exponential.
  std::size_t p = 0;
  std::size_t n = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_name = 0;
  while (n < name.size() || p < pattern.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_name = n;
      continue;
    }
    if (is_index(pattern, p) && n < name.size() && is_digit(name[n])) {
      while (n < name.size() && is_digit(name[n])) ++n;
      p += 3;
      continue;
    }
    if (p < pattern.size() && n < name.size() && pattern[p] == name[n]) {
      ++p;
      ++n;
      continue;
    }
    if (star == std::string_view::npos || star_name >= name.size()) return false;
    p = star + 1;
    n = ++star_name;
  }
  return true;
}

}  // namespace rmsnorm::convert::checkpoint
