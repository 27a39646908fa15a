#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <span>
#include <sstream>
#include <utility>

#include "lab/experiments/commit.h"
#include "lab/experiments/experiment.h"
#include "lab/experiments/turn.h"
#include "tools/error.h"
#include "tools/formats/output_file.h"
#include "tools/machine.h"

namespace rmsnorm::lab {

namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr struct {
  Scale scale;
  const char* name;
} kScales[] = {{Scale::kSmoke, "smoke"}, {Scale::kQuick, "quick"}, {Scale::kFull, "full"}};

constexpr char kExtension[] = ".json";
constexpr char kScratch[] = "scratch";
constexpr std::uintmax_t kLargestPiece = std::uintmax_t{256} << 20;
constexpr char kNotFinite[] = "not_finite";  // {"not_finite": "nan"}: JSON has no such numbers

std::string& command() {
  static std::string line = "unknown";
  return line;
}

std::string machine_text() {
  const tools::Machine machine = tools::this_machine();
  return fmt::format("{}, {} CPUs, L2 {}, L3 {}, memory {}", machine.cpu, machine.cpus,
                     tools::bytes_text(machine.l2_bytes), tools::bytes_text(machine.l3_bytes),
                     tools::bytes_text(machine.memory_bytes));
}

json without_infinities(const json& value) {
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    return {{kNotFinite, std::isnan(number) ? "nan" : number > 0 ? "inf" : "-inf"}};
  }
  if (!value.is_structured()) return value;
  json result = value;
  for (auto& item : result) item = without_infinities(item);
  return result;
}

json with_infinities(const json& value) {
  if (value.is_object() && value.size() == 1 && value.contains(kNotFinite) && value[kNotFinite].is_string()) {
    return std::strtod(value[kNotFinite].get<std::string>().c_str(), nullptr);
  }
  if (!value.is_structured()) return value;
  json result = value;
  for (auto& item : result) item = with_infinities(item);
  return result;
}

void check_key(const std::string& key) {
  const bool good = !key.empty() && key.size() <= 100 && std::all_of(key.begin(), key.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
  if (!good) {
    throw std::invalid_argument("key is " + tools::in_quotes(key) + "; it must be 1 to 100 of a-z, 0-9, _ and -");
  }
}

json parse_file(const fs::path& file) {
  const std::string shown = tools::printable(file.string());
  std::error_code error;
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) tools::fail(tools::ExitCode::kInputOutput, "{}: cannot read: {}", shown, error.message());
  if (size > kLargestPiece) {
    tools::fail_input("{}: the file has {} bytes; a piece must have at most {}", shown, size, kLargestPiece);
  }
  std::ifstream in(file, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) tools::fail(tools::ExitCode::kInputOutput, "{}: cannot read", shown);
  json content = json::parse(text.str(), nullptr, false);
  if (!content.is_object())
    tools::fail_input("{}: the file is no JSON object; remove it to make the piece again", shown);
  return content;
}

template <class T>
T member(const json& content, const char* name, const fs::path& file) {
  try {
    return content.at(name).get<T>();
  } catch (const json::exception&) {
    tools::fail_input("{}: \"{}\" is missing or of the wrong type; remove the file to make the piece again",
                      tools::printable(file.string()), name);
  }
}

void require_equal(const json& content, const char* name, const std::string& expected, const fs::path& file,
                   const char* advice) {
  const std::string found = member<std::string>(content, name, file);
  if (found != expected) {
    tools::fail_input("{}: {} is {}; it must be '{}'{}", tools::printable(file.string()), name, tools::in_quotes(found),
                      expected, advice);
  }
}

// What runs, on a terminal; what has run, as a line that stays.
class Line {
 public:
  Line(bool shown, std::string text) : shown_(shown), text_(std::move(text)) {
    if (shown_ && ::isatty(STDERR_FILENO) == 1) {
      fmt::print(stderr, "\r\x1b[K{} ..", text_);
      std::fflush(stderr);
    }
  }
  void done(double seconds) const {
    if (!shown_) return;
    fmt::print(stderr, "{}{}: {:.1f} s\n", ::isatty(STDERR_FILENO) == 1 ? "\r\x1b[K" : "", text_, seconds);
  }

 private:
  bool shown_;
  std::string text_;
};

}  // namespace

std::string name_of(Scale scale) { return kScales[static_cast<int>(scale)].name; }

Scale scale_named(const std::string& name) {
  for (const auto& named : kScales) {
    if (name == named.name) return named.scale;
  }
  throw std::invalid_argument("scale is " + tools::in_quotes(name) + "; it must be smoke, quick or full");
}

void set_command(const std::string& line) { command() = line; }

Context::Context(Scale scale, fs::path folder, bool progress)
    : scale_(scale), folder_(std::move(folder)), progress_(progress) {
  if (!folder_.has_filename()) folder_ = folder_.parent_path();  // "cost/"
}

json Context::piece(const std::string& key, const std::function<json()>& work) {
  return find_or_make(key, false, work);
}

std::vector<json> Context::timed_pieces(const std::string& key, const std::function<json()>& work) {
  std::vector<json> pieces;
  for (int start = 1; start <= starts(); ++start) {
    pieces.push_back(find_or_make(fmt::format("{}-{}", key, start), true, work));
  }
  return pieces;
}

json Context::find_or_make(const std::string& key, bool alone, const std::function<json()>& work) {
  check_key(key);
  if (!running_.empty()) throw std::logic_error(fmt::format("piece {}: {} is not done yet", key, running_));
  const fs::path file = folder_ / (key + kExtension);
  if (!fs::exists(file)) {
    if (read_only_ || (!only_.empty() && key != only_)) throw MissingPiece(fmt::format("piece {} is missing", key));
    if (alone && start_) {
      start_(key);
    } else {
      make(key, file, alone, work);
    }
  }
  json value = read(key, file);  // what a later run will find, to the bit
  if (key == only_) throw PieceMade();
  return value;
}

json Context::read(const std::string& key, const fs::path& file) {
  const json content = parse_file(file);
  require_equal(content, "experiment", folder_.filename().string(), file, "");
  require_equal(content, "key", key, file, "");
  require_equal(content, "scale", name_of(scale_), file, ": scales do not mix, each needs a folder of its own");
  provenance_.push_back({key, member<std::string>(content, "machine", file),
                         member<std::string>(content, "commit", file), member<std::string>(content, "command", file),
                         member<double>(content, "seconds", file)});
  return with_infinities(member<json>(content, "value", file));
}

void Context::make(const std::string& key, const fs::path& file, bool alone, const std::function<json()>& work) {
  tools::make_folder(folder_);
  const Turn turn(folder_.parent_path(), alone);
  const Line line(progress_, fmt::format("{}: {}", folder_.filename().string(), key));
  running_ = key;
  const auto start = std::chrono::steady_clock::now();
  json value;
  try {
    value = work();
  } catch (...) {
    running_.clear();
    throw;
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const json content = {{"experiment", folder_.filename().string()},
                        {"key", key},
                        {"scale", name_of(scale_)},
                        {"machine", machine_text()},
                        {"commit", kCommit},
                        {"command", command()},
                        {"seconds", seconds},
                        {"value", without_infinities(value)}};
  const std::string text = content.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
  tools::OutputFile output(file.string());
  output.write(std::as_bytes(std::span(text)));
  output.finish();
  output.publish();
  std::error_code ignored;
  fs::remove_all(folder_ / kScratch / running_, ignored);
  running_.clear();
  line.done(seconds);
}

fs::path Context::scratch() const {
  const fs::path folder = folder_ / kScratch / running_;
  fs::create_directories(folder);
  return folder;
}

std::optional<Scale> scale_of_pieces(const fs::path& folder) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    if (entry.path().extension() != kExtension) continue;
    const std::string name = member<std::string>(parse_file(entry.path()), "scale", entry.path());
    try {
      return scale_named(name);
    } catch (const std::invalid_argument& wrong) {
      tools::fail_input("{}: {}", tools::printable(entry.path().string()), wrong.what());
    }
  }
  return std::nullopt;
}

}  // namespace rmsnorm::lab
