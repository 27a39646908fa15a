#include "convert/onnx/model.h"

#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <queue>
#include <set>
#include <unordered_map>
#include <unordered_set>

#include "convert/onnx/values.h"
#include "convert/refusal.h"
#include "tools/formats/output_file.h"

namespace rmsnorm::convert::onnx {

namespace {

namespace io = google::protobuf::io;

// Exceptions must not pass through protobuf, whose destructors would meet them again.
class SourceStream : public io::CopyingInputStream {
 public:
  explicit SourceStream(const tools::Source& source) : source_(source) {}
  int Read(void* buffer, int size) override {
    const std::uint64_t got = std::min(source_.size() - at_, static_cast<std::uint64_t>(size));
    try {
      source_.read(at_, {static_cast<std::byte*>(buffer), static_cast<std::size_t>(got)});
    } catch (...) {
      error_ = std::current_exception();
      return -1;
    }
    at_ += got;
    return static_cast<int>(got);
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  const tools::Source& source_;
  std::uint64_t at_ = 0;
  std::exception_ptr error_;
};

class FileStream : public io::CopyingOutputStream {
 public:
  explicit FileStream(tools::OutputFile& file) : file_(file) {}
  bool Write(const void* buffer, int size) override {
    if (error_) return false;
    try {
      file_.write({static_cast<const std::byte*>(buffer), static_cast<std::size_t>(size)});
    } catch (...) {
      error_ = std::current_exception();
    }
    return !error_;
  }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  tools::OutputFile& file_;
  std::exception_ptr error_;
};

// Every tensor of the graph and of the graphs inside its nodes.
template <class Visit>
void visit_tensors(const pb::GraphProto& graph, const Visit& visit) {
  for (const auto& tensor : graph.initializer()) visit(tensor);
  for (const auto& node : graph.node()) {
    for (const auto& attribute : node.attribute()) {
      if (attribute.has_t()) visit(attribute.t());
      if (attribute.has_g()) visit_tensors(attribute.g(), visit);
      for (const auto& inner : attribute.graphs()) visit_tensors(inner, visit);
    }
  }
}

void check_names(const pb::GraphProto& graph) {
  std::unordered_set<std::string> names;
  const auto define = [&names](const std::string& name) {
    if (!names.insert(name).second) {
      refuse(RefusalCode::kMalformed, name, "the graph defines this name twice; each name must be defined once");
    }
  };
  std::unordered_set<std::string> inputs;
  for (const auto& input : graph.input()) {
    define(input.name());
    inputs.insert(input.name());
  }
  // An initialiser may be the default of an input of its name.
  std::unordered_set<std::string> initializers;
  for (const auto& tensor : graph.initializer()) {
    if (!initializers.insert(tensor.name()).second || inputs.count(tensor.name()) == 0) define(tensor.name());
  }
  for (const auto& node : graph.node()) {
    for (const auto& output : node.output()) {
      if (!output.empty()) define(output);
    }
  }
  for (const auto& tensor : graph.sparse_initializer()) define(tensor.values().name());
  for (const auto& node : graph.node()) {
    for (const auto& input : node.input()) {
      if (input.empty() || names.count(input) != 0) continue;
      refuse(RefusalCode::kMalformed, input, "{} {} reads this name, and nothing in the graph defines it",
             tools::in_quotes(node.op_type()), tools::in_quotes(node.name()));
    }
  }
  for (const auto& output : graph.output()) {
    if (names.count(output.name()) == 0) {
      refuse(RefusalCode::kMalformed, output.name(), "nothing computes this output of the graph");
    }
  }
}

// The file format's version, and one operator set for each domain; which of ONNX's own, Graph checks.
void check_versions(const Model& model) {
  const std::int64_t version = model.proto.ir_version();
  if (version < 1 || version > kNewestIrVersion) {
    refuse(RefusalCode::kMalformed, model.path, "ir_version is {}; it must be from 1 to {}", version, kNewestIrVersion);
  }
  std::unordered_set<std::string> domains;
  for (const auto& import : model.proto.opset_import()) {
    const std::string domain = import.domain() == "ai.onnx" ? "" : import.domain();
    if (domains.insert(domain).second) continue;
    refuse(RefusalCode::kMalformed, model.path, "the domain {} has two operator sets; it must have one",
           tools::in_quotes(domain));
  }
}

bool same_external_data(const Model& a, const Model& b) {
  bool same = true;
  visit_tensors(a.proto.graph(), [&](const pb::TensorProto& tensor) {
    if (!is_external(tensor)) return;
    const auto in_a = external_data(tensor, a.folder), in_b = external_data(tensor, b.folder);
    same &= std::filesystem::equivalent(in_a.file, in_b.file);
  });
  return same;
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

Model parse_model(const tools::Source& source, std::string folder) {
  Model model{source.name(), std::move(folder), {}};
  if (source.size() > kMaxMessage) {
    refuse(RefusalCode::kMalformed, source.name(),
           "the file has {} bytes; an ONNX file has less than 2 GiB, larger weights stand in external data",
           source.size());
  }
  SourceStream stream(source);
  io::CopyingInputStreamAdaptor adaptor(&stream, 1 << 20);
  const bool parsed = model.proto.ParseFromZeroCopyStream(&adaptor);
  stream.rethrow();
  if (!parsed || !model.proto.has_graph() || model.proto.opset_import().empty()) {
    refuse(RefusalCode::kMalformed, source.name(),
           "the file is not an ONNX model; it must be one protobuf message with a graph and an operator set; "
           "a checkpoint is given as its folder");
  }
  if (model.proto.graph().node().empty()) refuse(RefusalCode::kMalformed, source.name(), "the graph has no nodes");
  check_versions(model);
  check_names(model.proto.graph());
  visit_tensors(model.proto.graph(), [&](const pb::TensorProto& tensor) { check_tensor(tensor, model.folder); });
  sort_nodes(*model.proto.mutable_graph());
  return model;
}

Model load_model(const std::string& path) { return parse_model(tools::FileSource(path), folder_of(path)); }

bool identical(const Model& a, const Model& b) {
  const tools::FileSource first(a.path), second(b.path);
  if (first.size() != second.size()) return false;
  std::vector<std::byte> x(std::size_t{1} << 20), y(x.size());
  for (std::uint64_t at = 0; at < first.size(); at += x.size()) {
    const std::size_t count = static_cast<std::size_t>(std::min<std::uint64_t>(x.size(), first.size() - at));
    first.read(at, {x.data(), count});
    second.read(at, {y.data(), count});
    if (!std::equal(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(count), y.begin())) return false;
  }
  return same_external_data(a, b);
}

const std::string* metadata(const pb::ModelProto& model, std::string_view key) {
  for (const auto& entry : model.metadata_props()) {
    if (entry.key() == key) return &entry.value();
  }
  return nullptr;
}

namespace {

// Names that the graphs inside a node may take from outside; some may be their own, which does no harm.
void names_inside(const pb::NodeProto& node, std::vector<std::string>& names) {
  const auto visit = [&names](const pb::GraphProto& graph) {
    for (const auto& inner : graph.node()) {
      names.insert(names.end(), inner.input().begin(), inner.input().end());
      names_inside(inner, names);
    }
    for (const auto& output : graph.output()) names.push_back(output.name());
  };
  for (const auto& attribute : node.attribute()) {
    if (attribute.has_g()) visit(attribute.g());
    for (const auto& graph : attribute.graphs()) visit(graph);
  }
}

}  // namespace

void sort_nodes(pb::GraphProto& graph) {
  const int count = graph.node_size();
  std::unordered_map<std::string, int> producers;
  for (int i = 0; i < count; ++i) {
    for (const auto& output : graph.node(i).output()) {
      if (!output.empty()) producers[output] = i;
    }
  }
  std::vector<std::vector<int>> readers(static_cast<std::size_t>(count));
  std::vector<int> waiting(static_cast<std::size_t>(count), 0);
  for (int i = 0; i < count; ++i) {
    std::vector<std::string> names(graph.node(i).input().begin(), graph.node(i).input().end());
    names_inside(graph.node(i), names);
    std::set<int> before;
    for (const auto& name : names) {
      const auto found = producers.find(name);
      if (found != producers.end()) before.insert(found->second);
    }
    waiting[static_cast<std::size_t>(i)] = static_cast<int>(before.size());
    for (const int b : before) readers[static_cast<std::size_t>(b)].push_back(i);
  }
  std::priority_queue<int, std::vector<int>, std::greater<>> ready;
  for (int i = 0; i < count; ++i) {
    if (waiting[static_cast<std::size_t>(i)] == 0) ready.push(i);
  }
  std::vector<int> order;
  while (!ready.empty()) {
    const int next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const int reader : readers[static_cast<std::size_t>(next)]) {
      if (--waiting[static_cast<std::size_t>(reader)] == 0) ready.push(reader);
    }
  }
  if (static_cast<int>(order.size()) != count) {
    refuse(RefusalCode::kMalformed, graph.name(),
           "{} of the {} nodes wait for one another; a graph must have no cycles",
           static_cast<std::size_t>(count) - order.size(), count);
  }
  if (std::is_sorted(order.begin(), order.end())) return;
  google::protobuf::RepeatedPtrField<pb::NodeProto> sorted;
  sorted.Reserve(count);
  for (const int i : order) sorted.Add(std::move(*graph.mutable_node(i)));
  graph.mutable_node()->Swap(&sorted);
}

void save_model(const Model& model, const std::string& path) {
  if (std::filesystem::exists(path)) {
    tools::fail(tools::ExitCode::kInputOutput, "{}: this file exists; OUT must be a new name", path);
  }
  const std::size_t size = model.proto.ByteSizeLong();
  if (size > kMaxMessage) {
    tools::fail_input("{}: the model has {} bytes; one message holds less than 2 GiB, keep weights in external data",
                      path, size);
  }
  // Weights by reference: the reference is to a file in the model's own folder, so that another folder gets a copy.
  std::vector<std::unique_ptr<tools::OutputFile>> files;
  std::set<std::string> copied;
  const std::string folder = folder_of(path);
  visit_tensors(model.proto.graph(), [&](const pb::TensorProto& tensor) {
    if (!is_external(tensor)) return;
    const ExternalData from = external_data(tensor, model.folder);
    const std::string to = folder + "/" + from.location;
    if (!copied.insert(to).second) return;
    if (std::filesystem::exists(to)) {
      if (std::filesystem::equivalent(from.file, to)) return;
      tools::fail(tools::ExitCode::kInputOutput,
                  "{}: this file exists; the weights that {} refers to would be written there", to, path);
    }
    std::filesystem::create_directories(std::filesystem::path(to).parent_path());
    const tools::FileSource source(from.file);
    auto& file = *files.emplace_back(std::make_unique<tools::OutputFile>(to));
    std::vector<std::byte> chunk(std::size_t{16} << 20);
    for (std::uint64_t at = 0; at < source.size();) {
      const std::size_t got = static_cast<std::size_t>(std::min<std::uint64_t>(chunk.size(), source.size() - at));
      source.read(at, {chunk.data(), got});
      file.write({chunk.data(), got});
      at += got;
    }
    file.finish();
  });
  auto& file = *files.emplace_back(std::make_unique<tools::OutputFile>(path));
  FileStream stream(file);
  io::CopyingOutputStreamAdaptor adaptor(&stream, 1 << 20);
  const bool written = model.proto.SerializeToZeroCopyStream(&adaptor) && adaptor.Flush();
  stream.rethrow();
  if (!written) {
    tools::fail(tools::ExitCode::kInternal, "{}: protobuf cannot write the model", path);
  }
  file.finish();
  for (const auto& complete : files) complete->publish_new();  // another run may have been faster
}

}  // namespace rmsnorm::convert::onnx
