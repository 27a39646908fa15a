// What every operation of check/operation.h must do, whichever it is: results within the budgets for all types,
// variants and distributions, the same bits however it is run, nothing touched that is not its own. Prints what was
// measured; `operations_test --markdown=FILE` also writes the tables of docs/operations_accuracy.md.
#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <thread>

#include "check/operation.h"
#include "support/accuracy_table.h"
#include "support/environment.h"
#include "support/guarded.h"
#include "support/operation_table.h"

namespace rmsnorm::check {
namespace {

using reference::Values;

struct Case {
  const Operation* op;
  rn_type type;
};

std::vector<Case> all_cases() {
  std::vector<Case> list;
  for (const Operation* op : operations()) {
    for (const rn_type type : {RN_F32, RN_F16, RN_BF16, RN_F64}) list.push_back({op, type});
  }
  return list;
}

std::string case_name(const testing::TestParamInfo<Case>& info) {
  return std::string(info.param.op->name()) + "_" + rn_type_name(info.param.type);
}

class Operations : public testing::TestWithParam<Case> {
 protected:
  const Operation& op() const { return *GetParam().op; }

  // Each variant on each shape; values, padding and offset rotate through them.
  std::vector<Request> requests(std::span<const std::pair<std::int64_t, std::int64_t>> shapes) const {
    std::vector<Request> list;
    std::size_t turn = 0;
    for (std::size_t i = 0; i < shapes.size(); ++i) {
      if (test::reduced() && shapes.size() > 1 && i % 3 != 1) continue;  // emulators and sanitizers
      const auto [rows, cols] = shapes[i];
      for (Request r : op().variants(GetParam().type)) {
        r.shape = op().shape_for(rows, cols);
        const double partial = r.settings.contains("partial") ? r.settings["partial"] : 0;
        if (partial > static_cast<double>(cols)) continue;
        r.seed = ++turn;
        r.padding = static_cast<std::int64_t>(turn % 3);
        r.offset = static_cast<std::int64_t>(turn % 7);
        list.push_back(r);
      }
    }
    return list;
  }

  Tensors run(const Request& r, const rn_execution* execution = nullptr) const {
    Tensors tensors = make_tensors(op(), r);
    EXPECT_EQ(call(op(), r, tensors, execution), RN_OK) << command_line(op(), r) << "\n" << rn_last_error();
    EXPECT_EQ(damage(r, tensors), "") << command_line(op(), r);
    return tensors;
  }
};

constexpr std::pair<std::int64_t, std::int64_t> kShapes[] = {{3, 1},   {5, 7},   {4, 33},   {2, 64},   {9, 65},
                                                             {3, 255}, {70, 96}, {2, 1000}, {2, 2049}, {1, 4100}};
constexpr Values kValues[] = {Values::kNormal, Values::kCauchy, Values::kSpike,    Values::kOffset,
                              Values::kTiny,   Values::kHuge,   Values::kMixed,    Values::kSubnormal,
                              Values::kZeros,  Values::kNan,    Values::kInfinity, Values::kConstant};

TEST_P(Operations, results_are_within_their_budgets) {
  for (Request r : requests(kShapes)) {
    const Tensors tensors = run(r);
    const Finding finding = op().judge(r, tensors);
    EXPECT_GT(finding.elements, 0);
    ASSERT_EQ(finding.error, "") << command_line(op(), r);
    test::OperationTable::all().add(op(), r, tensors, finding);
  }
}

TEST_P(Operations, results_are_within_their_budgets_for_any_values) {
  constexpr std::pair<std::int64_t, std::int64_t> kFew[] = {{4, 40}, {3, 333}};
  test::OperationTable table;
  for (const Values values : kValues) {
    for (Request r : requests(kFew)) {
      r.values = values;
      const Tensors tensors = run(r);
      const Finding finding = op().judge(r, tensors);
      ASSERT_EQ(finding.error, "") << command_line(op(), r);
      table.add(op(), r, tensors, finding);
    }
  }
  for (const std::string& line : table.means_beyond(reference::kMean)) ADD_FAILURE() << line;
  table.print();
  test::OperationTable::all().merge(table);
}

// An error that only some rows show: sums that cancel, rows just above a power of two, a mean without a deviation.
TEST_P(Operations, many_small_rows_are_within_their_budgets) {
  constexpr std::pair<std::int64_t, std::int64_t> kSmall[] = {{16, 25}, {150, 3}, {6, 1}};
  constexpr Values kDense[] = {Values::kNormal,    Values::kCauchy, Values::kWhole,  Values::kHuge,
                               Values::kLognormal, Values::kMixed,  Values::kOffset, Values::kSpike};
  for (std::uint64_t seed = 1; seed <= (test::reduced() ? 4 : 32); ++seed) {
    for (Request r : requests(kSmall)) {
      r.values = kDense[seed % std::size(kDense)];
      r.seed += seed * 1000;
      const Finding finding = op().judge(r, run(r));
      ASSERT_EQ(finding.error, "") << command_line(op(), r);
    }
  }
}

TEST_P(Operations, bits_are_the_same_for_every_target_and_layout) {
  const test::UseTarget restored(rn_target());
  for (Request r : requests(kShapes)) {
    r.values = kValues[r.seed % std::size(kValues)];
    const std::string line = command_line(op(), r);
    const std::uint64_t expected = hash_of_outputs(run(r));
    for (std::int32_t i = 0; i < rn_target_count(); ++i) {
      if (!rn_target_supported(i)) continue;
      r.target = rn_target_name(i);
      r.padding = (r.padding + 5) % 9;
      r.offset = (r.offset + 3) % 16;
      std::optional<test::AsIfLarge> large;
      if (i % 2 == 0) large.emplace();
      ASSERT_EQ(hash_of_outputs(run(r)), expected) << line << "\n" << command_line(op(), r);
    }
  }
}

TEST_P(Operations, bits_do_not_depend_on_threads) {
  // Enough bytes for several pieces; long rows once, since they cost the most.
  constexpr std::pair<std::int64_t, std::int64_t> kTall[] = {{700, 384}};
  constexpr std::pair<std::int64_t, std::int64_t> kLong[] = {{50, 5000}};
  std::vector<Request> chosen = requests(kTall);
  if (test::reduced()) {
    chosen.resize(1);
  } else {
    chosen.push_back(requests(kLong).front());
  }
  // The caller's own threads, as many as asked for.
  const rn_parallel_for own = [](void*, std::int64_t count, rn_task task, void* data) {
    std::vector<std::thread> workers;
    for (std::int64_t i = 0; i < count; ++i) workers.emplace_back([=] { task(data, i); });
    for (std::thread& worker : workers) worker.join();
  };
  for (const Request& r : chosen) {
    Tensors tensors = run(r);
    const std::uint64_t expected = hash_of_outputs(tensors);
    const test::AsIfLarge large;
    for (const std::int32_t threads : {2, 3, 8, 16}) {
      for (const rn_parallel_for parallel_for : {rn_parallel_for{nullptr}, own}) {
        const rn_execution execution{threads, parallel_for, nullptr};
        restore(tensors);
        ASSERT_EQ(call(op(), r, tensors, &execution), RN_OK) << rn_last_error();
        ASSERT_EQ(hash_of_outputs(tensors), expected) << command_line(op(), r) << " --threads " << threads;
      }
    }
  }
}

// Memory that ends, or begins, where the operand does: nothing outside is read or written.
TEST_P(Operations, nothing_outside_the_operands_is_touched) {
  constexpr std::pair<std::int64_t, std::int64_t> kNarrow[] = {{3, 1}, {2, 7}, {2, 31}, {3, 65}, {1, 2049}};
  for (Request r : requests(kNarrow)) {
    r.padding = r.offset = 0;
    Tensors tensors = make_tensors(op(), r);
    const std::uint64_t expected = hash_of_outputs(run(r));
    std::optional<test::AsIfLarge> large;
    if (r.seed % 2 == 1) large.emplace();
    for (const test::Guard side : {test::Guard::kBefore, test::Guard::kBehind}) {
      std::vector<std::unique_ptr<test::GuardedBuffer>> buffers;
      const auto bytes = [](const Tensor& t) {
        return static_cast<std::size_t>(t.matrix.rows() * t.matrix.cols()) * rn_type_size(t.slot.type);
      };
      for (const Tensor& t : tensors.all) {
        buffers.push_back(std::make_unique<test::GuardedBuffer>(bytes(t), side));
        const Matrix& content = t.before.present() ? t.before : t.matrix;
        std::memcpy(buffers.back()->data(), content.row(0), bytes(t));
        tensors.elsewhere[std::string(t.slot.name)] = buffers.back()->data();
      }
      ASSERT_EQ(call(op(), r, tensors), RN_OK) << rn_last_error();
      for (std::size_t i = 0; i < buffers.size(); ++i) {
        std::memcpy(tensors.all[i].matrix.row(0), buffers[i]->data(), bytes(tensors.all[i]));
      }
      ASSERT_EQ(hash_of_outputs(tensors), expected) << command_line(op(), r);
    }
  }
}

TEST_P(Operations, no_rows_are_a_success) {
  for (Request r : op().variants(GetParam().type)) {
    r.shape = op().shape_for(0, 12);
    run(r);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Operations, testing::ValuesIn(all_cases()), case_name);

}  // namespace
}  // namespace rmsnorm::check

int main(int argc, char** argv) {
  return rmsnorm::test::run_and_write(
      argc, argv, [](const std::string& path) { return rmsnorm::test::OperationTable::all().write_markdown(path); });
}
