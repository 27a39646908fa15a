// Collects reports by operation, types, mode and values, and prints them.
#ifndef RMSNORM_TEST_SUPPORT_ACCURACY_TABLE_H_
#define RMSNORM_TEST_SUPPORT_ACCURACY_TABLE_H_

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "check/judge.h"

namespace rmsnorm::test {

std::string format(const char* pattern, double value);

// The main function of a program that measures: runs its tests and, with --markdown=FILE, writes what they found.
int run_and_write(int argc, char** argv, const std::function<bool(const std::string& path)>& write_markdown);

class AccuracyTable {
 public:
  static AccuracyTable& all();  // of the whole process

  void add(const check::Case& c, const check::Report& report);
  void merge(const AccuracyTable& other);
  void print() const;
  bool write_markdown(const std::string& path) const;

  // One line for each distribution whose mean error, over all cases of its types in any mode, is larger.
  std::vector<std::string> means_beyond(double limit) const;

 private:
  // What the budget depends on, in the words of docs/numbers.md.
  struct Key {
    check::Op op;
    rn_type x, out;
    std::string mode;
    auto operator<=>(const Key&) const = default;
  };
  struct Entry {
    int cases = 0;
    double sum_of_means = 0;  // each case counts once, or one wide row would decide
    check::Report report;
  };
  static Key key_of(const check::Case& c);
  static std::string label(const Key& key);
  static Entry total(const std::map<reference::Values, Entry>& rows);

  std::map<Key, std::map<reference::Values, Entry>> rows_;
};

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_ACCURACY_TABLE_H_
