// A plot as a piece of SVG that stands in a page or in a file of its own: text and lines only, nothing from outside.
#ifndef RMSNORM_LAB_REPORT_SVG_H_
#define RMSNORM_LAB_REPORT_SVG_H_

#include <string>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// Width of the drawing in its own units; text has 13 of them, so that it can still be read on a telephone.
inline constexpr double kSvgWidth = 400;

std::string svg(const Plot& plot);

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_REPORT_SVG_H_
