#include "convert/checkpoint/json_text.h"

#include <unordered_set>
#include <vector>

#include "convert/refusal.h"
#include "tools/formats/source.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::in_quotes;

// Looks at every event before a tree is built: what it refuses is never held in memory.
class Limits : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Limits(const std::string& name) : name_(name) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (!keys_.back().insert(value).second) {
      refuse(RefusalCode::kMalformed, name_, "the key {} is given twice; it must be given once", in_quotes(value));
    }
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception&) override {
    refuse(RefusalCode::kMalformed, name_, "byte {} is near {}; it must be valid JSON", position, in_quotes(token));
  }

 private:
  bool open() {
    if (keys_.size() >= static_cast<std::size_t>(kMaxJsonDepth)) {
      refuse(RefusalCode::kMalformed, name_, "the JSON is nested more than {} levels deep; that is the limit",
             kMaxJsonDepth);
    }
    keys_.emplace_back();
    return true;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  const std::string& name_;
  std::vector<std::unordered_set<std::string>> keys_;  // of the objects that are open
};

}  // namespace

Json parse_json(std::string_view text, const std::string& name, std::size_t max_bytes) {
  if (text.size() > max_bytes) {
    refuse(RefusalCode::kMalformed, name, "the file has {} bytes; it must have at most {}", text.size(), max_bytes);
  }
  Limits limits(name);
  nlohmann::json::sax_parse(text, &limits);
  return Json::parse(text);
}

std::string read_text(const std::string& path, std::size_t max_bytes) {
  const tools::FileSource source(path);
  if (source.size() > max_bytes) {
    refuse(RefusalCode::kMalformed, path, "the file has {} bytes; it must have at most {}", source.size(), max_bytes);
  }
  std::string text(static_cast<std::size_t>(source.size()), '\0');
  source.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace rmsnorm::convert::checkpoint
