#include "convert/onnx/values.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "convert/refusal.h"
#include "core/float16.h"

namespace rmsnorm::convert::onnx {

namespace {

using Type = pb::TensorProto;

struct TypeRow {
  int type;
  const char* name;
  std::size_t size;
};

constexpr TypeRow kTypes[] = {
    {Type::FLOAT, "f32", 4},  {Type::UINT8, "u8", 1},      {Type::INT8, "i8", 1},          {Type::UINT16, "u16", 2},
    {Type::INT16, "i16", 2},  {Type::INT32, "i32", 4},     {Type::INT64, "i64", 8},        {Type::STRING, "text", 0},
    {Type::BOOL, "bool", 1},  {Type::FLOAT16, "f16", 2},   {Type::DOUBLE, "f64", 8},       {Type::UINT32, "u32", 4},
    {Type::UINT64, "u64", 8}, {Type::COMPLEX64, "c64", 8}, {Type::COMPLEX128, "c128", 16}, {Type::BFLOAT16, "bf16", 2},
};

const TypeRow* row_of(int type) {
  for (const auto& row : kTypes) {
    if (row.type == type) return &row;
  }
  return nullptr;
}

Shape shape_of(const pb::TensorProto& tensor) { return {tensor.dims().begin(), tensor.dims().end()}; }

// How many numbers the typed field of the tensor's type holds.
std::int64_t typed_count(const pb::TensorProto& tensor) {
  switch (tensor.data_type()) {
    case Type::FLOAT:
      return tensor.float_data_size();
    case Type::COMPLEX64:
      return tensor.float_data_size() / 2;
    case Type::DOUBLE:
      return tensor.double_data_size();
    case Type::COMPLEX128:
      return tensor.double_data_size() / 2;
    case Type::INT64:
      return tensor.int64_data_size();
    case Type::UINT32:
    case Type::UINT64:
      return tensor.uint64_data_size();
    case Type::STRING:
      return tensor.string_data_size();
    default:
      return tensor.int32_data_size();
  }
}

std::uint64_t number(const pb::StringStringEntryProto& entry, const std::string& site) {
  std::uint64_t value = 0;
  const std::string& text = entry.value();
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value > INT64_MAX) {
    refuse(RefusalCode::kMalformed, site, "the {} of its external data is {}; it must be a number of bytes",
           entry.key(), tools::in_quotes(text));
  }
  return value;
}

std::int64_t checked_count(const pb::TensorProto& tensor) {
  const Shape shape = shape_of(tensor);
  bool negative = false;
  for (const std::int64_t length : shape) negative |= length < 0;
  const auto count = tools::element_count(shape);
  std::int64_t bytes = 0;
  if (shape.size() > tools::kMaxRank || negative || !count || __builtin_mul_overflow(*count, 16, &bytes)) {
    refuse(RefusalCode::kMalformed, tensor.name(),
           "the shape is {}; it must have at most {} axes, none negative, and fewer than 2^59 elements",
           shape.size() > tools::kMaxRank ? fmt::format("{} axes", shape.size()) : tools::shape_text(shape),
           tools::kMaxRank);
  }
  return *count;
}

template <class Stored>
double element(const char* bytes, std::size_t i) {
  Stored stored;
  std::memcpy(&stored, bytes + i * sizeof(Stored), sizeof(Stored));
  return static_cast<double>(stored);
}

double decode(int type, const char* bytes, std::size_t i) {
  switch (type) {
    case Type::FLOAT:
      return element<float>(bytes, i);
    case Type::DOUBLE:
      return element<double>(bytes, i);
    case Type::FLOAT16:
    case Type::BFLOAT16: {
      std::uint16_t half;
      std::memcpy(&half, bytes + i * sizeof(half), sizeof(half));
      return static_cast<double>(type == Type::FLOAT16 ? f16_to_f32(half) : bf16_to_f32(half));
    }
    case Type::INT64:
      return element<std::int64_t>(bytes, i);
    case Type::INT32:
      return element<std::int32_t>(bytes, i);
    case Type::UINT8:
    case Type::BOOL:
      return element<std::uint8_t>(bytes, i);
    default:
      return element<std::int8_t>(bytes, i);
  }
}

template <class Stored>
void append(std::string& bytes, Stored stored) {
  bytes.append(reinterpret_cast<const char*>(&stored), sizeof(stored));
}

}  // namespace

bool is_float(int type) {
  return type == Type::FLOAT || type == Type::FLOAT16 || type == Type::BFLOAT16 || type == Type::DOUBLE;
}

bool is_narrow(int type) { return type == Type::FLOAT16 || type == Type::BFLOAT16; }

std::string type_name(int type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->name : fmt::format("type {}", type);
}

std::size_t type_size(int type) {
  const TypeRow* row = row_of(type);
  return row != nullptr ? row->size : 0;
}

bool is_external(const pb::TensorProto& tensor) { return tensor.data_location() == Type::EXTERNAL; }

ExternalData external_data(const pb::TensorProto& tensor, const std::string& folder) {
  namespace fs = std::filesystem;
  ExternalData data;
  bool has_length = false;
  for (const auto& entry : tensor.external_data()) {
    if (entry.key() == "location") data.location = entry.value();
    if (entry.key() == "offset") data.offset = number(entry, tensor.name());
    if (entry.key() == "length") {
      data.length = number(entry, tensor.name());
      has_length = true;
    }
  }
  const fs::path location(data.location);
  bool upwards = data.location.find('\0') != std::string::npos;
  for (const auto& part : location) upwards |= part == "..";
  if (data.location.empty() || location.is_absolute() || upwards) {
    refuse(RefusalCode::kMalformed, tensor.name(),
           "its external data is in {}; it must be a file in the model's folder or below it",
           tools::in_quotes(data.location));
  }
  data.file = folder + "/" + data.location;
  std::error_code error;
  const fs::path real = fs::canonical(data.file, error);
  const std::uint64_t size = error ? 0 : fs::file_size(data.file, error);
  if (error) {
    tools::fail(tools::ExitCode::kInputOutput, "{}: the external data of {} cannot be read: {}", data.file,
                tools::in_quotes(tensor.name()), error.message());
  }
  // A link may lead elsewhere only where it stands itself among links: caches keep each file under its hash.
  const fs::path root = fs::canonical(folder, error);
  const bool inside = std::mismatch(root.begin(), root.end(), real.begin(), real.end()).first == root.end();
  if (error || (!inside && !fs::is_symlink(data.file))) {
    refuse(RefusalCode::kMalformed, tensor.name(), "its external data {} leaves the model's folder; it must stay there",
           tools::in_quotes(data.location));
  }
  if (!has_length) data.length = data.offset <= size ? size - data.offset : 0;
  if (data.offset > size || data.length > size - data.offset) {
    refuse(RefusalCode::kMalformed, tensor.name(), "its external data is bytes {} + {} of {}; that file has {}",
           data.offset, data.length, data.location, size);
  }
  return data;
}

void check_tensor(const pb::TensorProto& tensor, const std::string& folder) {
  const std::int64_t count = checked_count(tensor);
  const std::size_t size = type_size(tensor.data_type());
  std::uint64_t found = 0;
  const char* where = "data";
  if (is_external(tensor)) {
    found = external_data(tensor, folder).length;
    where = "external data";
  } else if (tensor.has_raw_data()) {
    found = tensor.raw_data().size();
  } else if (size != 0 || tensor.data_type() == Type::STRING) {
    if (typed_count(tensor) != count) {
      refuse(RefusalCode::kMalformed, tensor.name(), "the shape {} has {} elements and the data {}",
             tools::shape_text(shape_of(tensor)), count, typed_count(tensor));
    }
    return;
  }
  if (size != 0 && found != static_cast<std::uint64_t>(count) * size) {
    refuse(RefusalCode::kMalformed, tensor.name(), "the shape {} of {} needs {} bytes and its {} has {}",
           tools::shape_text(shape_of(tensor)), type_name(tensor.data_type()), static_cast<std::uint64_t>(count) * size,
           where, found);
  }
}

std::string tensor_bytes(const pb::TensorProto& tensor, const std::string& folder) {
  check_tensor(tensor, folder);
  std::string bytes;
  if (is_external(tensor)) {
    const ExternalData data = external_data(tensor, folder);
    bytes.resize(static_cast<std::size_t>(data.length));
    tools::FileSource(data.file).read(data.offset, std::as_writable_bytes(std::span(bytes)));
    return bytes;
  }
  if (tensor.has_raw_data()) return tensor.raw_data();
  for (const float value : tensor.float_data()) append(bytes, value);
  for (const double value : tensor.double_data()) append(bytes, value);
  for (const std::int64_t value : tensor.int64_data()) append(bytes, value);
  for (const std::int32_t value : tensor.int32_data()) {
    bytes.append(reinterpret_cast<const char*>(&value), type_size(tensor.data_type()));  // the low bytes
  }
  for (const std::uint64_t value : tensor.uint64_data()) {
    bytes.append(reinterpret_cast<const char*>(&value), type_size(tensor.data_type()));
  }
  return bytes;
}

std::optional<Array> read_array(const pb::TensorProto& tensor, const std::string& folder) {
  const int type = tensor.data_type();
  const bool known = is_float(type) || type == Type::INT64 || type == Type::INT32 || type == Type::UINT8 ||
                     type == Type::INT8 || type == Type::BOOL;
  if (!known) return std::nullopt;
  const std::string bytes = tensor_bytes(tensor, folder);
  const std::int64_t count = checked_count(tensor);
  if (bytes.size() != static_cast<std::size_t>(count) * type_size(type)) {
    refuse(RefusalCode::kMalformed, tensor.name(), "the shape {} and the data disagree",
           tools::shape_text(shape_of(tensor)));
  }
  Array array{type, shape_of(tensor), std::vector<double>(static_cast<std::size_t>(count))};
  for (std::size_t i = 0; i < array.values.size(); ++i) array.values[i] = decode(type, bytes.data(), i);
  return array;
}

double round_to_type(int type, double value) {
  switch (type) {
    case Type::FLOAT:
      return static_cast<double>(static_cast<float>(value));
    case Type::FLOAT16:
      return static_cast<double>(f16_to_f32(f32_to_f16(round_to_odd(value))));
    case Type::BFLOAT16:
      return static_cast<double>(bf16_to_f32(f32_to_bf16(round_to_odd(value))));
    default:
      return value;
  }
}

double unit_roundoff(int type) {
  switch (type) {
    case Type::FLOAT:
      return 0x1p-24;
    case Type::FLOAT16:
      return 0x1p-11;
    case Type::BFLOAT16:
      return 0x1p-8;
    default:
      return 0x1p-53;
  }
}

void store_array(pb::TensorProto& tensor, const Array& array) {
  std::string bytes;
  bytes.reserve(array.values.size() * type_size(array.type));
  for (const double value : array.values) {
    if (is_float(array.type) && !std::isfinite(round_to_type(array.type, value))) {
      refuse(RefusalCode::kNonFinite, tensor.name(), "a value becomes {}; {} cannot hold it", value,
             type_name(array.type));
    }
    switch (array.type) {
      case Type::FLOAT:
        append(bytes, static_cast<float>(value));
        break;
      case Type::FLOAT16:
        append(bytes, f32_to_f16(round_to_odd(value)));
        break;
      case Type::BFLOAT16:
        append(bytes, f32_to_bf16(round_to_odd(value)));
        break;
      case Type::INT64:
        append(bytes, static_cast<std::int64_t>(value));
        break;
      case Type::INT32:
        append(bytes, static_cast<std::int32_t>(value));
        break;
      case Type::DOUBLE:
        append(bytes, value);
        break;
      default:
        tools::fail(tools::ExitCode::kInternal, "{}: elements of {} are not stored", tensor.name(),
                    type_name(array.type));
    }
  }
  tensor.set_data_type(array.type);
  tensor.mutable_dims()->Assign(array.dims.begin(), array.dims.end());
  tensor.clear_float_data();
  tensor.clear_double_data();
  tensor.clear_int32_data();
  tensor.clear_int64_data();
  tensor.clear_uint64_data();
  tensor.clear_external_data();
  tensor.clear_data_location();
  tensor.set_raw_data(std::move(bytes));
}

Lines lines_along(const Shape& dims, std::size_t axis) {
  Lines lines;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    auto& part = i < axis ? lines.outer : i == axis ? lines.length : lines.inner;
    part *= static_cast<std::size_t>(dims[i]);
  }
  return lines;
}

void centre(Array& array, std::size_t axis, bool carry) {
  const Lines lines = lines_along(array.dims, axis);
  for (std::size_t o = 0; o < lines.outer; ++o) {
    for (std::size_t i = 0; i < lines.inner; ++i) {
      double* line = array.values.data() + o * lines.length * lines.inner + i;
      double sum = 0;
      for (std::size_t k = 0; k < lines.length; ++k) sum += line[k * lines.inner];
      const double mean = sum / static_cast<double>(lines.length);
      double error = 0;
      for (std::size_t k = 0; k < lines.length; ++k) {
        double& value = line[k * lines.inner];
        value -= mean;
        if (!carry) continue;
        const double wanted = value + error;
        value = round_to_type(array.type, wanted);
        error = wanted - value;
      }
    }
  }
}

}  // namespace rmsnorm::convert::onnx
