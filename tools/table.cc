#include "tools/table.h"

#include <fmt/format.h>

#include <cstdio>

namespace rmsnorm::tools {

void Table::print_header() const {
  std::vector<std::string> titles;
  std::vector<std::string> rules;
  for (const Column& column : columns_) {
    titles.push_back(column.title);
    rules.emplace_back(static_cast<std::size_t>(column.width), '-');
  }
  print_row(titles);
  print_row(rules);
}

void Table::print_row(const std::vector<std::string>& cells) const {
  std::string line;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Column& column = columns_[i];
    line += i == 0 ? "" : "  ";
    line += column.left ? fmt::format("{:<{}}", cells[i], column.width) : fmt::format("{:>{}}", cells[i], column.width);
  }
  line.erase(line.find_last_not_of(' ') + 1);
  fmt::print("{}\n", line);
  std::fflush(stdout);
}

}  // namespace rmsnorm::tools
