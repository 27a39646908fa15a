// Tables that line up, printed row by row as results come.
#ifndef RMSNORM_TOOLS_TABLE_H_
#define RMSNORM_TOOLS_TABLE_H_

#include <string>
#include <vector>

namespace rmsnorm::tools {

struct Column {
  std::string title;
  int width;
  bool left = false;  // numbers stand at the right, names at the left
};

class Table {
 public:
  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}
  void print_header() const;
  void print_row(const std::vector<std::string>& cells) const;

 private:
  std::vector<Column> columns_;
};

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_TABLE_H_
