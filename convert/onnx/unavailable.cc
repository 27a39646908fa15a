// Stands in for the conversion of ONNX graphs where the build found no protobuf.
#include "convert/convert.h"
#include "tools/error.h"

namespace rmsnorm::convert::onnx {

namespace {

[[noreturn]] void unavailable() {
  tools::fail(tools::ExitCode::kUnavailable,
              "this build has no ONNX support: it was made without protobuf (libprotobuf-dev, protobuf-compiler)");
}

}  // namespace

void inspect(const Request&, Report&) { unavailable(); }
void convert(const Request&, Report&) { unavailable(); }
void fold(const Request&, Report&) { unavailable(); }
void verify(const Request&, Report&) { unavailable(); }

}  // namespace rmsnorm::convert::onnx
