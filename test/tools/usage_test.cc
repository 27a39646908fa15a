// Help, exit codes, and every mistake on the command line that has a message of its own.
#include <fcntl.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "cli.h"
#include "tools/exit_code.h"

namespace rmsnorm::tools {
namespace {

class Usage : public Cli {
 protected:
  Usage() {
    write_npy("x.npy", {2, 3}, {1, 2, 3, 4, 5, 6});
    write_npy("w.npy", {4}, {1, 2, 3, 4});
  }

  // `rmsnorm norm OP INPUT OPTIONS -o y.npy` must fail.
  void expect_refused(const std::string& op, std::vector<std::string> options, int code, const std::string& text,
                      const std::string& input = "x.npy") const {
    options.insert(options.begin(), {"norm", op, input});
    options.insert(options.end(), {"-o", "y.npy"});
    expect_failure(options, code, text);
  }
};

TEST_F(Usage, help_has_examples_and_exit_codes) {
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"--help"},
                                                    {"info", "--help"},
                                                    {"norm", "--help"},
                                                    {"check", "--help"},
                                                    {"bench", "--help"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.code, 0);
    EXPECT_NE(outcome.out.find("Examples:\n  "), std::string::npos);
    EXPECT_EQ(outcome.err, "");
  }
  const std::string help = run({"--help"}).out;
  for (const ExitCodeText& entry : kExitCodes) EXPECT_NE(help.find(entry.meaning), std::string::npos);
  EXPECT_EQ(run({"--version"}).out.find("rmsnorm 0."), 0u);
}

TEST_F(Usage, the_documented_exit_codes_are_these) {
  std::ifstream in(RMSNORM_SOURCE_DIR "/docs/command_line.md");
  const std::string page{std::istreambuf_iterator<char>(in), {}};
  for (const ExitCodeText& entry : kExitCodes) {
    const std::string line = std::to_string(static_cast<int>(entry.code)) + "  " + entry.meaning + "\n";
    EXPECT_NE(page.find(line), std::string::npos) << line;
  }
}

TEST_F(Usage, mistakes_of_the_command_line) {
  expect_failure({}, 2, "subcommand is required");
  expect_failure({"nrom"}, 2, "");
  expect_failure({"norm"}, 2, "OP is missing");
  expect_failure({"norm", "rms_norm"}, 2, "INPUT is missing");
  expect_failure({"norm", "rms_norm", "x.npy", "--wieght", "w.npy"}, 2, "--wieght");
  expect_refused("batch_norm", {}, 2, "OP is 'batch_norm'; it must be one of rms_norm");
  expect_failure({"norm", "rms_norm", "x.npy"}, 2, "-o OUT or --in-place must be given");
  expect_refused("rms_norm", {}, 2, "it must end in .npy", "x.bin");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.txt"}, 2, "it must end in .npy");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.safetensors"}, 2, "no tensor is named");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.safetensors:"}, 2, "no tensor is named");
  expect_refused("rms_norm", {"--type", "f8"}, 2, "f32, f16, bf16 or f64");
  expect_refused("rms_norm", {"--out-type", "int"}, 2, "f32, f16, bf16 or f64");
  expect_refused("rms_norm", {"--rounding", "up"}, 2, "once, before_weight, exact");
  expect_refused("rms_norm", {"--epsilon-placement", "x"}, 2, "inside, outside");
  expect_refused("rms_norm", {"--epsilon", "tiny"}, 2, "--epsilon");
  expect_refused("rms_norm", {"--threads", "-1"}, 2, "--threads");
  expect_refused("rms_norm", {"--partial", "0"}, 2, "--partial is 0");
  expect_refused("rms_norm", {"--axis", "2"}, 2, "it must be from -2 to 1");
  expect_refused("rms_norm", {"--residual", "x.npy"}, 2, "--residual is given");
  expect_refused("rms_norm", {"--residual-out", "s.npy"}, 2, "--residual-out is given");
  expect_refused("rms_norm", {"--norm-input", "rounded"}, 2, "--norm-input is given");
  expect_refused("add_rms_norm", {}, 2, "--residual is missing");
  expect_refused("layer_norm", {"--partial", "1"}, 2, "--partial is given");
  expect_refused("layer_norm", {"--rounding", "once"}, 2, "--rounding is given");
  expect_refused("center", {"--epsilon", "1"}, 2, "--epsilon is given");
  expect_refused("center", {"--weight", "w.npy"}, 2, "--weight is given");
  expect_refused("center", {"--stats", "s.npy"}, 2, "--stats is given");
}

TEST_F(Usage, inputs_that_do_not_fit_together) {
  write_npy("scalar.npy", {}, {1});
  write_npy("flat.npy", {2, 0}, {});
  expect_refused("rms_norm", {"--weight", "w.npy"}, 3,
                 "weight: shape is [4]; it must be [3] or broadcast against x, [2, 3]");
  expect_refused("rms_norm", {"--bias", "w.npy"}, 3, "bias: shape is [4]");
  expect_refused("add_rms_norm", {"--residual", "w.npy"}, 3, "residual: shape is [4]");
  expect_refused("rms_norm", {"--partial", "4"}, 3, "partial");
  expect_refused("rms_norm", {"--epsilon", "-1"}, 3, "epsilon is -1; it must be");
  expect_refused("rms_norm", {"--epsilon", "nan"}, 3, "epsilon is");
  expect_refused("rms_norm", {"--out-type", "f64"}, 3, "f64");
  expect_refused("rms_norm", {}, 3, "at least one axis", "scalar.npy");
  expect_refused("rms_norm", {}, 3, "must not be empty", "flat.npy");
}

TEST_F(Usage, norm_and_check_refuse_the_same_values_with_the_same_code) {
  struct Mistake {
    std::vector<std::string> options;
    int code;
  };
  for (const Mistake& mistake : {Mistake{{"--partial", "0"}, 2},
                                 {{"--partial", "4"}, 3},
                                 {{"--epsilon", "-1"}, 3},
                                 {{"--epsilon", "inf"}, 3},
                                 {{"--epsilon", "tiny"}, 2},
                                 {{"--weight-offset", "nan"}, 3},
                                 {{"--rounding", "up"}, 2},
                                 {{"--target", "mmx"}, 6}}) {
    const std::string text = mistake.options[1] == "tiny" ? "--epsilon" : mistake.options[1];
    expect_refused("rms_norm", mistake.options, mistake.code, text);
    std::vector<std::string> check{"check", "rms_norm", "x=2x3:f32"};
    check.insert(check.end(), mistake.options.begin(), mistake.options.end());
    expect_failure(check, mistake.code, text);
  }
}

TEST_F(Usage, files_that_cannot_be_read) {
  write_bytes("short.npy", "\x93NUMPY");
  expect_refused("rms_norm", {}, 4, "absent.npy: cannot open: No such file", "absent.npy");
  expect_refused("rms_norm", {}, 4, "cannot open: No such file", "absent.safetensors:x");
  expect_refused("rms_norm", {}, 3, "short.npy: the file does not begin", "short.npy");
}

TEST_F(Usage, targets_that_are_not_there) {
  expect_refused("rms_norm", {"--target", "mmx"}, 6, "mmx");
  expect_failure({"check", "rms_norm", "x=1x4:f32", "--target", "mmx"}, 6, "mmx");
  RunOptions options;
  options.environment = {"RMSNORM_TARGET=mmx"};
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"info"}, {"norm", "rms_norm", "x.npy", "-o", "y.npy"}, {"check", "center", "x=1x4"}}) {
    const Outcome outcome = run(arguments, options);
    EXPECT_EQ(outcome.code, 6) << arguments[0] << outcome.err;
    EXPECT_NE(outcome.err.find("mmx"), std::string::npos);
  }
}

TEST_F(Usage, info_names_the_target_and_why) {
  const auto json = nlohmann::json::parse(run({"info", "--json"}).out);
  EXPECT_EQ(json["target_reason"], "best supported");
  EXPECT_GE(json["targets"].size(), 2u);
  RunOptions options;
  options.environment = {"RMSNORM_TARGET=scalar"};
  const Outcome outcome = run({"info"}, options);
  EXPECT_NE(outcome.out.find("in use   scalar (RMSNORM_TARGET)"), std::string::npos) << outcome.out;
}

TEST_F(Usage, a_full_standard_output_is_an_error) {
  RunOptions options;
  options.in_child = [] { ::dup2(::open("/dev/full", O_WRONLY), STDOUT_FILENO); };
  EXPECT_EQ(run({"info"}, options).code, 4);
}

}  // namespace
}  // namespace rmsnorm::tools
