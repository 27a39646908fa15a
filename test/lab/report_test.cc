// The report: complete, well-formed, nothing outside its frame.
#include "lab/report/report.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <regex>
#include <sstream>

#include "lab/report/svg.h"
#include "lab/report/text.h"

namespace rmsnorm::lab {
namespace {

constexpr char kHostile[] = "a < b & \"c\" > d | `x<y>` é 中文 \x01";

Plot sample_plot(std::size_t points, bool log, bool intervals) {
  Plot plot;
  plot.title = "Time & width";
  plot.x_label = "width (columns)";
  plot.y_label = "time of one row by the slowest of all the implementations that were tried (ns)";
  plot.log_x = plot.log_y = log;
  for (int k = 0; k < 9; ++k) {
    Series s;
    s.name = "series " + std::to_string(k) +
             (k == 3 ? " with a name that is far too long to stand in one line of a legend "
                       "beside any other, whatever its size"
                     : "");
    for (std::size_t i = 0; i < points; ++i) {
      s.x.push_back(256 * std::pow(2.0, static_cast<double>(i) / 4));
      s.y.push_back((k + 1) * 1e-7 * s.x.back());
      if (intervals) {
        s.low.push_back(s.y.back() * 0.9);
        s.high.push_back(s.y.back() * 1.1);
      }
    }
    plot.series.push_back(s);
  }
  return plot;
}

Report sample_report() {
  Report report;
  report.scale = "quick";
  report.missing = {"soak: piece x is missing"};
  for (int number = 1; number <= 2; ++number) {
    Chapter chapter;
    chapter.number = number;
    chapter.name = "name" + std::to_string(number);
    chapter.title = chapter.claim = chapter.design = chapter.rule = kHostile;
    chapter.command = "rmsnorm-lab run name --scale quick";
    chapter.machines = {"CPU " + std::to_string(number)};
    chapter.commits = {"0123456789ab"};
    chapter.page.findings = {{kHostile, "P", "1.04 [1.01, 1.07] of the time", Verdict::kRefuted, kHostile}};
    chapter.page.parts = {Text{kHostile},
                          Table{kHostile, {"width", kHostile}, {{"256", kHostile}, {"1024", "−3.5 ns"}}},
                          sample_plot(5, true, true), sample_plot(40, false, true)};
    report.chapters.push_back(chapter);
  }
  return report;
}

// Every element is closed, in order; entities are the five of XML; attributes have quotes. "" or the fault.
std::string xml_fault(std::string text) {
  if (text.starts_with("<!DOCTYPE html>")) text.erase(0, 15);
  std::vector<std::string> open;
  static const std::regex tag(R"(^<(/?)([a-zA-Z][a-zA-Z0-9]*)((?:\s+[a-zA-Z_:-]+="[^"<]*")*)\s*(/?)>)");
  static const std::regex entity(R"(^&(amp|lt|gt|quot|apos);)");
  for (std::size_t at = 0; at < text.size();) {
    std::smatch match;
    const std::string rest = text.substr(at, 6000);
    if (text[at] == '<') {
      if (rest.starts_with("<style>")) {  // its text has no markup
        at = text.find("</style>", at) + 8;
        continue;
      }
      if (!std::regex_search(rest, match, tag)) return "no tag: " + rest.substr(0, 80);
      if (match[1].length() != 0) {
        if (open.empty() || open.back() != match[2]) return "closes " + match[2].str();
        open.pop_back();
      } else if (match[4].length() == 0) {
        open.push_back(match[2]);
      }
      at += static_cast<std::size_t>(match.length());
      continue;
    }
    if (text[at] == '&' && !std::regex_search(rest, match, entity)) return "entity: " + rest.substr(0, 20);
    if (text[at] == '>') return "stray >";
    if (static_cast<unsigned char>(text[at]) < 0x20 && text[at] != '\n') return "control character";
    ++at;
  }
  return open.empty() ? "" : "left open: " + open.back();
}

double number_of(const std::string& attributes, const std::string& name, double otherwise) {
  std::smatch match;
  return std::regex_search(attributes, match, std::regex("\\b" + name + "=\"([-0-9.]+)")) ? std::stod(match[1])
                                                                                          : otherwise;
}

// Every text lies inside the view box, as wide as 0.55 of its size for each character (a usual sans-serif's mean).
void expect_inside(const std::string& drawing) {
  std::smatch box;
  ASSERT_TRUE(std::regex_search(drawing, box, std::regex("viewBox=\"0 0 (\\d+) (\\d+)\"")));
  const double width = std::stod(box[1]), height = std::stod(box[2]);
  const std::regex texts("<text ([^>]*)>([^<]*)</text>");
  int count = 0;
  for (auto it = std::sregex_iterator(drawing.begin(), drawing.end(), texts); it != std::sregex_iterator();
       ++it, ++count) {
    const std::string attributes = (*it)[1], content = (*it)[2];
    const double x = number_of(attributes, "x", -1), y = number_of(attributes, "y", -1);
    const double length = 0.55 * 12 * static_cast<double>(characters(content).size());
    const bool middle = attributes.find("\"middle\"") != std::string::npos;
    const bool end = attributes.find("\"end\"") != std::string::npos;
    const bool turned = attributes.find("rotate(-90") != std::string::npos;
    const double start = (turned ? y : x) - (middle ? length / 2 : end ? length : 0);
    EXPECT_GE(start, 0) << content;
    EXPECT_LE(start + length, turned ? height : width) << content;
    EXPECT_GE(turned ? x : y, 8) << content;
    EXPECT_LE(turned ? x : y, (turned ? width : height) - 2) << content;
  }
  EXPECT_GE(count, 6);
}

TEST(Svg, has_axes_units_intervals_and_stays_inside_its_frame) {
  for (const std::size_t points : {1u, 5u, 40u}) {
    for (const bool log : {false, true}) {
      for (const bool intervals : {false, true}) {
        const std::string drawing = svg(sample_plot(points, log, intervals));
        EXPECT_EQ(xml_fault(drawing), "");
        expect_inside(drawing);
        EXPECT_NE(drawing.find("width (columns)"), std::string::npos);
        EXPECT_NE(drawing.find("(ns)"), std::string::npos);
        EXPECT_EQ(drawing.find("class=\"interval\"") != std::string::npos, intervals);
        EXPECT_EQ(drawing.find("nan"), std::string::npos);
        EXPECT_EQ(drawing.find("href"), std::string::npos);
      }
    }
  }
}

TEST(Svg, a_circle_stays_one) {
  Plot plot;
  plot.same_scale = true;
  plot.series = {{"circle", {-2, 2, 0, 0}, {0, 0, -2, 2}, {}, {}}};
  const std::string text = svg(plot);
  const std::regex marker("<circle cx=\"([0-9.]+)\" cy=\"([0-9.]+)\"");
  std::vector<double> x, y;
  for (std::sregex_iterator i(text.begin(), text.end(), marker), end; i != end && x.size() < 4; ++i) {
    x.push_back(std::stod((*i)[1]));
    y.push_back(std::stod((*i)[2]));
  }
  ASSERT_EQ(x.size(), 4u);
  EXPECT_GT(x[1] - x[0], 100);
  EXPECT_NEAR(x[1] - x[0], y[2] - y[3], 0.2);  // coordinates have one decimal
  EXPECT_NEAR((x[0] + x[1]) / 2, x[2], 0.2);
}

TEST(Svg, series_differ_without_colour) {
  const std::string drawing = svg(sample_plot(5, false, false));
  for (const char* shape :
       {"<circle", "m-3.6 -3.6h7.2", "m0 -4.6l", "m0 -5l5", "m0 4.6l4.4", "m-4.5 0h9", "l7.2 7.2m0"}) {
    EXPECT_NE(drawing.find(shape), std::string::npos) << shape;
  }
}

TEST(Svg, says_what_it_cannot_draw) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  Plot plot{"t", "x (1)", "y (1)", true, true, true, {{"s", {1, 2, 3, 4}, {1, -1, std::nan(""), kInfinite}, {}, {}}}};
  EXPECT_NE(svg(plot).find("3 points are not drawn"), std::string::npos);
  plot.series[0].y = {0, 0, 0, 0};
  EXPECT_EQ(xml_fault(svg(plot)), "");
  plot.series.clear();
  EXPECT_EQ(xml_fault(svg(plot)), "");
}

TEST(Svg, ticks_are_round_numbers_within_the_range) {
  const auto drawing = [](std::vector<double> y, bool log) {
    return svg({"t", "x (1)", "y (1)", false, log, true, {{"", {0, 1}, std::move(y), {}, {}}}});
  };
  EXPECT_NE(drawing({0, 10}, false).find(">10</text>"), std::string::npos);
  EXPECT_NE(drawing({0.93, 0.94}, false).find(">0.932</text>"), std::string::npos);
  EXPECT_NE(drawing({-3, 3}, false).find(">−2</text>"), std::string::npos);
  EXPECT_NE(drawing({1e-8, 1}, true).find("10⁻⁶"), std::string::npos);
  EXPECT_NE(drawing({2, 30}, true).find(">5</text>"), std::string::npos);
  EXPECT_NE(drawing({3e9, 4e9}, false).find("×10⁹"), std::string::npos);
}

TEST(Text, sentences_end_once) {
  EXPECT_EQ(as_sentence("1.04 of the time"), "1.04 of the time.");
  EXPECT_EQ(as_sentence("It holds."), "It holds.");
  const std::string page = html(sample_report());
  EXPECT_NE(page.find("1.04 [1.01, 1.07] of the time. "), std::string::npos);
}

TEST(Text, numbers_are_short) {
  EXPECT_EQ(number_text(0), "0");
  EXPECT_EQ(number_text(0.05), "0.05");
  EXPECT_EQ(number_text(12345), "12345");
  EXPECT_EQ(number_text(-2.5), "−2.5");
  EXPECT_EQ(number_text(1e-6), "10⁻⁶");
  EXPECT_EQ(number_text(3e-7), "3×10⁻⁷");
  EXPECT_EQ(number_text(9.9999999e-7), "10⁻⁶");
  EXPECT_EQ(number_text(std::nan("")), "not a number");
}

TEST(Text, lines_are_no_wider_than_asked) {
  for (const std::string& line : wrapped("a long sentence of short words and oneverylongwordthatfitsnowhere", 60, 12)) {
    EXPECT_LE(text_width(line) * 12, 60) << line;
  }
}

TEST(Html, is_well_formed_and_needs_nothing_else) {
  const std::string page = html(sample_report());
  EXPECT_EQ(xml_fault(page), "");
  for (const char* outside : {"http-equiv", "src=", "<link", "<script", "url(", "@import"}) {
    EXPECT_EQ(page.find(outside), std::string::npos) << outside;
  }
  std::size_t at = 0;
  for (int links = 0; (at = page.find("http", at)) != std::string::npos; ++at, ++links) {
    EXPECT_EQ(page.substr(at, 26), "http://www.w3.org/2000/svg");  // a name, not an address
  }
  EXPECT_NE(page.find("name=\"viewport\""), std::string::npos);
  EXPECT_NE(page.find("@media print"), std::string::npos);
}

TEST(Html, the_ledger_comes_first_and_has_every_finding) {
  const std::string page = html(sample_report());
  const std::size_t table = page.find("<table id=\"ledger\">"), end = page.find("</table>", table);
  EXPECT_LT(table, page.find("<section"));
  const std::string rows = page.substr(table, end - table);
  for (const char* text : {"href=\"#name1\"", "href=\"#name2\"", "1.04 [1.01, 1.07]", ">refuted<", ">A<", ">B<"}) {
    EXPECT_NE(rows.find(text), std::string::npos) << text;
  }
  EXPECT_NE(page.find("Not in this report: soak"), std::string::npos);
  EXPECT_NE(page.find("2 × refuted"), std::string::npos);
}

TEST(Markdown, tables_have_as_many_cells_in_every_row) {
  const Markdown document = markdown(sample_report());
  std::istringstream lines(document.text);
  std::size_t expected = 0;
  int tables = 0;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('|')) {
      expected = 0;
      continue;
    }
    std::size_t bars = 0;
    for (std::size_t i = 0; i < line.size(); ++i) bars += line[i] == '|' && (i == 0 || line[i - 1] != '\\') ? 1 : 0;
    if (expected == 0) ++tables;
    if (expected == 0) expected = bars;
    EXPECT_EQ(bars, expected) << line;
  }
  EXPECT_EQ(tables, 3);
}

TEST(Markdown, narrow_tables_line_up) {
  Report report = sample_report();
  report.chapters[0].page.parts = {Table{"t", {"a", "längere Spalte"}, {{"1", "x"}, {"22222", "−3"}}}};
  const std::string text = markdown(report).text;
  EXPECT_NE(text.find("| a     | längere Spalte |\n|-------|----------------|\n| 1     | x              |\n"
                      "| 22222 | −3             |\n"),
            std::string::npos)
      << text;
}

TEST(Markdown, plots_are_files_beside_it) {
  const Markdown document = markdown(sample_report());
  ASSERT_EQ(document.files.size(), 4u);
  for (const auto& [name, content] : document.files) {
    EXPECT_NE(document.text.find("](" + name + ")"), std::string::npos) << name;
    EXPECT_EQ(xml_fault(content), "");
  }
}

TEST(Report, says_what_it_lacks) {
  EXPECT_TRUE(faults_of(sample_report()).empty());
  const auto fault = [](const std::function<void(Chapter&)>& change) {
    Report report = sample_report();
    change(report.chapters[0]);
    const auto faults = faults_of(report);
    return faults.size() == 1 ? faults[0] : std::to_string(faults.size()) + " faults";
  };
  const auto plot = [](Chapter& c) -> Plot& { return std::get<Plot>(c.page.parts[2]); };
  const auto table = [](Chapter& c) -> Table& { return std::get<Table>(c.page.parts[1]); };
  EXPECT_EQ(fault([](Chapter& c) { c.page.findings.clear(); }), "name1: it has no finding");
  EXPECT_EQ(fault([](Chapter& c) {
              c.page.findings[0] = {"claim", "P", "1", Verdict::kHolds, ""};
            }),
            "name1: finding \"claim\" has no reason");
  EXPECT_EQ(fault([](Chapter& c) { c.rule.clear(); }), "name1: it has no rule");
  EXPECT_EQ(fault([&](Chapter& c) { plot(c).x_label = "step"; }),
            "name1: an axis of plot \"Time & width\" is \"step\"; it must name its unit, \"time (ns)\"");
  EXPECT_NE(fault([&](Chapter& c) { plot(c).series[1].y.pop_back(); }).find("has 5 x, 4 y"), std::string::npos);
  EXPECT_NE(fault([&](Chapter& c) { plot(c).series[1].low.pop_back(); }).find("4 low and 5 high"), std::string::npos);
  EXPECT_NE(fault([&](Chapter& c) { table(c).rows[1].pop_back(); }).find("has 1 cells; it must have 2"),
            std::string::npos);
}

}  // namespace
}  // namespace rmsnorm::lab
