#include "tools/formats/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <charconv>
#include <cstring>

#include "tools/error.h"

namespace rmsnorm::tools {

namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::size_t kNpyAlignment = 64;

// The header is a Python dictionary; this reads the few forms that one with these three keys can have.
class DictionaryParser {
 public:
  DictionaryParser(std::string_view text, const std::string& file) : rest_(text), file_(file) {}

  NpyHeader parse() {
    NpyHeader header;
    bool seen_descr = false;
    bool seen_order = false;
    bool seen_shape = false;
    expect('{', "a dictionary");
    while (!take('}')) {
      const std::string_view key = string_literal("a key in quotes");
      expect(':', "':' after a key");
      if (key == "descr") {
        once(seen_descr, key);
        if (peek() == '[') fail_input("{}: descr is a structured type; it must be a plain type", file_);
        header.descr = string_literal("a type in quotes");
      } else if (key == "fortran_order") {
        once(seen_order, key);
        header.fortran_order = boolean();
      } else if (key == "shape") {
        once(seen_shape, key);
        header.shape = tuple();
      } else {
        fail_input("{}: header key is {}; it must be descr, fortran_order or shape", file_, in_quotes(key));
      }
      if (take(',')) continue;
      expect('}', "',' or '}' after a value");
      break;
    }
    skip_space();
    if (!rest_.empty()) fail_input("{}: the header goes on with {}; it must end there", file_, in_quotes(rest_));
    if (!seen_descr || !seen_order || !seen_shape) {
      fail_input("{}: header key {} is missing; it must be there", file_,
                 !seen_descr ? "descr" : (!seen_order ? "fortran_order" : "shape"));
    }
    return header;
  }

 private:
  void skip_space() {
    const std::size_t first = rest_.find_first_not_of(" \t\r\n");
    rest_.remove_prefix(std::min(first, rest_.size()));
  }

  char peek() {
    skip_space();
    return rest_.empty() ? '\0' : rest_.front();
  }

  bool take(char c) {
    if (peek() != c || rest_.empty()) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void expect(char c, std::string_view what) {
    if (!take(c)) fail_input("{}: the header has {}; it must be {}", file_, in_quotes(rest_), what);
  }

  void once(bool& seen, std::string_view key) {
    if (seen) fail_input("{}: header key {} is given twice; it must be given once", file_, in_quotes(key));
    seen = true;
  }

  std::string_view string_literal(std::string_view what) {
    const char quote = peek() == '"' ? '"' : '\'';
    expect(quote, what);
    const std::size_t end = rest_.find(quote);
    const std::string_view text = rest_.substr(0, std::min(end, rest_.size()));
    if (end == std::string_view::npos || text.find('\\') != std::string_view::npos) {
      fail_input("{}: the header has {}; it must be {}", file_, in_quotes(rest_), what);
    }
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool boolean() {
    skip_space();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (rest_.substr(0, word.size()) == word) {
        rest_.remove_prefix(word.size());
        return value;
      }
    }
    fail_input("{}: fortran_order is {}; it must be True or False", file_, in_quotes(rest_));
  }

  Shape tuple() {
    Shape shape;
    expect('(', "a tuple after 'shape'");
    bool comma = true;
    while (!take(')')) {
      if (!comma) fail_input("{}: the header has {}; it must be ',' or ')' in the shape", file_, in_quotes(rest_));
      shape.push_back(length());
      if (shape.size() > kMaxRank)
        fail_input("{}: the shape has more than {} axes; that is the limit", file_, kMaxRank);
      comma = take(',');
      if (shape.size() == 1 && !comma && peek() == ')') {
        fail_input("{}: shape is ({}), a number; it must be a tuple, ({},)", file_, shape[0], shape[0]);
      }
    }
    return shape;
  }

  std::int64_t length() {
    skip_space();
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), value);
    if (error != std::errc() || value < 0) {
      fail_input("{}: an axis is {}; it must be a number from 0 to 2^63 - 1", file_, in_quotes(rest_));
    }
    rest_.remove_prefix(static_cast<std::size_t>(end - rest_.data()));
    return value;
  }

  std::string_view rest_;
  const std::string& file_;
};

rn_type element_type(const std::string& descr, const std::string& file, std::optional<rn_type> raw_type,
                     bool* raw_used) {
  if (descr == "<f4") return RN_F32;
  if (descr == "<f2") return RN_F16;
  if (descr == "<f8") return RN_F64;
  if (descr == "<i4") return RN_I32;
  if (descr == "<i8") return RN_I64;
  if (descr == "|i1") return RN_I8;
  if (descr == "|V2" || descr == "<V2" || descr == "V2") {
    if (!raw_type) {
      fail_input(
          "{}: element type is {}, two bytes that NumPy has no name for; --type bf16 (or f16) must say what they "
          "are",
          file, in_quotes(descr));
    }
    if (rn_type_size(*raw_type) != 2) {
      fail_input("{}: element type is {} and --type is {}; for such elements it must be bf16 or f16", file,
                 in_quotes(descr), rn_type_name(*raw_type));
    }
    if (raw_used != nullptr) *raw_used = true;
    return *raw_type;
  }
  if (!descr.empty() && descr.front() == '>') {
    fail_input("{}: element type is {}, big-endian; it must be little-endian ('<f4', '<f2', '<f8')", file,
               in_quotes(descr));
  }
  fail_input("{}: element type is {}; it must be '<f4', '<f2', '<f8', '|V2' (bf16), '|i1', '<i4' or '<i8'", file,
             in_quotes(descr));
}

// Turns a column-major array into a row-major one. Only files that people wrote with order='F' need it.
Tensor to_c_order(const Tensor& fortran) {
  Tensor result = make_tensor(fortran.type, fortran.shape);
  const std::size_t size = rn_type_size(fortran.type);
  const std::size_t rank = fortran.shape.size();
  std::vector<std::size_t> stride(rank, size);  // of the column-major source, bytes
  for (std::size_t axis = 1; axis < rank; ++axis) {
    stride[axis] = stride[axis - 1] * static_cast<std::size_t>(fortran.shape[axis - 1]);
  }
  std::vector<std::int64_t> index(rank, 0);
  std::size_t from = 0;
  for (std::size_t to = 0; to < result.data.size(); to += size) {
    std::memcpy(result.data.data() + to, fortran.data.data() + from, size);
    for (std::size_t axis = rank; axis-- > 0;) {
      from += stride[axis];
      if (++index[axis] < fortran.shape[axis]) break;
      from -= stride[axis] * static_cast<std::size_t>(fortran.shape[axis]);
      index[axis] = 0;
    }
  }
  return result;
}

}  // namespace

NpyHeader read_npy_header(const Source& source) {
  const std::string& file = source.name();
  std::array<unsigned char, 12> start{};
  const std::size_t available = static_cast<std::size_t>(std::min<std::uint64_t>(start.size(), source.size()));
  source.read(0, std::as_writable_bytes(std::span(start).first(available)));
  if (available < 10 || std::memcmp(start.data(), kMagic.data(), kMagic.size()) != 0) {
    fail_input("{}: the file does not begin with \\x93NUMPY and a header; it must be a .npy file", file);
  }
  const int major = start[6];
  const int minor = start[7];
  if (major < 1 || major > 3 || minor != 0) {
    fail_input("{}: format version is {}.{}; it must be 1.0, 2.0 or 3.0", file, major, minor);
  }
  const std::size_t header_start = major == 1 ? 10 : 12;
  std::uint64_t length = start[8] | static_cast<std::uint64_t>(start[9]) << 8;
  if (major > 1) length |= static_cast<std::uint64_t>(start[10]) << 16 | static_cast<std::uint64_t>(start[11]) << 24;
  if (length > kMaxNpyHeaderBytes) {
    fail_input("{}: header length is {}; it must be at most {}", file, length, kMaxNpyHeaderBytes);
  }
  if (source.size() < header_start || length > source.size() - header_start) {
    fail_input("{}: header length is {}; it must fit into the file of {} bytes", file, length, source.size());
  }
  std::string text(static_cast<std::size_t>(length), '\0');
  source.read(header_start, std::as_writable_bytes(std::span(text)));
  NpyHeader header = DictionaryParser(text, file).parse();
  header.data_start = header_start + length;
  return header;
}

Tensor read_npy(const Source& source, std::optional<rn_type> raw_type, bool* raw_used) {
  const std::string& file = source.name();
  const NpyHeader header = read_npy_header(source);
  const rn_type type = element_type(header.descr, file, raw_type, raw_used);
  const auto count = element_count(header.shape);
  std::int64_t bytes = 0;
  if (!count || __builtin_mul_overflow(*count, static_cast<std::int64_t>(rn_type_size(type)), &bytes)) {
    fail_input("{}: shape is {}; it must have less than 2^63 bytes", file, shape_text(header.shape));
  }
  const std::uint64_t present = source.size() - header.data_start;
  if (static_cast<std::uint64_t>(bytes) != present) {
    fail_input("{}: shape {} of {} needs {} bytes of data and the file has {}; they must be equal", file,
               shape_text(header.shape), rn_type_name(type), bytes, present);
  }
  Tensor tensor = make_tensor(type, header.shape);
  source.read(header.data_start, tensor.data.bytes());
  return header.fortran_order && header.shape.size() > 1 ? to_c_order(tensor) : std::move(tensor);
}

std::string npy_header(rn_type type, const Shape& shape) {
  // By rn_type. NumPy has no bf16 and no f8: they are raw elements, as ml_dtypes writes them.
  constexpr const char* kDescr[] = {"<f4", "<f2", "|V2", "<f8", "|i1", "|V1", "|V1", "<i4", "<i8"};
  const char* descr = kDescr[type];
  const std::string axes =
      shape.size() == 1 ? fmt::format("({},)", shape[0]) : fmt::format("({})", fmt::join(shape, ", "));
  std::string text = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': {}, }}", descr, axes);
  constexpr std::size_t kBefore = 10;  // magic, version, length
  const std::size_t padded = (kBefore + text.size() + 1 + kNpyAlignment - 1) / kNpyAlignment * kNpyAlignment;
  text.append(padded - kBefore - text.size() - 1, ' ');
  text += '\n';
  std::string header(kMagic);
  header += {'\1', '\0', static_cast<char>(text.size() & 0xff), static_cast<char>(text.size() >> 8)};
  return header + text;
}

}  // namespace rmsnorm::tools
