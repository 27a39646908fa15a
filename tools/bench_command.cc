// rmsnorm bench: the operations against copying the same bytes.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <span>

#include "tools/arguments.h"
#include "tools/bench/measure.h"
#include "tools/bench/operation_workload.h"
#include "tools/bench/workload.h"
#include "tools/commands.h"
#include "tools/error.h"
#include "tools/operation_request.h"
#include "tools/progress.h"
#include "tools/table.h"

namespace rmsnorm::tools {

namespace {

struct ShapeEntry {
  std::int64_t rows, cols;
  Layout layout = Layout::kDense;
  bool quick = false;  // also in the short list
};

// One token, a small batch, prompts, QK-norm, and streams from memory: the shapes that docs/ quotes.
constexpr ShapeEntry kShapes[] = {
    {1, 4096, Layout::kDense, true},
    {16, 4096},
    {512, 1024},
    {512, 4096, Layout::kDense, true},
    {65536, 128, Layout::kDense, true},
    {65536, 128, Layout::kPackedQkv},
    {65536, 1024},
    {32768, 2048},
    {4096, 4096, Layout::kDense, true},
    {16384, 4096},
};

constexpr check::Op kDefaultOps[] = {check::Op::kRmsNorm, check::Op::kLayerNorm, check::Op::kAddRmsNorm};
constexpr rn_type kDefaultTypes[] = {RN_F32, RN_BF16, RN_F16};

// Cases that touch more than this are run on cold buffers unless --cache says otherwise.
constexpr std::int64_t kWarmBytes = std::int64_t{32} << 20;

// --offset: every element stays aligned, and operands begin in their first page.
constexpr std::int64_t kOffsetStep = 16, kMostOffset = 4096 - kOffsetStep;

constexpr MeasureOptions kQuick{5, std::chrono::microseconds{2000}};

struct BenchArguments {
  std::string op, cache = "auto", layout, weight_type, out_type, target;
  std::vector<std::string> shapes, types, settings;
  std::vector<std::int32_t> threads{1};
  int repeats = 0;
  std::int64_t offset = 0;
  bool quick = false;
  bool json = false;
  bool separate = false;
};

const char* name_of(Layout layout) { return layout == Layout::kDense ? "dense" : "qkv"; }
const char* name_of(Cache cache) { return cache == Cache::kWarm ? "warm" : "cold"; }

ShapeEntry parse_shape(const std::string& text, Layout layout) {
  ShapeEntry shape{0, 0, layout};
  const char* const end = text.data() + text.size();
  const auto rows = std::from_chars(text.data(), end, shape.rows);
  bool good = rows.ec == std::errc() && rows.ptr != end && *rows.ptr == 'x';
  if (good) {
    const auto cols = std::from_chars(rows.ptr + 1, end, shape.cols);
    good = cols.ec == std::errc() && cols.ptr == end && shape.rows >= 1 && shape.cols >= 1;
  }
  constexpr std::int64_t kMostElements = std::int64_t{1} << 36;
  if (!good || shape.cols > kMostElements / shape.rows) {
    fail(ExitCode::kUsage, "--shapes has {}; it must be ROWSxCOLS, each at least 1 and together at most 2^36 elements",
         in_quotes(text));
  }
  if (layout == Layout::kPackedQkv && shape.rows % kQkvHeads != 0) {
    fail(ExitCode::kUsage, "--shapes has {}; with --layout qkv its rows must be a multiple of {}", text, kQkvHeads);
  }
  return shape;
}

std::vector<ShapeEntry> chosen_shapes(const BenchArguments& a) {
  if (!a.layout.empty() && a.layout != name_of(Layout::kDense) && a.layout != name_of(Layout::kPackedQkv)) {
    fail(ExitCode::kUsage, "--layout is {}; it must be dense or qkv", in_quotes(a.layout));
  }
  std::vector<ShapeEntry> shapes;
  const bool packed = a.layout == name_of(Layout::kPackedQkv);
  for (const std::string& text : a.shapes) {
    shapes.push_back(parse_shape(text, packed ? Layout::kPackedQkv : Layout::kDense));
  }
  if (!shapes.empty()) return shapes;
  for (const ShapeEntry& shape : kShapes) {
    if ((!a.quick || shape.quick) && (a.layout.empty() || a.layout == name_of(shape.layout))) shapes.push_back(shape);
  }
  if (shapes.empty()) fail(ExitCode::kUsage, "--quick has no shape of --layout {}; --shapes must be given", a.layout);
  return shapes;
}

std::vector<Cache> chosen_caches(const std::string& name, std::int64_t bytes) {
  if (name == "warm") return {Cache::kWarm};
  if (name == "cold") return {Cache::kCold};
  if (name == "both") return {Cache::kWarm, Cache::kCold};
  if (name == "auto") return {bytes > kWarmBytes ? Cache::kCold : Cache::kWarm};
  fail(ExitCode::kUsage, "--cache is {}; it must be auto, warm, cold or both", in_quotes(name));
}

std::vector<Workload> workloads(const BenchArguments& a) {
  std::vector<check::Op> ops(std::begin(kDefaultOps), std::end(kDefaultOps));
  if (!a.op.empty()) ops = {parse_op(a.op)};
  std::vector<rn_type> types(std::begin(kDefaultTypes), std::end(kDefaultTypes));
  if (!a.types.empty()) types.clear();
  for (const std::string& name : a.types) types.push_back(parse_type("--types", name));
  const std::vector<ShapeEntry> shapes = chosen_shapes(a);
  std::vector<Workload> list;
  for (const check::Op op : ops) {
    for (const rn_type type : types) {
      for (const ShapeEntry& shape : shapes) {
        for (const std::int32_t threads : a.threads) {
          Workload w;
          w.op = op;
          w.type = type;
          w.weight_type = a.weight_type.empty() ? type : parse_type("--weight-type", a.weight_type);
          w.out_type = a.out_type.empty() ? type : parse_type("--out-type", a.out_type);
          w.rows = shape.rows;
          w.cols = shape.cols;
          w.layout = shape.layout;
          w.threads = threads;
          w.offset = a.offset;
          for (const Cache cache : chosen_caches(a.cache, w.bytes())) {
            w.cache = cache;
            list.push_back(w);
          }
        }
      }
    }
  }
  return list;
}

struct Result {
  Timing norm;
  double gbps = 0, copy_gbps = 0, ratio = 0;
  std::optional<double> separate_ns;
  std::optional<double> gain() const { return separate_ns ? std::optional(*separate_ns / norm.ns) : std::nullopt; }
};

// The operation, memcpy, a streaming copy and, if there is one, its separate form, in this order.
Result compare(const std::vector<Contender>& contenders, std::size_t sets, std::int64_t bytes,
               std::int64_t copied_bytes, std::int32_t threads, const MeasureOptions& options) {
  std::optional<Pinned> pinned;
  if (threads == 1) pinned.emplace();
  const std::vector<Timing> timings = measure(contenders, sets, options);
  Result result;
  result.norm = timings[0];
  result.gbps = static_cast<double>(bytes) / timings[0].ns;
  result.copy_gbps = static_cast<double>(copied_bytes) / std::min(timings[1].ns, timings[2].ns);
  result.ratio = result.gbps / result.copy_gbps;
  if (contenders.size() > 3) result.separate_ns = timings[3].ns;
  return result;
}

// Adds the separate calls, for each set, where they exist.
void add_separate(std::vector<Contender>& contenders, std::size_t sets, Buffer& between,
                  const std::function<std::optional<SeparateWork>(std::size_t)>& work_of) {
  std::vector<std::function<void()>> calls;
  for (std::size_t i = 0; i < sets; ++i) {
    const auto work = work_of(i);
    if (!work) return;
    calls.push_back(separate_calls(*work, between));
  }
  contenders.push_back([calls](std::size_t i) { calls[i](); });
}

Result run_workload(const Workload& w, WorkloadMemory& memory, Buffer* between, const MeasureOptions& options) {
  memory.prepare(w);
  const std::size_t sets = memory.sets().size();
  std::vector<Contender> contenders = {
      [&](std::size_t i) { call_workload(w, memory.sets()[i], memory.weight(), memory.bias()); },
      [&](std::size_t i) { copy_workload(w, memory.sets()[i], false); },
      [&](std::size_t i) { copy_workload(w, memory.sets()[i], true); }};
  if (between != nullptr) {
    add_separate(contenders, sets, *between,
                 [&](std::size_t i) { return separate_work(w, memory.sets()[i], memory.weight(), memory.bias()); });
  }
  return compare(contenders, sets, w.bytes(), w.copied_bytes(), w.threads, options);
}

Result run_workload(const OperationWorkload& w, OperationMemory& memory, Buffer* between,
                    const MeasureOptions& options) {
  memory.prepare(w);
  std::vector<Contender> contenders = {[&](std::size_t i) { memory.call(w, i); },
                                       [&](std::size_t i) { memory.copy(w, i, false); },
                                       [&](std::size_t i) { memory.copy(w, i, true); }};
  if (between != nullptr) {
    add_separate(contenders, memory.sets(), *between, [&](std::size_t i) { return memory.separate_work(w, i); });
  }
  return compare(contenders, memory.sets(), w.bytes(), w.bytes(), w.request.threads, options);
}

// What a line of output says of its case; null where it does not apply.
struct Line {
  std::string op;
  rn_type type;
  nlohmann::ordered_json weight_type, out_type;
  std::int64_t rows, cols;
  Layout layout;
  std::int32_t threads;
  Cache cache;
  std::int64_t bytes, offset;
};

Line line_of(const Workload& w) {
  Line line{std::string(check::name_of(w.op)),
            w.type,
            nullptr,
            rn_type_name(w.out_type),
            w.rows,
            w.cols,
            w.layout,
            w.threads,
            w.cache,
            w.bytes(),
            w.offset};
  if (w.op != check::Op::kCenter) line.weight_type = rn_type_name(w.weight_type);
  return line;
}

Line line_of(const OperationWorkload& w, const ShapeEntry& shape) {
  Line line{std::string(w.op->name()), w.request.x, nullptr,   nullptr, shape.rows, shape.cols, Layout::kDense,
            w.request.threads,         w.cache,     w.bytes(), w.offset};
  for (const check::Slot& slot : slots_of(*w.op, w.request)) {
    if (slot.name == "weight") line.weight_type = rn_type_name(slot.type);
    if (slot.role == check::Role::kOutput && line.out_type.is_null()) line.out_type = rn_type_name(slot.type);
  }
  return line;
}

class Printer {
 public:
  Printer(bool json, bool separate, int repeats)
      : json_(json), separate_(separate), repeats_(repeats), table_(columns(separate)) {
    if (!json) table_.print_header();
  }

  void print(const Line& w, const Result& r) const {
    if (!json_) {
      std::vector<std::string> row = {w.op,
                                      rn_type_name(w.type),
                                      fmt::format("{}x{}", w.rows, w.cols),
                                      name_of(w.layout),
                                      name_of(w.cache),
                                      fmt::format("{}", w.threads),
                                      fmt::format("{:.2f}", r.norm.ns / 1000),
                                      fmt::format("{:.1f}", 100 * r.norm.cv),
                                      fmt::format("{:.1f}", r.gbps),
                                      fmt::format("{:.1f}", r.copy_gbps),
                                      fmt::format("{:.2f}", r.ratio)};
      if (separate_) {
        row.push_back(r.separate_ns ? fmt::format("{:.2f}", *r.separate_ns / 1000) : "-");
        row.push_back(r.separate_ns ? fmt::format("{:.2f}", *r.gain()) : "-");
      }
      table_.print_row(row);
      return;
    }
    nlohmann::ordered_json json = {
        {"op", w.op},
        {"type", rn_type_name(w.type)},
        {"weight_type", w.weight_type},
        {"out_type", w.out_type},
        {"rows", w.rows},
        {"cols", w.cols},
        {"layout", name_of(w.layout)},
        {"threads", w.threads},
        {"cache", name_of(w.cache)},
        {"bytes", w.bytes},
        {"offset", w.offset},
        {"ns", r.norm.ns},
        {"cv", r.norm.cv},
        {"repeats", repeats_},
        {"gbps", r.gbps},
        {"copy_gbps", r.copy_gbps},
        {"ratio_to_copy", r.ratio},
        {"target", rn_target()},
    };
    if (separate_) {
      json["separate_ns"] = r.separate_ns ? nlohmann::ordered_json(*r.separate_ns) : nullptr;
      json["gain"] = r.separate_ns ? nlohmann::ordered_json(*r.gain()) : nullptr;
    }
    fmt::print("{}\n", json.dump());
    std::fflush(stdout);
  }

 private:
  static std::vector<Column> columns(bool separate) {
    std::vector<Column> list = {{"op", 24, true},   {"type", 4, true}, {"rows x cols", 13}, {"layout", 6, true},
                                {"cache", 5, true}, {"threads", 7},    {"us", 10},          {"cv %", 5},
                                {"GB/s", 7},        {"copy GB/s", 9},  {"ratio", 5}};
    if (separate) list.insert(list.end(), {{"separate us", 11}, {"gain", 5}});
    return list;
  }

  bool json_, separate_;
  int repeats_;
  Table table_;
};

// Cases of the operations of check/operation.h: OP, or, where none is named, all of them.
struct OperationCase {
  OperationWorkload workload;
  ShapeEntry shape;
};

std::vector<OperationCase> operation_cases(const BenchArguments& a) {
  std::vector<OperationCase> list;
  std::vector<rn_type> types(std::begin(kDefaultTypes), std::end(kDefaultTypes));
  if (!a.types.empty()) types.clear();
  for (const std::string& name : a.types) types.push_back(parse_type("--types", name));
  for (const check::Operation* op : check::operations()) {
    if (!a.op.empty() && a.op != op->name()) continue;
    for (const rn_type type : types) {
      for (const ShapeEntry& shape : chosen_shapes(a)) {
        if (shape.layout != Layout::kDense) continue;
        for (const std::int32_t threads : a.threads) {
          OperationWorkload w{op, {}, Cache::kWarm};
          w.request.shape = op->shape_for(shape.rows, shape.cols);
          w.request.x = type;
          w.request.threads = threads;
          w.offset = a.offset;
          if (!a.weight_type.empty()) apply_operand(*op, "weight=" + a.weight_type, w.request);
          for (const std::string& text : a.settings) {
            const std::size_t equals = std::min(text.find('='), text.size());
            apply_setting(*op, text.substr(0, equals), text.substr(std::min(equals + 1, text.size())), w.request);
          }
          for (const Cache cache : chosen_caches(a.cache, w.bytes())) {
            w.cache = cache;
            list.push_back({w, shape});
          }
        }
      }
    }
  }
  return list;
}

void run_bench(const BenchArguments& a) {
  if (!a.target.empty()) require(rn_use_target(a.target.c_str()));
  if (a.offset < 0 || a.offset > kMostOffset || a.offset % kOffsetStep != 0) {
    fail(ExitCode::kUsage, "--offset is {}; it must be a multiple of {} from 0 to {}", a.offset, kOffsetStep,
         kMostOffset);
  }
  MeasureOptions options = a.quick ? kQuick : MeasureOptions{};
  if (a.repeats != 0) options.repeats = a.repeats;
  const bool described = check::operation_named(a.op) != nullptr;
  const auto forms = separate_operations();
  if (a.separate && !a.op.empty() && std::find(forms.begin(), forms.end(), a.op) == forms.end()) {
    fail(ExitCode::kUsage, "OP is {}; with --separate it must be one of {}", a.op, fmt::join(forms, ", "));
  }
  Buffer between;
  Buffer* const separate = a.separate ? &between : nullptr;
  std::vector<Workload> norms;
  if (!described) norms = workloads(a);
  std::vector<OperationCase> others;
  if (described || a.op.empty()) others = operation_cases(a);

  const Printer printer(a.json, a.separate, options.repeats);
  Progress progress("bench", norms.size() + others.size());
  {
    WorkloadMemory memory;
    for (const Workload& w : norms) {
      const Result r = run_workload(w, memory, separate, options);
      progress.clear();
      printer.print(line_of(w), r);
      progress.advance(1);
    }
  }
  OperationMemory memory;
  for (const OperationCase& c : others) {
    const Result r = run_workload(c.workload, memory, separate, options);
    progress.clear();
    printer.print(line_of(c.workload, c.shape), r);
    progress.advance(1);
  }
}

constexpr char kBenchExamples[] = R"(
GB/s counts every operand read and written once. "copy" is the better of memcpy and a copy with streaming stores of the
same bytes, measured in turns with the operation; ratio is GB/s over copy GB/s. warm: the same buffers again and again;
cold: buffers in rotation, together larger than the last-level cache (at least 128 MiB). auto is cold above 32 MiB.
Operations that read more than they write are compared with a copy that moves as many bytes in all.
Layout qkv: x is Q inside a packed buffer of Q, K and V with 32 heads. Medians; cv is the spread of the repetitions.

--separate also measures, in turns with the rest, the same work done by separate calls on one thread, in f32 and bf16: the
library's rms_norm, layer_norm or dx, and plain loops for what else there is to do (sums, silu, rotation, quantisation,
dweight), which the compiler vectorises for this CPU where it can. Between the steps the numbers lie in memory in the type of
x. gain is the time of the separate calls over that of the one.

Examples:
  rmsnorm bench --quick
  rmsnorm bench add_rms_norm --shapes 4096x4096 --separate
  rmsnorm bench rms_norm --shapes 4096x4096,65536x128 --types f32,bf16 --threads 1,2
  rmsnorm bench rms_norm --layout qkv --types bf16
  rmsnorm bench --json > bench.jsonl)";

}  // namespace

void add_bench_command(CLI::App& app) {
  auto* command = app.add_subcommand("bench", "Time the operations against copying the same bytes");
  auto a = std::make_shared<BenchArguments>();
  command->footer(kBenchExamples);
  command
      ->add_option("OP", a->op, op_names() + ", " + operation_names() + "; default: all but add_layer_norm and center")
      ->type_name("");
  command->add_option("--shapes", a->shapes, "ROWSxCOLS,..; default: those of language models")
      ->delimiter(',')
      ->type_name("RxC,..");
  command->add_option("--types", a->types, "types of x; default: f32,bf16,f16")->delimiter(',')->type_name("T,..");
  command->add_option("--weight-type", a->weight_type, "default: the type of x")->type_name("T");
  command->add_option("--out-type", a->out_type, "default: the type of x")->type_name("T");
  command->add_option("--threads", a->threads, "numbers of threads; default: 1")
      ->delimiter(',')
      ->type_name("N,..")
      ->check(CLI::Range(1, 1 << 16));
  command->add_option("--cache", a->cache, "auto (default), warm, cold or both")->type_name("C");
  command->add_option("--set", a->settings, "settings of OP: NAME=VALUE,..")->delimiter(',')->type_name("N=V,..");
  command->add_option("--layout", a->layout, "dense or qkv; default: both, where the list of shapes has them")
      ->type_name("L");
  command->add_option("--offset", a->offset, "bytes from a page's start to each operand; default: 0. NumPy's have 16")
      ->type_name("BYTES");
  command->add_option("--repeats", a->repeats, "repetitions; default: 11, with --quick 5")
      ->type_name("N")
      ->check(CLI::Range(5, 1000));
  command->add_option("--target", a->target, "the instruction set, see `rmsnorm info`; default: the best")
      ->type_name("T");
  command->add_flag("--quick", a->quick, "few shapes, short repetitions");
  command->add_flag("--separate", a->separate, "also the same work done by separate calls");
  command->add_flag("--json", a->json, "print JSON, one object a line");
  command->callback([a] { run_bench(*a); });
}

}  // namespace rmsnorm::tools
