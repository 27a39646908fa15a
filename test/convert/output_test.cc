// The folder appears whole or not at all; memory is bounded. The command line as a program.
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include "../tools/cli.h"
#include "files.h"

namespace rmsnorm::tools {
namespace {

using convert::Json;

// A GPT-2 whose files are holes: zeros that take no room on the disk.
class Big : public Cli {
 protected:
  void write_big(const std::string& name, std::int64_t width, std::int64_t layers, std::int64_t vocabulary) const {
    Json header = {{"__metadata__", {{"format", "pt"}}}};
    std::uint64_t at = 0;
    const auto add = [&](const std::string& tensor, const std::vector<std::int64_t>& shape) {
      std::uint64_t bytes = 2;
      for (const std::int64_t length : shape) bytes *= static_cast<std::uint64_t>(length);
      header[tensor] = {{"dtype", "F16"}, {"shape", shape}, {"data_offsets", {at, at + bytes}}};
      at += bytes;
    };
    add("wte.weight", {vocabulary, width});
    add("wpe.weight", {1024, width});
    for (std::int64_t i = 0; i < layers; ++i) {
      const std::string layer = "h." + std::to_string(i) + ".";
      for (const char* norm : {"ln_1", "ln_2"}) {
        add(layer + norm + ".weight", {width});
        add(layer + norm + ".bias", {width});
      }
      add(layer + "attn.c_attn.weight", {width, 3 * width});
      add(layer + "attn.c_attn.bias", {3 * width});
      add(layer + "attn.c_proj.weight", {width, width});
      add(layer + "attn.c_proj.bias", {width});
      add(layer + "mlp.c_fc.weight", {width, 4 * width});
      add(layer + "mlp.c_fc.bias", {4 * width});
      add(layer + "mlp.c_proj.weight", {4 * width, width});
      add(layer + "mlp.c_proj.bias", {width});
    }
    add("ln_f.weight", {width});
    add("ln_f.bias", {width});
    const std::string text = header.dump();
    std::string start(8, '\0');
    for (std::size_t i = 0; i < 8; ++i) start[i] = static_cast<char>(text.size() >> (8 * i));
    std::filesystem::create_directory(path(name));
    write_bytes(name + "/model.safetensors", start + text);
    const auto size = static_cast<off_t>(8 + text.size() + at);
    ASSERT_EQ(::truncate(path(name + "/model.safetensors").c_str(), size), 0);
    const Json config = {
        {"architectures", {"GPT2LMHeadModel"}}, {"model_type", "gpt2"}, {"n_embd", width}, {"n_layer", layers}};
    write_bytes(name + "/config.json", config.dump());
  }

  bool unfinished() const {
    for (const std::string& name : files()) {
      if (name.find(".rmsnorm-") != std::string::npos) return true;
    }
    return false;
  }
  void wait_for_unfinished() const {
    for (int i = 0; i < 60000 && !unfinished(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(unfinished()) << "no temporary folder appeared";
  }
};

TEST_F(Big, a_signal_in_the_middle_leaves_nothing) {
  write_big("in", 1024, 8, 50000);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    RunOptions options;
    options.while_running = [&](int child) {
      wait_for_unfinished();
      ::kill(child, number);
    };
    const Outcome outcome = run({"convert", "in", "out"}, options);
    EXPECT_EQ(outcome.signal, number) << outcome.err;
    EXPECT_EQ(files(), (std::vector<std::string>{"in"}));
  }
}

TEST_F(Big, a_kill_leaves_no_output) {
  write_big("in", 1024, 8, 50000);
  RunOptions options;
  options.while_running = [&](int child) {
    wait_for_unfinished();
    ::kill(child, SIGKILL);
  };
  EXPECT_EQ(run({"convert", "in", "out"}, options).signal, SIGKILL);
  EXPECT_FALSE(std::filesystem::exists(path("out")));
}

TEST_F(Big, a_full_disk_is_an_error_that_leaves_nothing) {
  write_big("in", 256, 2, 5000);
  RunOptions options;
  options.in_child = [] {
    const rlimit limit{1 << 20, 1 << 20};  // files of at most 1 MiB
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  const Outcome outcome = run({"convert", "in", "out"}, options);
  EXPECT_EQ(outcome.code, 4) << outcome.err;
  EXPECT_NE(outcome.err.find("cannot write"), std::string::npos) << outcome.err;
  EXPECT_EQ(files(), (std::vector<std::string>{"in"}));
}

TEST_F(Big, an_output_that_exists_stays) {
  write_big("in", 64, 1, 100);
  std::filesystem::create_directory(path("out"));
  expect_failure({"convert", "in", "out"}, 4, "output exists");
  write_bytes("file", "x");
  expect_failure({"convert", "in", "file"}, 4, "output exists");
  EXPECT_EQ(read_bytes("file"), "x");
}

TEST_F(Big, of_two_at_once_one_wins) {
  write_big("in", 512, 4, 20000);
  Outcome outcomes[2];
  std::thread second([&] { outcomes[1] = run({"convert", "in", "out"}); });
  outcomes[0] = run({"convert", "in", "out"});
  second.join();
  const int won = (outcomes[0].code == 0 ? 1 : 0) + (outcomes[1].code == 0 ? 1 : 0);
  EXPECT_EQ(won, 1) << outcomes[0].err << outcomes[1].err;
  const Outcome& lost = outcomes[outcomes[0].code == 0 ? 1 : 0];
  EXPECT_EQ(lost.code, 4);
  EXPECT_NE(lost.err.find("output exists"), std::string::npos) << lost.err;
  EXPECT_EQ(files(), (std::vector<std::string>{"in", "out"}));
  EXPECT_EQ(run({"verify", "in", "out", "--vectors", "1"}).code, 0);
}

TEST_F(Big, half_a_billion_parameters_within_256_mib) {
  write_big("in", 1536, 15, 50257);  // 0.50e9 parameters, 1 GB
  ASSERT_GT(std::filesystem::file_size(path("in/model.safetensors")), 1'000'000'000u);
  struct rusage before;
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &before), 0);
  const Outcome outcome = run({"convert", "in", "out"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  struct rusage after;
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &after), 0);
  EXPECT_LT(after.ru_maxrss, 256 * 1024);  // of the largest child so far, in KiB
  EXPECT_GT(std::filesystem::file_size(path("out/model.safetensors")), 1'000'000'000u);
}

TEST_F(Big, reports_and_refusals_have_their_exit_codes) {
  write_big("in", 64, 1, 100);
  const Outcome done = run({"convert", "in", "out", "--json", "--report", "report.json"});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(Json::parse(done.out), Json::parse(read_bytes("report.json")));
  const Outcome again = run({"convert", "out", "again", "--json"});
  EXPECT_EQ(again.code, 3);
  EXPECT_EQ(Json::parse(again.out)["refused"]["code"], "R11");
  EXPECT_EQ(run({"verify", "in", "out"}).code, 0);
  Json config = Json::parse(read_bytes("out/config.json"));
  config["layer_norm_epsilon"] = 0.5;
  write_bytes("out/config.json", config.dump());
  EXPECT_EQ(run({"verify", "in", "out"}).code, 5);
  EXPECT_EQ(run({"inspect", "nowhere"}).code, 4);
  EXPECT_EQ(run({"convert", "in", "o", "--affine", "some"}).code, 2);
}

TEST_F(Big, paths_that_would_harm_the_input) {
  write_big("in", 64, 1, 100);
  const std::string config = read_bytes("in/config.json");
  expect_failure({"convert", "in", "in/out"}, 2, "it must not lie in IN");
  expect_failure({"fold", "in", "./in/../in/deep/out"}, 2, "it must not lie in IN");
  expect_failure({"convert", "in", "out", "--report", "in/config.json"}, 2, "it must not lie in in");
  expect_failure({"inspect", "in", "--report", "in/report.json"}, 2, "it must not lie in in");
  expect_failure({"convert", "in", "out", "--report", "out/report.json"}, 2, "it must not lie in out");
  write_bytes("notes", "mine");
  expect_failure({"convert", "in", "out", "--report", "notes"}, 2, "is no report");
  expect_failure({"convert", "in", "out", "--report", "nowhere/report.json"}, 4, "cannot write");
  EXPECT_EQ(read_bytes("notes"), "mine");
  EXPECT_EQ(read_bytes("in/config.json"), config);
  EXPECT_EQ(files(), (std::vector<std::string>{"in", "notes"}));
  expect_failure({"inspect", "in", "--svg", "s.svg"}, 2, "it is for ONNX files only");
  expect_failure({"verify", "in", "nowhere"}, 4, "there is no such file");
  expect_failure({"verify", "in", "./in"}, 2, "they must be two models");
  ASSERT_EQ(run({"convert", "in", "out"}).code, 0);
  expect_failure({"verify", "out", "in"}, 3, "R11");
  EXPECT_EQ(run({"inspect", "in", "--report", "report.json"}).code, 0);
  EXPECT_EQ(run({"inspect", "in", "--report", "report.json"}).code, 0);  // a report may be replaced
}

// Names from files reach a terminal escaped, in refusals, reports and errors alike.
TEST_F(Big, names_with_control_characters) {
  write_big("in", 64, 1, 100);
  std::string bytes = read_bytes("in/model.safetensors");
  const std::string name = "evil\\u001b[31m\\n\\u202e";
  const std::size_t at = bytes.find("wpe.weight");
  ASSERT_NE(at, std::string::npos);
  bytes.replace(at, 10, name);
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>((bytes.find("}}") + 2 - 8) >> (8 * i));
  write_bytes("in/model.safetensors", bytes);
  const auto plain = [](const std::string& text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return c == '\n' || (c >= ' ' && c < 0x7f); });
  };
  const Outcome named = run({"inspect", "in"});
  EXPECT_EQ(named.code, 3);
  EXPECT_TRUE(plain(named.err + named.out)) << named.err;
  std::filesystem::rename(path("in"), path("in\x1b[31m\nin"));
  const Outcome outcome = run({"convert", "in\x1b[31m\nin", "no/out"});
  EXPECT_NE(outcome.code, 0);
  EXPECT_TRUE(plain(outcome.err + outcome.out)) << outcome.err;
  const Outcome missing = run({"inspect", "\x1b[31mnowhere"});
  EXPECT_EQ(missing.err, "rmsnorm: \\x1b[31mnowhere: there is no such file or directory\n");
}

}  // namespace
}  // namespace rmsnorm::tools
