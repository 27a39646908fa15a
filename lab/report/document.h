// What an experiment says, as data: the report turns it into HTML and Markdown.
#ifndef RMSNORM_LAB_REPORT_DOCUMENT_H_
#define RMSNORM_LAB_REPORT_DOCUMENT_H_

#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "lab/statistics/statistics.h"

namespace rmsnorm::lab {

enum class Verdict { kHolds, kRefuted, kPartly, kNotSettled, kCannotBeTestedHere };

// One row of the ledger of claims.
struct Finding {
  std::string claim;     // what was said, in our words, with its number
  std::string source;    // "E", "P" or "Z", with the place
  std::string measured;  // what we found, with unit: "1.04 [1.01, 1.07] of LayerNorm's step time"
  Verdict verdict = Verdict::kNotSettled;
  std::string reason;  // one or two sentences
};

struct Table {
  std::string title;
  std::vector<std::string> columns;  // with units
  std::vector<std::vector<std::string>> rows;
};

struct Series {
  std::string name;
  std::vector<double> x, y;
  std::vector<double> low, high;  // of an interval at each point; empty: none
};

struct Plot {
  std::string title;
  std::string x_label, y_label;  // with units
  bool log_x = false, log_y = false;
  bool lines = true;  // otherwise points only
  std::vector<Series> series;
  bool same_scale = false;  // a unit of x is as long as a unit of y: a circle stays one
};

struct Text {
  std::string paragraph;
};

struct Page {
  std::vector<Finding> findings;
  std::vector<std::variant<Text, Table, Plot>> parts;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_REPORT_DOCUMENT_H_
