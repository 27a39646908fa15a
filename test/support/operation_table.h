// Collects what judges found about the operations of check/operation.h, by type, output and limit, and prints it.
#ifndef RMSNORM_TEST_SUPPORT_OPERATION_TABLE_H_
#define RMSNORM_TEST_SUPPORT_OPERATION_TABLE_H_

#include <iosfwd>
#include <map>
#include <string>
#include <vector>

#include "check/operation.h"

namespace rmsnorm::test {

class OperationTable {
 public:
  static OperationTable& all();  // of the whole process

  void add(const check::Operation& op, const check::Request& request, const check::Tensors& tensors,
           const check::Finding& finding);
  void merge(const OperationTable& other);
  void print() const;
  bool write_markdown(const std::string& path) const;

  // One line for each output and distribution whose mean error, over all cases, is larger.
  std::vector<std::string> means_beyond(double limit) const;

 private:
  struct Output {
    std::size_t op;  // their order
    rn_type x;
    std::size_t order;  // of the outputs of an operation, as they are first seen
    std::string name;
    rn_type type;
    auto operator<=>(const Output&) const = default;
  };
  struct Mean {
    int cases = 0;
    double sum_of_means = 0;  // each case counts once, or one wide row would decide
    double value() const { return sum_of_means / cases; }
  };
  struct Entry {
    std::map<std::string, check::Measured> limits;  // by their words
    std::map<reference::Values, Mean> means;        // of what is counted in ulps
    double worst_mean() const;
  };

  void write_largest(std::ostream& file) const;
  static std::string label(const Output& output);
  static std::string types(const Output& output);
  std::size_t order_of(std::size_t op, const std::string& name);

  std::map<Output, Entry> rows_;
  std::map<std::size_t, std::vector<std::string>> names_;
};

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_OPERATION_TABLE_H_
