#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/report/report.h"
#include "lab/report/svg.h"
#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

constexpr std::size_t kWidestAligned = 120;  // code points of a row; longer ones are not padded

std::string cell_text(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c == '\n' ? ' ' : c;
  }
  return result;
}

std::string table_text(std::vector<std::string> columns, std::vector<std::vector<std::string>> rows) {
  rows.insert(rows.begin(), std::move(columns));
  std::vector<std::size_t> widths(rows[0].size(), 3);
  for (auto& row : rows) {
    row.resize(widths.size());
    for (std::size_t i = 0; i < row.size(); ++i) {
      row[i] = cell_text(row[i]);
      widths[i] = std::max(widths[i], characters(row[i]).size());
    }
  }
  std::size_t total = 1;
  for (const std::size_t width : widths) total += width + 3;
  const bool aligned = total <= kWidestAligned;
  std::string result;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    for (std::size_t i = 0; i < widths.size(); ++i) {
      const std::size_t padding = aligned ? widths[i] - characters(rows[r][i]).size() : 0;
      result += "| " + rows[r][i] + std::string(padding, ' ') + " ";
    }
    result += "|\n";
    if (r > 0) continue;
    for (const std::size_t width : widths) result += "|" + std::string((aligned ? width : 3) + 2, '-');
    result += "|\n";
  }
  return result + "\n";
}

std::string wrapped_paragraph(const std::string& text) {
  std::string result, line;
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t end = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, end - at);
    if (!line.empty() && characters(line).size() + 1 + characters(word).size() > kWidestAligned) {
      result += line + "\n";
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
    at = end + 1;
  }
  return result + line + "\n\n";
}

class Writer {
 public:
  explicit Writer(const Report& report) : report_(report) {}

  Markdown write() {
    out_.text = fmt::format("# {}\n\n", kReportTitle);
    for (const std::string& paragraph : introduction(report_)) out_.text += wrapped_paragraph(paragraph);
    ledger();
    for (const Chapter& chapter : report_.chapters) write(chapter);
    out_.text.pop_back();  // one of the two line ends
    return out_;
  }

 private:
  void ledger() {
    const std::vector<std::string> machines = machines_of(report_);
    std::vector<std::vector<std::string>> rows;
    for (const Chapter& chapter : report_.chapters) {
      for (const Finding& f : chapter.page.findings) {
        rows.push_back({std::to_string(chapter.number), f.claim, f.source, f.measured,
                        machine_letters(chapter, machines), std::string(name_of(f.verdict)), f.reason});
      }
    }
    out_.text += "## The ledger of claims\n\n";
    out_.text += table_text({std::begin(kLedgerColumns), std::end(kLedgerColumns)}, rows);
  }

  void write(const Chapter& chapter) {
    out_.text += fmt::format("## {} · {}\n\n", chapter.number, chapter.title);
    out_.text += wrapped_paragraph("**Claim.** " + chapter.claim);
    out_.text += wrapped_paragraph("**Design.** " + chapter.design);
    out_.text += wrapped_paragraph("**Rule of the verdict.** " + chapter.rule);
    int number = 0;
    for (const auto& part : chapter.page.parts) {
      if (const auto* text = std::get_if<Text>(&part)) out_.text += wrapped_paragraph(text->paragraph);
      if (const auto* table = std::get_if<Table>(&part)) {
        out_.text += wrapped_paragraph(table->title + ":") + table_text(table->columns, table->rows);
      }
      if (const auto* plot = std::get_if<Plot>(&part)) {
        const std::string file = fmt::format("plots/{}-{}.svg", chapter.name, ++number);
        out_.text += fmt::format("![{}]({})\n\n", plot->title, file);
        out_.files.emplace_back(file, svg(*plot));
      }
    }
    out_.text += wrapped_paragraph(fmt::format("Repeat it with `{}`. {} pieces, {:.0f} s, commit {}, on {}.",
                                               chapter.command, chapter.pieces, chapter.seconds,
                                               fmt::join(chapter.commits, ", "), fmt::join(chapter.machines, " and ")));
  }

  const Report& report_;
  Markdown out_;
};

}  // namespace

Markdown markdown(const Report& report) { return Writer(report).write(); }

}  // namespace rmsnorm::lab
