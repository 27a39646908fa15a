// rmsnorm bench: the fields that programs read, and what is written where. Speeds are not judged here.
#include <sched.h>

#include <nlohmann/json.hpp>

#include <sstream>

#include "cli.h"
#include "cpu/threads.h"
#include "tools/bench/measure.h"

namespace rmsnorm::tools {
namespace {

class BenchCommand : public Cli {
 protected:
  std::vector<nlohmann::ordered_json> bench(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), {"bench", "--json", "--quick"});
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0) << outcome.err;
    EXPECT_EQ(outcome.err, "");
    std::vector<nlohmann::ordered_json> objects;
    std::istringstream lines(outcome.out);
    for (std::string line; std::getline(lines, line);) objects.push_back(nlohmann::ordered_json::parse(line));
    return objects;
  }
};

// The library counts its CPUs in its first call; ctest gives each test a process, so that it is made here.
TEST(Pinned, leaves_the_library_all_cpus) {
  cpu_set_t set;
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  const int cpus = CPU_COUNT(&set);
  {
    const Pinned pinned;
    EXPECT_EQ(thread_limit({}), cpus);
    ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
    EXPECT_EQ(CPU_COUNT(&set), 1);
  }
  ASSERT_EQ(sched_getaffinity(0, sizeof set, &set), 0);
  EXPECT_EQ(CPU_COUNT(&set), cpus);
}

TEST_F(BenchCommand, json_has_the_promised_fields_in_order) {
  const auto objects = bench({"add_rms_norm", "--shapes", "4x64,2x32", "--types", "f32,bf16", "--weight-type", "f32"});
  ASSERT_EQ(objects.size(), 4u);
  const std::vector<std::string> fields = {"op",     "type",    "weight_type", "out_type",  "rows",          "cols",
                                           "layout", "threads", "cache",       "bytes",     "offset",        "ns",
                                           "cv",     "repeats", "gbps",        "copy_gbps", "ratio_to_copy", "target"};
  for (const auto& object : objects) {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object.items()) keys.push_back(key);
    EXPECT_EQ(keys, fields);
    EXPECT_GT(object["ns"], 0.0);
    EXPECT_GE(object["repeats"], 5);
    EXPECT_NEAR(object["ratio_to_copy"], double{object["gbps"]} / double{object["copy_gbps"]}, 1e-9);
    EXPECT_NEAR(object["gbps"], double{object["bytes"]} / double{object["ns"]}, 1e-9);
  }
  EXPECT_EQ(objects[0]["bytes"], 4 * 4 * 64 * 4 + 64 * 4);
  EXPECT_EQ(objects[2]["bytes"], 4 * 4 * 64 * 2 + 64 * 4);
  EXPECT_EQ(objects[0]["cache"], "warm");
}

TEST_F(BenchCommand, layouts_caches_and_threads) {
  const auto objects = bench({"rms_norm", "--shapes", "64x128", "--types", "bf16", "--layout", "qkv", "--cache", "both",
                              "--threads", "1,2", "--out-type", "f32"});
  ASSERT_EQ(objects.size(), 4u);
  EXPECT_EQ(objects[0]["layout"], "qkv");
  EXPECT_EQ(objects[0]["cache"], "warm");
  EXPECT_EQ(objects[1]["cache"], "cold");
  EXPECT_EQ(objects[3]["threads"], 2);
  EXPECT_EQ(objects[0]["bytes"], 64 * 128 * 6 + 128 * 2);
  EXPECT_TRUE(bench({"center", "--shapes", "2x8", "--types", "f64"})[0]["weight_type"].is_null());
}

TEST_F(BenchCommand, separate_calls_beside_the_fused_one) {
  for (const char* op : {"add_rms_norm", "qk_norm_rope"}) {
    const auto objects = bench({op, "--shapes", "8x64", "--types", "f32,bf16,f16", "--separate"});
    ASSERT_EQ(objects.size(), 3u);
    for (const auto& object : objects) {
      const bool has = object["type"] != "f16";
      ASSERT_EQ(object["separate_ns"].is_number(), has) << object.dump();
      ASSERT_EQ(object["gain"].is_number(), has) << object.dump();
      if (has) EXPECT_NEAR(object["gain"], double{object["separate_ns"]} / double{object["ns"]}, 1e-9);
    }
  }
  const Outcome table = run({"bench", "gated_rms_norm", "--shapes", "4x64", "--types", "f32", "--quick", "--separate"});
  EXPECT_EQ(table.code, 0) << table.err;
  EXPECT_NE(table.out.find("separate us   gain\n"), std::string::npos) << table.out;
}

TEST_F(BenchCommand, mistakes) {
  for (const char* shape : {"4", "4x", "x4", "0x4", "4x0", "4x4x4", "-1x4", "99999999999x99999999999"}) {
    expect_failure({"bench", "--shapes", shape}, 2, "it must be ROWSxCOLS");
  }
  expect_failure({"bench", "--shapes", "33x128", "--layout", "qkv"}, 2, "a multiple of 32");
  expect_failure({"bench", "--layout", "nchw"}, 2, "dense or qkv");
  expect_failure({"bench", "--cache", "hot"}, 2, "auto, warm, cold or both");
  expect_failure({"bench", "--types", "f8"}, 2, "f32, f16, bf16 or f64");
  expect_failure({"bench", "--threads", "0"}, 2, "--threads");
  expect_failure({"bench", "--repeats", "4"}, 2, "--repeats");
  expect_failure({"bench", "--offset", "8"}, 2, "it must be a multiple of 16 from 0 to 4080");
  expect_failure({"bench", "--offset", "4096"}, 2, "it must be a multiple of 16 from 0 to 4080");
  expect_failure({"bench", "norm"}, 2, "OP is 'norm'");
  expect_failure({"bench", "rms_norm", "--separate"}, 2, "with --separate it must be one of add_rms_norm, ");
}

TEST_F(BenchCommand, progress_shows_only_at_a_terminal) {
  const std::vector<std::string> arguments = {
      "bench", "rms_norm", "--quick", "--shapes", "2048x4096,1024x4096,512x4096", "--cache", "cold", "--repeats", "40"};
  RunOptions options;
  options.err_is_terminal = true;
  EXPECT_NE(run(arguments, options).err.find(" %"), std::string::npos);
  EXPECT_EQ(run(arguments).err, "");
}

}  // namespace
}  // namespace rmsnorm::tools
