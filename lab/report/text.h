// Words and text shared by the forms of the report.
#ifndef RMSNORM_LAB_REPORT_TEXT_H_
#define RMSNORM_LAB_REPORT_TEXT_H_

#include <string>
#include <string_view>
#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

std::string_view name_of(Verdict verdict);  // "holds", "not settled", ..

// Ends with one full stop.
std::string as_sentence(std::string_view text);

// For HTML and SVG: & < > and quotes as entities, control characters left out.
std::string escaped(std::string_view text);

// The code points of UTF-8 text; a byte that is none counts as one.
std::vector<std::string_view> characters(std::string_view text);

// Width of text in a usual sans-serif font of size 1, rather too wide than too narrow.
double text_width(std::string_view text);

// Lines no wider than `width` at font size `size`, broken at spaces where there are any.
std::vector<std::string> wrapped(std::string_view text, double width, double size);

// A number for an axis or a table: few digits, powers of ten as such: "0.05", "12000", "3×10⁻⁷".
std::string number_text(double value, int digits = 4);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_REPORT_TEXT_H_
