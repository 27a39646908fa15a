// .npy files: what NumPy writes is read, what a hostile hand writes is refused with a reason.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "tools/error.h"
#include "tools/formats/npy.h"

namespace rmsnorm::tools {
namespace {

std::string file(int major, const std::string& header, const std::string& data) {
  std::string text = std::string("\x93NUMPY") + static_cast<char>(major) + '\0';
  const std::size_t bytes = major == 1 ? 2 : 4;
  for (std::size_t i = 0; i < bytes; ++i) text += static_cast<char>(header.size() >> (8 * i));
  return text + header + data;
}

std::string dictionary(const std::string& descr, const std::string& shape, const std::string& order = "False") {
  return "{'descr': '" + descr + "', 'fortran_order': " + order + ", 'shape': " + shape + ", }\n";
}

Tensor read(const std::string& bytes, std::optional<rn_type> raw = std::nullopt) {
  return read_npy(MemorySource("x.npy", std::as_bytes(std::span(bytes))), raw);
}

std::string refusal(const std::string& bytes, std::optional<rn_type> raw = std::nullopt) {
  try {
    read(bytes, raw);
  } catch (const ToolError& error) {
    EXPECT_EQ(error.code(), ExitCode::kBadInput);
    EXPECT_EQ(std::string(error.what()).find("x.npy: "), 0u) << error.what();
    return error.what();
  }
  return "accepted";
}

void expect_refused(const std::string& bytes, const std::string& reason) {
  const std::string message = refusal(bytes);
  EXPECT_NE(message.find(reason), std::string::npos) << message;
}

TEST(Npy, reads_every_version_and_type) {
  for (const int version : {1, 2, 3}) {
    for (const auto& [descr, type, size] : {std::tuple{"<f4", RN_F32, 4}, {"<f2", RN_F16, 2}, {"<f8", RN_F64, 8}}) {
      const std::string data(static_cast<std::size_t>(6 * size), 'a');
      const Tensor t = read(file(version, dictionary(descr, "(2, 3)"), data));
      EXPECT_EQ(t.type, type);
      EXPECT_EQ(t.shape, (Shape{2, 3}));
      EXPECT_EQ(std::memcmp(t.data.data(), data.data(), data.size()), 0);
    }
  }
}

TEST(Npy, reads_scalars_vectors_and_empty_arrays) {
  EXPECT_EQ(read(file(1, dictionary("<f4", "()"), "abcd")).shape, Shape{});
  EXPECT_EQ(read(file(1, dictionary("<f4", "(1,)"), "abcd")).shape, Shape{1});
  EXPECT_EQ(read(file(1, dictionary("<f4", "(0, 7)"), "")).shape, (Shape{0, 7}));
  EXPECT_EQ(read(file(1, "{\"shape\":(1,),\"descr\":\"<f4\",\"fortran_order\":False}", "abcd")).shape, Shape{1});
}

TEST(Npy, raw_two_byte_elements_need_a_type) {
  const std::string bytes = file(1, dictionary("|V2", "(2,)"), "abcd");
  EXPECT_EQ(read(bytes, RN_BF16).type, RN_BF16);
  EXPECT_EQ(read(bytes, RN_F16).type, RN_F16);
  EXPECT_EQ(read(file(1, dictionary("<V2", "(2,)"), "abcd"), RN_BF16).type, RN_BF16);
  expect_refused(bytes, "--type bf16");
  EXPECT_NE(refusal(bytes, RN_F32).find("it must be bf16 or f16"), std::string::npos);
}

TEST(Npy, fortran_order_becomes_c_order) {
  const std::string column_major{0, 1, 10, 11, 20, 21, 30, 31, 40, 41, 50, 51};  // f16 elements 0..5 by columns of 2
  const Tensor t = read(file(1, dictionary("<f2", "(2, 3)", "True"), column_major));
  const std::string row_major{0, 1, 20, 21, 40, 41, 10, 11, 30, 31, 50, 51};
  EXPECT_EQ(std::memcmp(t.data.data(), row_major.data(), row_major.size()), 0);
  EXPECT_EQ(read(file(1, dictionary("<f2", "(2, 0)", "True"), "")).shape, (Shape{2, 0}));
}

TEST(Npy, what_is_written_is_read) {
  for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) {
    for (const Shape& shape : {Shape{}, Shape{5}, Shape{0}, Shape{2, 3, 4}, Shape(64, 1)}) {
      const Tensor t = make_tensor(type, shape);
      std::fill_n(const_cast<std::byte*>(t.data.data()), t.data.size(), std::byte{7});
      std::string bytes = npy_header(type, shape);
      EXPECT_EQ(bytes.size() % 64, 0u);
      bytes.append(reinterpret_cast<const char*>(t.data.data()), t.data.size());
      const Tensor back = read(bytes, RN_BF16);
      EXPECT_EQ(back.type, type);
      EXPECT_EQ(back.shape, shape);
      EXPECT_TRUE(std::ranges::equal(back.data.bytes(), t.data.bytes()));
    }
  }
}

TEST(Npy, refuses_what_is_no_npy_file) {
  expect_refused("", "it must be a .npy file");
  expect_refused("\x93NUMPY", "it must be a .npy file");
  expect_refused("PK\3\4 this is a zip archive", "it must be a .npy file");
  expect_refused(file(4, dictionary("<f4", "(1,)"), "abcd"), "format version is 4.0");
  expect_refused(file(0, dictionary("<f4", "(1,)"), "abcd"), "format version is 0.0");
}

TEST(Npy, refuses_header_lengths_that_lie) {
  std::string bytes = file(1, dictionary("<f4", "(1,)"), "");
  bytes[8] = '\xff';
  expect_refused(bytes, "must fit into the file");
  bytes = file(2, dictionary("<f4", "(1,)"), "abcd");
  bytes[11] = '\x7f';
  expect_refused(bytes, "it must be at most 65535");
  expect_refused(std::string("\x93NUMPY\2\0\4\0", 10), "must fit into the file");
}

TEST(Npy, refuses_types_by_name) {
  for (const char* descr : {"<i2", "|b1", "<c8", "<U3", "|O", "<f16", "", "f4", "<V3"}) {
    expect_refused(file(1, dictionary(descr, "(1,)"), "abcd"), std::string("element type is '") + descr + "'");
  }
  expect_refused(file(1, dictionary(">f4", "(1,)"), "abcd"), "big-endian");
  expect_refused(file(1, "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,)}", "abcd"), "structured");
}

TEST(Npy, refuses_broken_headers) {
  const std::pair<std::string, std::string> cases[] = {
      {"", "a dictionary"},
      {"[1, 2]", "a dictionary"},
      {"{'descr': '<f4'", "',' or '}'"},
      {"{'descr': '<f4', 'fortran_order': False}", "shape is missing"},
      {"{'fortran_order': False, 'shape': (1,)}", "descr is missing"},
      {"{'descr': '<f4', 'shape': (1,)}", "fortran_order is missing"},
      {"{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (1,)}", "given twice"},
      {"{'descr': '<f4', 'extra': 1, 'fortran_order': False, 'shape': (1,)}", "'extra'"},
      {"{'descr': '<f4', 'fortran_order': 0, 'shape': (1,)}", "True or False"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1)}", "a tuple"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1 1)}", "',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}", "from 0 to 2^63 - 1"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1.5,)}", "',' or ')'"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}", "from 0 to 2^63 - 1"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),)}", "from 0 to 2^63 - 1"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,", "from 0 to 2^63 - 1"},
      {"{'descr': '<f4, 'fortran_order': False, 'shape': (1,)}", "it must be"},
      {"{'descr': '<f\\x34', 'fortran_order': False, 'shape': (1,)}", "a type in quotes"},
      {"{'descr': '<f4', 'fortran_order': False, 'shape': (1,)} + 1", "it must end there"},
      {std::string("{'descr': '<f4', 'fortran_order': False, 'shape': (1,)}\0", 56), "it must end there"},
  };
  for (const auto& [header, reason] : cases) expect_refused(file(1, header, "abcd"), reason);
}

TEST(Npy, refuses_shapes_that_overflow_or_do_not_fit_the_data) {
  expect_refused(file(1, dictionary("<f4", "(4294967296, 4294967296)"), ""), "less than 2^63 bytes");
  expect_refused(file(1, dictionary("<f4", "(0, 4294967296, 4294967296)"), ""), "less than 2^63 bytes");
  expect_refused(file(1, dictionary("<f4", "(4611686018427387904,)"), ""), "less than 2^63 bytes");
  expect_refused(file(1, dictionary("<f4", "(1000000000000,)"), "abcd"), "needs 4000000000000 bytes");
  expect_refused(file(1, dictionary("<f4", "(2,)"), "abcd"), "the file has 4");
  expect_refused(file(1, dictionary("<f4", "(1,)"), "abcdefgh"), "the file has 8");
  std::string many = "(";
  for (int i = 0; i < 65; ++i) many += "1,";
  expect_refused(file(1, dictionary("<f4", many + ")"), "abcd"), "more than 64 axes");
}

TEST(Npy, messages_carry_no_control_characters) {
  const std::string message = refusal(file(1, dictionary("\x1b[2J\n", "(1,)"), "abcd"));
  EXPECT_EQ(message.find('\x1b'), std::string::npos);
  EXPECT_NE(message.find("\\x1b"), std::string::npos);
}

}  // namespace
}  // namespace rmsnorm::tools
