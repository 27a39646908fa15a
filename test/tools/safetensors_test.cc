// safetensors files: BL-71 (every type, byte for byte), and hostile headers one by one.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tools/error.h"
#include "tools/formats/safetensors.h"

namespace rmsnorm::tools {
namespace {

std::string file(const std::string& header, const std::string& data = "") {
  std::string text;
  for (std::size_t i = 0; i < 8; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + data;
}

std::string entry(const std::string& name, const std::string& dtype, const std::string& shape,
                  const std::string& offsets) {
  return "\"" + name + "\":{\"dtype\":\"" + dtype + "\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}

SafetensorsHeader header_of(const std::string& bytes) {
  return read_safetensors_header(MemorySource("m.safetensors", std::as_bytes(std::span(bytes))));
}

Tensor read(const std::string& bytes, const std::string& name) {
  return read_safetensors(MemorySource("m.safetensors", std::as_bytes(std::span(bytes))), header_of(bytes), name);
}

void expect_refused(const std::string& bytes, const std::string& reason, const std::string& name = "") {
  try {
    if (name.empty()) {
      header_of(bytes);
    } else {
      read(bytes, name);
    }
    ADD_FAILURE() << "accepted, but: " << reason;
  } catch (const ToolError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
  }
}

class Folder {
 public:
  Folder() : path_((std::filesystem::temp_directory_path() / "rmsnorm-safetensors-XXXXXX").string()) {
    EXPECT_NE(::mkdtemp(path_.data()), nullptr);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string slurp(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Writes `tensors` over `base` and returns the bytes of the new file.
std::string rewrite(const std::string& base, const std::vector<NamedTensor>& tensors) {
  const Folder folder;
  const std::string path = folder.file("out.safetensors");
  const MemorySource source("base", std::as_bytes(std::span(base)));
  OutputFile out(path);
  write_safetensors(out, base.empty() ? nullptr : &source, tensors);
  out.finish();
  out.publish();
  return slurp(path);
}

std::string raw(const std::string& bytes, const std::string& name) {
  const SafetensorsHeader header = header_of(bytes);
  const SafetensorsEntry* found = header.find(name);
  return found == nullptr ? "missing" : bytes.substr(header.data_start + found->begin, found->end - found->begin);
}

// One tensor of each type, 0-d and empty ones, bf16 patterns that a careless reader would change.
std::string every_type() {
  const std::pair<const char*, std::size_t> types[] = {{"F64", 8}, {"F32", 4},     {"F16", 2},     {"I8", 1},
                                                       {"U8", 1},  {"I64", 8},     {"BOOL", 1},    {"F8_E4M3", 1},
                                                       {"U16", 2}, {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"C64", 8}};
  std::string header = "{\"__metadata__\":{\"format\":\"pt\",\"note\":\"\\u00e9\\u0000\"}";
  std::string data;
  for (const auto& [dtype, size] : types) {
    const std::size_t begin = data.size();
    for (std::size_t i = 0; i < 3 * size; ++i) data += static_cast<char>(17 * i + 200 + begin);
    header += "," + entry(std::string("t.") + dtype, dtype, "[3]",
                          "[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]");
  }
  const auto add = [&](const char* name, const char* dtype, const char* shape, const std::string& bytes) {
    const std::size_t begin = data.size();
    data += bytes;
    header += "," + entry(name, dtype, shape, "[" + std::to_string(begin) + "," + std::to_string(data.size()) + "]");
  };
  add("bf16", "BF16", "[6]",
      std::string("\x00\x80\x01\x00\x80\x7f\xc0\x7f\x81\xff\x80\xff", 12));  // -0, subnormal, inf, NaNs
  add("scalar", "F32", "[]", "abcd");
  add("empty", "F16", "[0,5]", "");
  add("packed", "F4", "[3,2]", "xyz");
  add("future", "Q3_X", "[7]", "12345");
  return file(header + "}", data);
}

TEST(Safetensors, BL_71_untouched_tensors_are_copied_byte_for_byte) {
  const std::string before = every_type();
  const SafetensorsHeader header = header_of(before);
  ASSERT_EQ(header.entries.size(), 17u);
  Tensor added = make_tensor(RN_F32, {1});
  std::memcpy(added.data.data(), "wxyz", 4);
  const std::string after = rewrite(before, {{"added", &added}, {"t.F32", &added}});
  EXPECT_EQ(header_of(after).entries.size(), 18u);
  for (const auto& e : header.entries) {
    const SafetensorsHeader now = header_of(after);
    ASSERT_NE(now.find(e.name), nullptr) << e.name;
    if (e.name == "t.F32") continue;
    EXPECT_EQ(raw(after, e.name), raw(before, e.name)) << e.name;
    EXPECT_EQ(now.find(e.name)->dtype, e.dtype);
    EXPECT_EQ(now.find(e.name)->shape, e.shape);
  }
  EXPECT_EQ(raw(after, "added"), "wxyz");
  EXPECT_EQ(raw(after, "t.F32"), "wxyz");
  EXPECT_EQ(header_of(after).metadata, header.metadata);
  EXPECT_EQ(header_of(after).data_start % 8, 0u);
  EXPECT_EQ(rewrite(after, {}), after);
}

TEST(Safetensors, BL_71_bf16_patterns_are_read_unchanged) {
  const Tensor t = read(every_type(), "bf16");
  EXPECT_EQ(t.type, RN_BF16);
  EXPECT_EQ(std::memcmp(t.data.data(), "\x00\x80\x01\x00\x80\x7f\xc0\x7f\x81\xff\x80\xff", 12), 0);
  EXPECT_EQ(read(every_type(), "scalar").shape, Shape{});
  EXPECT_EQ(read(every_type(), "empty").shape, (Shape{0, 5}));
}

TEST(Safetensors, BL_71_unknown_types_are_refused_by_name_when_read) {
  expect_refused(every_type(), "'Q3_X'", "future");
  expect_refused(every_type(), "'U8'", "t.U8");
  expect_refused(every_type(), "it must be one of", "absent");
}

TEST(Safetensors, misaligned_data_is_read) {
  for (int spaces = 0; spaces < 8; ++spaces) {
    const std::string bytes = file(
        "{" + entry("x", "F64", "[1]", "[0,8]") + "}" + std::string(static_cast<std::size_t>(spaces), ' '), "12345678");
    EXPECT_EQ(std::memcmp(read(bytes, "x").data.data(), "12345678", 8), 0);
  }
}

TEST(Safetensors, a_new_file_holds_what_was_given) {
  Tensor t = make_tensor(RN_BF16, {2, 1});
  std::memcpy(t.data.data(), "abcd", 4);
  Tensor scalar = make_tensor(RN_F64, {});
  std::memcpy(scalar.data.data(), "12345678", 8);
  const std::string bytes = rewrite("", {{"b", &t}, {"a \"quoted\" \xc3\xa9", &scalar}});
  EXPECT_EQ(raw(bytes, "b"), "abcd");
  EXPECT_EQ(raw(bytes, "a \"quoted\" \xc3\xa9"), "12345678");
  EXPECT_EQ(header_of(bytes).find("b")->begin % 8, 0u);
}

// The same bytes in a file of its own and in a new folder, with metadata.
TEST(Safetensors, a_file_of_a_new_folder_holds_the_same) {
  Tensor wide = make_tensor(RN_F64, {1}), narrow = make_tensor(RN_BF16, {2});
  std::memcpy(wide.data.data(), "12345678", 8);
  std::memcpy(narrow.data.data(), "abcd", 4);
  const std::vector<NamedTensor> tensors = {{"narrow", &narrow}, {"wide", &wide}};
  const SafetensorsMetadata metadata = {{"format", "pt"}};
  const Folder folder;
  OutputDirectory out(folder.file("model"));
  write_safetensors(out, "m.safetensors", tensors, metadata);
  out.finish();
  out.publish();
  const std::string in_folder = slurp(folder.file("model/m.safetensors"));
  EXPECT_EQ(header_of(in_folder).metadata, metadata);
  EXPECT_EQ(raw(in_folder, "wide"), "12345678");
  EXPECT_EQ(raw(in_folder, "narrow"), "abcd");
  OutputFile plain(folder.file("m.safetensors"));
  write_safetensors(plain, nullptr, tensors, metadata);
  plain.finish();
  plain.publish();
  EXPECT_EQ(slurp(folder.file("m.safetensors")), in_folder);
}

TEST(Safetensors, names_that_cannot_be_written_are_refused) {
  const Tensor t = make_tensor(RN_F32, {1});
  EXPECT_THROW(rewrite("", {{"__metadata__", &t}}), ToolError);
  EXPECT_THROW(rewrite("", {{"\xff", &t}}), ToolError);
}

TEST(Safetensors, refuses_header_lengths_that_lie) {
  expect_refused("", "at least 8");
  expect_refused("1234567", "at least 8");
  expect_refused(std::string("\x10\0\0\0\0\0\0\0{}", 10), "must fit into the file");
  expect_refused(std::string("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10), "at most 100000000");
  expect_refused(std::string("\0\0\0\0\0\0\0\x80{}", 10), "at most 100000000");
  expect_refused(file(""), "must begin with '{'");
}

TEST(Safetensors, refuses_what_is_no_json_object) {
  expect_refused(file("[1]"), "must begin with '{'");
  expect_refused(file(" {}"), "must begin with '{'");
  expect_refused(file("{"), "valid JSON");
  expect_refused(file("{}{}"), "valid JSON");
  expect_refused(file("{\"a\":}"), "valid JSON");
  expect_refused(file("{" + entry("\xff\xfe", "F32", "[]", "[0,4]") + "}", "abcd"), "valid UTF-8");
  expect_refused(file("{" + entry("\xc0\xaf", "F32", "[]", "[0,4]") + "}", "abcd"), "valid UTF-8");
  expect_refused(file("{\"a\":1}"), "must be an object");
  expect_refused(file("{\"a\":[]}"), "must be an object");
  expect_refused(file("{\"__metadata__\":{\"a\":1}}"), "must be a string");
  expect_refused(file("{\"__metadata__\":{\"a\":{}}}"), "must be a string");
  expect_refused(file("{\"__metadata__\":\"a\"}"), "must be an object");
}

TEST(Safetensors, refuses_depth_at_once) {
  expect_refused(file("{\"a\":{\"shape\":" + std::string(1'000'000, '[')), "holds a list");
  std::string objects = "{";
  for (int i = 0; i < 200'000; ++i) objects += "\"a\":{";
  expect_refused(file(objects), "");
}

TEST(Safetensors, refuses_duplicate_keys) {
  const std::string a = entry("a", "F32", "[]", "[0,4]");
  expect_refused(file("{" + a + "," + a + "}", "abcd"), "'a' is given twice");
  expect_refused(file("{\"\\u0061\":" + a.substr(4) + "," + a + "}", "abcd"), "'a' is given twice");
  expect_refused(file("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}", "abcd"),
                 "'dtype' is given twice");
  expect_refused(file("{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}}"), "'k' is given twice");
}

TEST(Safetensors, refuses_entries_that_are_incomplete_or_too_much) {
  expect_refused(file("{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", "abcd"), "dtype of tensor 'a' is missing");
  expect_refused(file("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "abcd"), "shape of tensor 'a' is missing");
  expect_refused(file("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", "abcd"), "data_offsets of tensor 'a' is missing");
  expect_refused(file("{\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4],\"x\":1}}", "abcd"),
                 "the key 'x'");
  expect_refused(file("{" + entry("a", "F32", "[]", "[0]") + "}", "abcd"), "it must be 2");
  expect_refused(file("{" + entry("a", "F32", "[]", "[0,4,4]") + "}", "abcd"), "two integers");
  expect_refused(file("{\"a\":{\"dtype\":1,\"shape\":[],\"data_offsets\":[0,4]}}", "abcd"), "a string");
  expect_refused(file("{\"a\":{\"dtype\":\"F32\",\"shape\":4,\"data_offsets\":[0,4]}}", "abcd"), "a list");
}

TEST(Safetensors, refuses_numbers_that_are_no_sizes) {
  for (const char* number :
       {"-1", "1.5", "1e3", "18446744073709551616", "9223372036854775808", "true", "null", "\"1\""}) {
    expect_refused(file("{" + entry("a", "F32", std::string("[") + number + "]", "[0,4]") + "}", "abcd"), "shape");
    expect_refused(file("{" + entry("a", "F32", "[1]", std::string("[0,") + number + "]") + "}", "abcd"),
                   "data_offsets");
  }
}

TEST(Safetensors, refuses_overflow_of_shapes) {
  expect_refused(file("{" + entry("a", "F32", "[4294967296,4294967296]", "[0,0]") + "}"), "less than 2^63 elements");
  expect_refused(file("{" + entry("a", "F32", "[0,4294967296,4294967296]", "[0,0]") + "}"), "less than 2^63 elements");
  expect_refused(file("{" + entry("a", "F64", "[2305843009213693952]", "[0,0]") + "}"), "2^64 or more");
  std::string many = "[1";
  for (int i = 0; i < 64; ++i) many += ",1";
  expect_refused(file("{" + entry("a", "F32", many + "]", "[0,4]") + "}", "abcd"), "more than 64 axes");
}

TEST(Safetensors, refuses_offsets_with_holes_overlaps_and_wrong_ends) {
  expect_refused(file("{" + entry("a", "F32", "[1]", "[4,0]") + "}", "abcd"), "must not run backwards");
  expect_refused(file("{" + entry("a", "F32", "[1]", "[0,3]") + "}", "abc"), "they must span 32 bits");
  expect_refused(file("{" + entry("a", "F32", "[1]", "[4,8]") + "}", "abcdefgh"), "hole");
  const std::string a = entry("a", "F32", "[1]", "[0,4]");
  expect_refused(file("{" + a + "," + entry("b", "F32", "[1]", "[2,6]") + "}", "abcdef"), "overlap");
  expect_refused(file("{" + a + "," + entry("b", "F32", "[1]", "[0,4]") + "}", "abcd"), "overlap");
  expect_refused(file("{" + a + "," + entry("b", "F32", "[1]", "[5,9]") + "}", "abcdefghi"), "hole");
  expect_refused(file("{" + a + "}", "abcdX"), "the end of the file");
  expect_refused(file("{" + a + "}", "abc"), "the end of the file");
  expect_refused(file("{" + entry("a", "F32", "[1]", "[9223372036854775803,9223372036854775807]") + "}", ""), "hole");
  expect_refused(file("{" + entry("a", "F4", "[1]", "[0,1]") + "}", "a"), "they must span 4 bits");
}

TEST(Safetensors, order_in_the_header_does_not_matter_and_empty_files_are_files) {
  const std::string bytes = file("{" + entry("b", "F32", "[1]", "[4,8]") + "," + entry("e", "F32", "[0]", "[4,4]") +
                                     "," + entry("a", "F32", "[1]", "[0,4]") + "}",
                                 "abcdefgh");
  EXPECT_EQ(raw(bytes, "b"), "efgh");
  EXPECT_EQ(raw(bytes, "e"), "");
  EXPECT_TRUE(header_of(file("{}")).entries.empty());
  expect_refused(file("{}"), "the file holds no tensor", "x");
}

}  // namespace
}  // namespace rmsnorm::tools
