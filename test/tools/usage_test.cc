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
  expect_failure({"norm"}, 2, "OP is required");
  expect_failure({"norm", "rms_norm"}, 2, "INPUT is required");
  expect_failure({"norm", "rms_norm", "x.npy", "--wieght", "w.npy"}, 2, "--wieght");
  expect_failure({"norm", "batch_norm", "x.npy", "-o", "y.npy"}, 2, "OP is 'batch_norm'; it must be one of rms_norm");
  expect_failure({"norm", "rms_norm", "x.npy"}, 2, "-o OUT or --in-place must be given");
  expect_failure({"norm", "rms_norm", "x.bin", "-o", "y.npy"}, 2, "it must end in .npy");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.txt"}, 2, "it must end in .npy");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.safetensors"}, 2, "no tensor is named");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.safetensors:"}, 2, "no tensor is named");
  expect_failure({"norm", "rms_norm", "x.npy", "--type", "f8", "-o", "y.npy"}, 2, "f32, f16, bf16 or f64");
  expect_failure({"norm", "rms_norm", "x.npy", "--out-type", "int", "-o", "y.npy"}, 2, "f32, f16, bf16 or f64");
  expect_failure({"norm", "rms_norm", "x.npy", "--rounding", "up", "-o", "y.npy"}, 2, "once, before_weight, exact");
  expect_failure({"norm", "rms_norm", "x.npy", "--epsilon-placement", "x", "-o", "y.npy"}, 2, "inside, outside");
  expect_failure({"norm", "rms_norm", "x.npy", "--epsilon", "tiny", "-o", "y.npy"}, 2, "--epsilon");
  expect_failure({"norm", "rms_norm", "x.npy", "--threads", "-1", "-o", "y.npy"}, 2, "--threads");
  expect_failure({"norm", "rms_norm", "x.npy", "--partial", "0", "-o", "y.npy"}, 2, "--partial is 0");
  expect_failure({"norm", "rms_norm", "x.npy", "--axis", "2", "-o", "y.npy"}, 2, "it must be from -2 to 1");
  expect_failure({"norm", "rms_norm", "x.npy", "--residual", "x.npy", "-o", "y.npy"}, 2, "--residual is given");
  expect_failure({"norm", "rms_norm", "x.npy", "--residual-out", "s.npy", "-o", "y.npy"}, 2, "--residual-out is given");
  expect_failure({"norm", "rms_norm", "x.npy", "--norm-input", "rounded", "-o", "y.npy"}, 2, "--norm-input is given");
  expect_failure({"norm", "add_rms_norm", "x.npy", "-o", "y.npy"}, 2, "--residual is missing");
  expect_failure({"norm", "layer_norm", "x.npy", "--partial", "1", "-o", "y.npy"}, 2, "--partial is given");
  expect_failure({"norm", "layer_norm", "x.npy", "--rounding", "once", "-o", "y.npy"}, 2, "--rounding is given");
  expect_failure({"norm", "center", "x.npy", "--epsilon", "1", "-o", "y.npy"}, 2, "--epsilon is given");
  expect_failure({"norm", "center", "x.npy", "--weight", "w.npy", "-o", "y.npy"}, 2, "--weight is given");
  expect_failure({"norm", "center", "x.npy", "--stats", "s.npy", "-o", "y.npy"}, 2, "--stats is given");
}

TEST_F(Usage, inputs_that_do_not_fit_together) {
  write_npy("scalar.npy", {}, {1});
  write_npy("flat.npy", {2, 0}, {});
  expect_failure({"norm", "rms_norm", "x.npy", "--weight", "w.npy", "-o", "y.npy"}, 3,
                 "weight: shape is [4]; it must be [3] or broadcast against x, [2, 3]");
  expect_failure({"norm", "rms_norm", "x.npy", "--bias", "w.npy", "-o", "y.npy"}, 3, "bias: shape is [4]");
  expect_failure({"norm", "add_rms_norm", "x.npy", "--residual", "w.npy", "-o", "y.npy"}, 3, "residual: shape is [4]");
  expect_failure({"norm", "rms_norm", "x.npy", "--partial", "4", "-o", "y.npy"}, 3, "partial");
  expect_failure({"norm", "rms_norm", "x.npy", "--epsilon", "-1", "-o", "y.npy"}, 3, "epsilon is -1; it must be");
  expect_failure({"norm", "rms_norm", "x.npy", "--epsilon", "nan", "-o", "y.npy"}, 3, "epsilon is");
  expect_failure({"norm", "rms_norm", "x.npy", "--out-type", "f64", "-o", "y.npy"}, 3, "f64");
  expect_failure({"norm", "rms_norm", "scalar.npy", "-o", "y.npy"}, 3, "at least one axis");
  expect_failure({"norm", "rms_norm", "flat.npy", "-o", "y.npy"}, 3, "must not be empty");
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
    std::vector<std::string> norm{"norm", "rms_norm", "x.npy", "-o", "y.npy"}, check{"check", "rms_norm", "x=2x3:f32"};
    for (std::vector<std::string>* line : {&norm, &check}) {
      line->insert(line->end(), mistake.options.begin(), mistake.options.end());
      const std::string& value = mistake.options[1];
      expect_failure(*line, mistake.code, value == "tiny" ? "--epsilon" : value);
    }
  }
}

TEST_F(Usage, files_that_cannot_be_read) {
  write_bytes("short.npy", "\x93NUMPY");
  expect_failure({"norm", "rms_norm", "absent.npy", "-o", "y.npy"}, 4, "absent.npy: cannot open: No such file");
  expect_failure({"norm", "rms_norm", "absent.safetensors:x", "-o", "y.npy"}, 4, "cannot open: No such file");
  expect_failure({"norm", "rms_norm", "short.npy", "-o", "y.npy"}, 3, "short.npy: the file does not begin");
}

TEST_F(Usage, targets_that_are_not_there) {
  expect_failure({"norm", "rms_norm", "x.npy", "--target", "mmx", "-o", "y.npy"}, 6, "mmx");
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
