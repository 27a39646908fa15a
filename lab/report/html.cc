#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "lab/report/report.h"
#include "lab/report/svg.h"
#include "lab/report/text.h"

namespace rmsnorm::lab {

namespace {

// On a narrow screen each row of the ledger becomes a block with its columns' names; other tables scroll on their own,
// so that the page never does.
constexpr char kStyle[] = R"(
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; font: 16px/1.5 system-ui, sans-serif; color: #1a1a1a; background: #fff; overflow-wrap: break-word; }
main { max-width: 76rem; margin: 0 auto; padding: 1rem; }
h1 { font-size: 1.6rem; line-height: 1.25; margin: .5rem 0 1rem; }
h2 { font-size: 1.25rem; line-height: 1.3; margin: 0 0 .75rem; }
section { border-top: 2px solid #1a1a1a; margin-top: 2.5rem; padding-top: 1rem; }
p, dl, ul { max-width: 48rem; margin: .5rem 0; }
ul { padding-left: 1.2rem; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem; }
code { font: .92em/1.4 ui-monospace, monospace; background: #f2f2f2; padding: .05em .25em; overflow-wrap: anywhere; }
a { color: #00508a; }
table { border-collapse: collapse; font-size: .9rem; line-height: 1.4; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { text-align: left; vertical-align: top; padding: .3rem .6rem; border-bottom: 1px solid #ccc; }
th { border-bottom: 2px solid #1a1a1a; }
td.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.wide { overflow-x: auto; max-width: 100%; margin: 1rem 0; }
.wide table { overflow-wrap: normal; }
.verdict { font-weight: 600; }
.v0 { color: #00634a; } .v1 { color: #a63f00; } .v2 { color: #6b4e00; } .v3, .v4 { color: #444; }
.plots { display: flex; flex-wrap: wrap; gap: 1rem 2rem; }
figure { margin: 1rem 0; flex: 1 1 26rem; min-width: 0; max-width: 30rem; break-inside: avoid; }
figcaption { font-weight: 600; font-size: .95rem; }
svg { display: block; width: 100%; height: auto; }
@media (max-width: 700px) {
  main { padding: .75rem; }
  #ledger, #ledger caption, #ledger tbody, #ledger tr, #ledger td { display: block; }
  #ledger thead { display: none; }
  #ledger tr { border-bottom: 2px solid #1a1a1a; padding: .5rem 0; }
  #ledger td { border: 0; padding: .1rem 0; }
  #ledger td[data-label]::before { content: attr(data-label) ": "; color: #555; }
}
@media print {
  @page { margin: 14mm; }
  body { font-size: 10pt; }
  main { max-width: none; padding: 0; }
  table { font-size: 8pt; }
  tr, dd, li { break-inside: avoid; }
  h2, caption { break-after: avoid; }
  .wide { overflow: visible; }
  a { color: inherit; text-decoration: none; }
}
)";

// Text with `code` in backticks.
std::string inline_text(std::string_view text) {
  std::string result;
  for (bool code = false;; code = !code) {
    const std::size_t tick = text.find('`');
    const bool closed = tick != std::string_view::npos && (code || text.find('`', tick + 1) != std::string_view::npos);
    result += escaped(closed ? text.substr(0, tick) : text);
    if (!closed) return result;
    result += code ? "</code>" : "<code>";
    text.remove_prefix(tick + 1);
  }
}

std::string verdict_html(Verdict verdict) {
  return fmt::format("<span class=\"verdict v{}\">{}</span>", static_cast<int>(verdict), name_of(verdict));
}

// A cell that starts like a number stands at the right.
bool is_number(const std::string& cell) {
  constexpr std::string_view kMinus = "−";
  std::string_view text = cell;
  if (text.starts_with(kMinus)) text.remove_prefix(kMinus.size());
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return !text.empty() && text[0] >= '0' && text[0] <= '9' && text_width(text) < 22;
}

std::string part_html(const Text& text) { return fmt::format("<p>{}</p>\n", inline_text(text.paragraph)); }

std::string part_html(const Table& table) {
  std::string result =
      fmt::format("<div class=\"wide\"><table><caption>{}</caption>\n<thead><tr>", inline_text(table.title));
  for (const std::string& column : table.columns) result += fmt::format("<th>{}</th>", inline_text(column));
  result += "</tr></thead>\n<tbody>\n";
  for (const auto& row : table.rows) {
    result += "<tr>";
    for (const std::string& cell : row) {
      result += fmt::format("<td{}>{}</td>", is_number(cell) ? " class=\"n\"" : "", inline_text(cell));
    }
    result += "</tr>\n";
  }
  return result + "</tbody></table></div>\n";
}

std::string part_html(const Plot& plot) {
  return fmt::format("<figure><figcaption>{}</figcaption>\n{}</figure>\n", inline_text(plot.title), svg(plot));
}

std::string ledger(const Report& report) {
  const std::vector<std::string> machines = machines_of(report);
  std::string result = "<table id=\"ledger\"><caption>The ledger of claims</caption>\n<thead><tr>";
  for (const char* column : kLedgerColumns) result += fmt::format("<th>{}</th>", column);
  result += "</tr></thead>\n<tbody>\n";
  for (const Chapter& chapter : report.chapters) {
    for (const Finding& finding : chapter.page.findings) {
      const std::string cells[] = {
          fmt::format("<a href=\"#{}\">{}</a>", escaped(chapter.name), chapter.number),
          inline_text(finding.claim),
          inline_text(finding.source),
          inline_text(finding.measured),
          machine_letters(chapter, machines),
          verdict_html(finding.verdict),
          inline_text(finding.reason),
      };
      result += "<tr>";
      for (std::size_t i = 0; i < std::size(cells); ++i) {
        const std::string label =
            *kLedgerColumns[i] != '\0' ? fmt::format(" data-label=\"{}\"", kLedgerColumns[i]) : "";
        result += fmt::format("<td{}>{}</td>", label, cells[i]);
      }
      result += "</tr>\n";
    }
  }
  return result + "</tbody></table>\n";
}

std::string chapter_html(const Chapter& chapter) {
  std::string result = fmt::format("<section id=\"{}\">\n<h2>{} · {}</h2>\n", escaped(chapter.name), chapter.number,
                                   inline_text(chapter.title));
  result += fmt::format(
      "<dl><dt>Claim</dt><dd>{}</dd>\n<dt>Design</dt><dd>{}</dd>\n<dt>Rule of the verdict</dt><dd>{}</dd></dl>\n",
      inline_text(chapter.claim), inline_text(chapter.design), inline_text(chapter.rule));
  result += "<ul>\n";
  for (const Finding& finding : chapter.page.findings) {
    result +=
        fmt::format("<li>{}: {} <br/>Measured: {} {}</li>\n", verdict_html(finding.verdict), inline_text(finding.claim),
                    inline_text(as_sentence(finding.measured)), inline_text(as_sentence(finding.reason)));
  }
  result += "</ul>\n";
  bool plots = false;  // neighbouring ones stand side by side where there is room
  for (const auto& part : chapter.page.parts) {
    const bool plot = std::holds_alternative<Plot>(part);
    if (plot != plots) result += plot ? "<div class=\"plots\">\n" : "</div>\n";
    plots = plot;
    result += std::visit([](const auto& p) { return part_html(p); }, part);
  }
  if (plots) result += "</div>\n";
  result += fmt::format("<p>Repeat it with <code>{}</code>. {} pieces, {:.0f} s, commit {}, on {}.</p>\n",
                        escaped(chapter.command), chapter.pieces, chapter.seconds,
                        escaped(fmt::format("{}", fmt::join(chapter.commits, ", "))),
                        escaped(fmt::format("{}", fmt::join(chapter.machines, " and "))));
  return result + "</section>\n";
}

}  // namespace

std::string html(const Report& report) {
  std::string result = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<title>{}</title>\n"
      "<style>{}</style>\n</head>\n<body>\n<main>\n<h1>{}</h1>\n",
      kReportTitle, kStyle, kReportTitle);
  for (const std::string& paragraph : introduction(report)) result += part_html(Text{paragraph});
  result += ledger(report);
  for (const Chapter& chapter : report.chapters) result += chapter_html(chapter);
  return result + "</main>\n</body>\n</html>\n";
}

}  // namespace rmsnorm::lab
