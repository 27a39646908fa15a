// Text in XML and HTML.
#ifndef RMSNORM_TOOLS_XML_H_
#define RMSNORM_TOOLS_XML_H_

#include <string>
#include <string_view>

namespace rmsnorm::tools {

// Text as content or in an attribute between double quotes. What control characters become is the caller's to say.
inline std::string xml_escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

}  // namespace rmsnorm::tools

#endif  // RMSNORM_TOOLS_XML_H_
