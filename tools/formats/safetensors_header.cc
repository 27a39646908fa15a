// The header of a safetensors file: read event by event, so that duplicate keys are seen (a JSON tree keeps the last
// one silently) and nothing deeper than the format allows is ever built.
#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <unordered_set>

#include "tools/error.h"
#include "tools/formats/safetensors.h"
#include "tools/formats/safetensors_dtype.h"

namespace rmsnorm::tools {

namespace {

class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(const std::string& file, SafetensorsHeader& header) : file_(file), header_(header) {}

  bool null() override { return refuse("null"); }
  bool boolean(bool value) override { return refuse(value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return refuse(std::to_string(value)); }
  bool number_float(number_float_t /*value*/, const string_t& text) override { return refuse(text); }
  bool binary(binary_t& /*value*/) override { return refuse("binary data"); }

  bool number_unsigned(number_unsigned_t value) override {
    if (place_ != Place::kShape && place_ != Place::kOffsets) return refuse(std::to_string(value));
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return refuse(std::to_string(value));
    if (place_ == Place::kShape) {
      if (entry_.shape.size() == kMaxRank) {
        fail_input("{}: the shape of {} has more than {} axes; that is the limit", file_, in_quotes(entry_.name),
                   kMaxRank);
      }
      entry_.shape.push_back(static_cast<std::int64_t>(value));
    } else {
      if (offsets_ == 2) return refuse(std::to_string(value));
      (offsets_++ == 0 ? entry_.begin : entry_.end) = value;
    }
    return true;
  }

  bool string(string_t& value) override {
    if (place_ == Place::kMetadata) {
      header_.metadata->emplace_back(key_, std::move(value));
    } else if (place_ == Place::kEntry && key_ == "dtype") {
      entry_.dtype = std::move(value);
    } else {
      return refuse(in_quotes(value));
    }
    return true;
  }

  bool start_object(std::size_t /*count*/) override {
    if (place_ == Place::kStart) {
      place_ = Place::kRoot;
    } else if (place_ == Place::kRoot && key_ == kSafetensorsMetadata) {
      place_ = Place::kMetadata;
      keys_.clear();
      header_.metadata.emplace();
    } else if (place_ == Place::kRoot) {
      place_ = Place::kEntry;
      keys_.clear();
      offsets_ = 0;
      entry_ = {};
      entry_.name = key_;
    } else {
      return refuse("an object");
    }
    return true;
  }

  bool end_object() override {
    if (place_ == Place::kEntry) {
      for (const char* wanted : {"dtype", "shape", "data_offsets"}) {
        if (!keys_.contains(wanted)) {
          fail_input("{}: {} of tensor {} is missing; it must be there", file_, wanted, in_quotes(entry_.name));
        }
      }
      if (offsets_ != 2) {
        fail_input("{}: data_offsets of tensor {} has {} numbers; it must be 2", file_, in_quotes(entry_.name),
                   offsets_);
      }
      header_.entries.push_back(std::move(entry_));
    }
    place_ = place_ == Place::kRoot ? Place::kEnd : Place::kRoot;
    return true;
  }

  bool start_array(std::size_t /*count*/) override {
    if (place_ == Place::kEntry && key_ == "shape") {
      place_ = Place::kShape;
    } else if (place_ == Place::kEntry && key_ == "data_offsets") {
      place_ = Place::kOffsets;
    } else {
      return refuse("a list");
    }
    return true;
  }

  bool end_array() override {
    place_ = Place::kEntry;
    return true;
  }

  bool key(string_t& value) override {
    auto& seen = place_ == Place::kRoot ? names_ : keys_;
    if (!seen.insert(value).second) {
      fail_input("{}: header key {} is given twice; it must be given once", file_, in_quotes(value));
    }
    if (place_ == Place::kEntry && value != "dtype" && value != "shape" && value != "data_offsets") {
      fail_input("{}: tensor {} has the key {}; it must be dtype, shape or data_offsets", file_, in_quotes(entry_.name),
                 in_quotes(value));
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& token, const nlohmann::detail::exception& error) override {
    const char* why = std::string_view(error.what()).find("UTF-8") != std::string_view::npos ? "UTF-8" : "JSON";
    fail_input("{}: header byte {} is near {}; it must be valid {}", file_, position, in_quotes(token), why);
  }

 private:
  enum class Place { kStart, kRoot, kMetadata, kEntry, kShape, kOffsets, kEnd };

  bool refuse(const std::string& value) {
    switch (place_) {
      case Place::kMetadata:
        fail_input("{}: metadata {} is {}; it must be a string", file_, in_quotes(key_), value);
      case Place::kRoot:
        fail_input("{}: {} is {}; it must be an object", file_, in_quotes(key_), value);
      case Place::kEntry:
        fail_input("{}: {} of tensor {} is {}; it must be {}", file_, key_, in_quotes(entry_.name), value,
                   key_ == "dtype" ? "a string" : "a list");
      case Place::kShape:
        fail_input("{}: shape of tensor {} holds {}; it must be integers from 0 to 2^63 - 1", file_,
                   in_quotes(entry_.name), value);
      case Place::kOffsets:
        fail_input("{}: data_offsets of tensor {} holds {}; it must be two integers from 0 to 2^63 - 1", file_,
                   in_quotes(entry_.name), value);
      default:
        fail_input("{}: the header is {}; it must be an object", file_, value);
    }
  }

  const std::string& file_;
  SafetensorsHeader& header_;
  Place place_ = Place::kStart;
  std::string key_;
  SafetensorsEntry entry_;
  int offsets_ = 0;
  std::unordered_set<std::string> names_;  // keys of the root object
  std::unordered_set<std::string> keys_;   // keys of the object inside it
};

void check_size(const SafetensorsEntry& entry, const std::string& file) {
  if (entry.begin > entry.end) {
    fail_input("{}: data_offsets of tensor {} is [{}, {}]; it must not run backwards", file, in_quotes(entry.name),
               entry.begin, entry.end);
  }
  const auto count = element_count(entry.shape);
  if (!count) {
    fail_input("{}: shape of tensor {} is {}; it must have less than 2^63 elements", file, in_quotes(entry.name),
               shape_text(entry.shape));
  }
  const auto bits = safetensors_bits(entry.dtype);
  if (!bits) return;  // an unknown type: its bytes can be copied, and reading it is refused by name
  std::uint64_t wanted = 0;
  std::uint64_t present = 0;
  const bool overflow =
      __builtin_mul_overflow(static_cast<std::uint64_t>(*count), static_cast<std::uint64_t>(*bits), &wanted) ||
      __builtin_mul_overflow(entry.end - entry.begin, std::uint64_t{8}, &present);
  if (overflow || wanted != present) {
    fail_input("{}: tensor {} is {} {}, and its data_offsets are [{}, {}]; they must span {} bits", file,
               in_quotes(entry.name), entry.dtype, shape_text(entry.shape), entry.begin, entry.end,
               overflow ? "2^64 or more" : std::to_string(wanted));
  }
}

}  // namespace

const SafetensorsEntry* SafetensorsHeader::find(std::string_view name) const {
  const auto found = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.name == name; });
  return found == entries.end() ? nullptr : &*found;
}

SafetensorsHeader read_safetensors_header(const Source& source) {
  const std::string& file = source.name();
  constexpr std::uint64_t kLengthBytes = 8;
  if (source.size() < kLengthBytes) {
    fail_input("{}: the file has {} bytes; it must have at least 8, the header length", file, source.size());
  }
  std::array<unsigned char, kLengthBytes> little_endian{};
  source.read(0, std::as_writable_bytes(std::span(little_endian)));
  std::uint64_t length = 0;
  for (std::size_t i = kLengthBytes; i-- > 0;) length = length << 8 | little_endian[i];
  if (length > kMaxSafetensorsHeaderBytes) {
    fail_input("{}: header length is {}; it must be at most {}", file, length, kMaxSafetensorsHeaderBytes);
  }
  if (length > source.size() - kLengthBytes) {
    fail_input("{}: header length is {}; it must fit into the file of {} bytes", file, length, source.size());
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(kLengthBytes, std::as_writable_bytes(std::span(text)));
  if (text.empty() || text.front() != '{') {
    fail_input("{}: the header begins with {}; it must begin with '{{'", file, in_quotes(text.substr(0, 1)));
  }

  SafetensorsHeader header;
  HeaderReader reader(file, header);
  nlohmann::json::sax_parse(text, &reader);
  header.data_start = kLengthBytes + length;

  for (const auto& entry : header.entries) check_size(entry, file);
  std::stable_sort(header.entries.begin(), header.entries.end(),
                   [](const auto& a, const auto& b) { return a.begin != b.begin ? a.begin < b.begin : a.end < b.end; });
  std::uint64_t expected = 0;
  for (const auto& entry : header.entries) {
    if (entry.begin != expected) {
      fail_input("{}: data of tensor {} begins at {}; it must begin at {}, where the one before it ends ({})", file,
                 in_quotes(entry.name), entry.begin, expected, entry.begin < expected ? "overlap" : "hole");
    }
    expected = entry.end;
  }
  const std::uint64_t present = source.size() - header.data_start;
  if (expected != present) {
    fail_input("{}: the tensors end at data byte {}; it must be {}, the end of the file", file, expected, present);
  }
  return header;
}

}  // namespace rmsnorm::tools
