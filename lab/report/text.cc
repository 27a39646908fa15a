#include "lab/report/text.h"

#include <fmt/format.h>

#include <cmath>

#include "tools/xml.h"

namespace rmsnorm::lab {

namespace {

constexpr std::string_view kSuperscripts[] = {"⁰", "¹", "²", "³", "⁴", "⁵", "⁶", "⁷", "⁸", "⁹"};

std::string superscript(int exponent) {
  std::string text = exponent < 0 ? "⁻" : "";
  for (const char digit : std::to_string(std::abs(exponent))) text += kSuperscripts[digit - '0'];
  return text;
}

// Per em, of one code point: as wide as DejaVu Sans, which is wider than most.
double character_width(std::string_view character) {
  const auto first = static_cast<unsigned char>(character[0]);
  if (first >= 0xe3 && first < 0xf0) return 1;  // East Asian
  if (first >= 0x80) return 0.66;
  const char c = character[0];
  if (std::string_view("iljtfI.,:;'|!()[] ").find(c) != std::string_view::npos) return 0.4;
  if (std::string_view("mwMW@%").find(c) != std::string_view::npos) return 0.98;
  return c >= 'A' && c <= 'Z' ? 0.75 : 0.63;
}

}  // namespace

std::string_view name_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::kHolds:
      return "holds";
    case Verdict::kRefuted:
      return "refuted";
    case Verdict::kPartly:
      return "holds in part";
    case Verdict::kNotSettled:
      return "not settled";
    case Verdict::kCannotBeTestedHere:
      return "cannot be tested here";
  }
  return "?";
}

std::string as_sentence(std::string_view text) { return std::string(text) + (text.ends_with('.') ? "" : "."); }

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (static_cast<unsigned char>(c) >= 0x20 || c == '\n' || c == '\t') result += c;
  }
  return tools::xml_escaped(result);
}

std::vector<std::string_view> characters(std::string_view text) {
  std::vector<std::string_view> list;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) ++end;
    list.push_back(text.substr(at, end - at));
    at = end;
  }
  return list;
}

double text_width(std::string_view text) {
  double width = 0;
  for (const std::string_view character : characters(text)) width += character_width(character);
  return width;
}

std::vector<std::string> wrapped(std::string_view text, double width, double size) {
  std::vector<std::string> lines(1);
  const auto fits = [&](const std::string& line) { return text_width(line) * size <= width; };
  while (!text.empty()) {
    const std::size_t space = text.find(' ');
    const std::string word(text.substr(0, space));
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    const std::string longer = lines.back().empty() ? word : lines.back() + " " + word;
    if (fits(longer)) {
      lines.back() = longer;
      continue;
    }
    if (!lines.back().empty()) lines.emplace_back();
    for (const std::string_view character : characters(word)) {  // a word wider than a line is cut
      if (!lines.back().empty() && !fits(lines.back() + std::string(character))) lines.emplace_back();
      lines.back() += character;
    }
  }
  return lines;
}

std::string number_text(double value, int digits) {
  if (!std::isfinite(value)) return std::isnan(value) ? "not a number" : value > 0 ? "∞" : "−∞";
  const double magnitude = std::abs(value);
  std::string text;
  if (magnitude == 0 || (magnitude >= 1e-3 && magnitude < 1e6)) {
    text = fmt::format("{:.{}g}", value,
                       std::max(digits, magnitude >= 1 ? static_cast<int>(std::log10(magnitude)) + 1 : 1));
  } else {
    int exponent = static_cast<int>(std::floor(std::log10(magnitude)));
    std::string mantissa = fmt::format("{:.{}g}", value / std::pow(10.0, exponent), digits);
    if (mantissa == "10" || mantissa == "-10") mantissa.pop_back(), ++exponent;
    const std::string power = "10" + superscript(exponent);
    text = mantissa == "1" ? power : mantissa == "-1" ? "-" + power : mantissa + "×" + power;
  }
  if (text[0] == '-') text.replace(0, 1, "−");
  return text;
}

}  // namespace rmsnorm::lab
