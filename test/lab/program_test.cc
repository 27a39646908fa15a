// rmsnorm-lab as a program: help, exit codes, a run that is killed and taken up again, its report.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "cli.h"
#include "tools/exit_code.h"

namespace rmsnorm::tools {
namespace {

namespace fs = std::filesystem;

constexpr int kUsage = static_cast<int>(ExitCode::kUsage), kBadInput = static_cast<int>(ExitCode::kBadInput);

std::vector<nlohmann::json> lines_of(const std::string& text) {
  std::vector<nlohmann::json> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

class LabProgram : public Cli {};

TEST_F(LabProgram, help_has_examples_and_exit_codes) {
  const std::string main = run({"--help"}).out;
  for (const ExitCodeText& entry : kExitCodes) EXPECT_NE(main.find(entry.meaning), std::string::npos) << entry.meaning;
  for (const char* command : {"list", "run", "report", "soak"}) {
    EXPECT_NE(main.find(std::string("\n  ") + command), std::string::npos) << command;
    const Outcome help = run({command, "--help"});
    EXPECT_EQ(help.code, 0);
    EXPECT_NE(help.out.find("Examples:\n  rmsnorm-lab " + std::string(command)), std::string::npos) << help.out;
  }
}

TEST_F(LabProgram, mistakes_have_messages) {
  expect_failure({}, kUsage, "subcommand is required");
  expect_failure({"run", "nothing"}, kUsage, "EXPERIMENT is 'nothing'; it must be one of cost,");
  expect_failure({"run", "--scale", "huge"}, kUsage, "scale is 'huge'; it must be smoke, quick or full");
  expect_failure({"soak", "--seconds", "0"}, kUsage, "--seconds is 0; it must be a finite number > 0");
  expect_failure({"soak", "--seconds", "nan"}, kUsage, "--seconds is nan; it must be");
  expect_failure({"soak", "--seed", "-1"}, kUsage, "--seed");
  expect_failure({"report", "--folder", "nowhere"}, kBadInput, "nowhere: the folder has the pieces of no experiment");
  EXPECT_TRUE(files().empty());
}

TEST_F(LabProgram, the_list_is_complete_and_in_order) {
  const Outcome listed = run({"list", "--json"});
  ASSERT_EQ(listed.code, 0);
  int before = 0;
  for (const nlohmann::json& line : lines_of(listed.out)) {
    EXPECT_GT(line.at("number").get<int>(), before);
    before = line.at("number");
    for (const char* name : {"name", "title", "claim", "design", "rule"}) {
      EXPECT_FALSE(line.at(name).get<std::string>().empty()) << line.dump();
    }
    EXPECT_NE(run({"list"}).out.find(line.at("title").get<std::string>()), std::string::npos);
  }
  EXPECT_EQ(before, 14);
}

TEST_F(LabProgram, soak_prints_what_it_did) {
  const Outcome outcome = run({"soak", "--seconds", "0.5", "--seed", "3", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  const nlohmann::json line = nlohmann::json::parse(outcome.out);
  EXPECT_GT(line.at("cases").get<int>(), 0);
  EXPECT_GE(line.at("seconds").get<double>(), 0.5);
  EXPECT_TRUE(line.at("faults").empty());
}

TEST_F(LabProgram, experiments_run_side_by_side) {
  const Outcome outcome =
      run({"run", "soak", "parallel", "--scale", "smoke", "--folder", "pieces", "--jobs", "2", "--json"});
  ASSERT_EQ(outcome.code, 0) << outcome.err;
  int of_soak = 0, of_parallel = 0;
  for (const nlohmann::json& line : lines_of(outcome.out)) {
    of_soak += line.at("experiment") == "soak";
    of_parallel += line.at("experiment") == "parallel";
  }
  EXPECT_EQ(of_soak, 1);
  EXPECT_GT(of_parallel, 0);
  expect_failure({"run", "soak", "parallel", "--scale", "quick", "--folder", "pieces", "--jobs", "2"}, kBadInput,
                 "these failed: parallel, soak");
  expect_failure({"run", "--jobs", "0"}, kUsage, "--jobs");
}

TEST_F(LabProgram, a_killed_run_leaves_nothing_half_done_and_ends_when_run_again) {
  const RunOptions killed{.environment = {}, .in_child = {}, .while_running = [](int pid) {
                            ::usleep(2'500'000);
                            ::kill(pid, SIGKILL);
                          }};
  EXPECT_EQ(run({"run", "soak", "--scale", "smoke", "--folder", "pieces"}, killed).signal, SIGKILL);
  EXPECT_FALSE(fs::exists(path("pieces/soak/soak.json")));
  expect_failure({"report", "--folder", "pieces"}, kBadInput, "has the pieces of no experiment");
  ASSERT_EQ(run({"run", "soak", "--scale", "smoke", "--folder", "pieces"}).code, 0);
  const std::string piece = read_bytes("pieces/soak/soak.json");
  const Outcome again = run({"run", "soak", "--scale", "smoke", "--folder", "pieces", "--json"});  // done: no work
  ASSERT_EQ(again.code, 0);
  EXPECT_EQ(read_bytes("pieces/soak/soak.json"), piece);
  ASSERT_EQ(lines_of(again.out).size(), 1u);
  EXPECT_EQ(lines_of(again.out)[0].at("experiment"), "soak");
  expect_failure({"run", "soak", "--scale", "quick", "--folder", "pieces"}, kBadInput, "scales do not mix");

  ASSERT_EQ(run({"report", "--folder", "pieces", "--output", "report"}).code, 0);
  for (const char* name : {"report/report.html", "report/report.md", "report/plots/soak-1.svg"}) {
    EXPECT_TRUE(fs::exists(path(name))) << name;
  }
  EXPECT_NE(read_bytes("report/report.html").find("Not in this report: cost: not run"), std::string::npos);
  const std::string measured = lines_of(again.out)[0].at("measured");
  EXPECT_NE(read_bytes("report/report.md").find(measured), std::string::npos);

  nlohmann::json damaged = nlohmann::json::parse(piece);
  damaged["value"].erase("cases");
  write_bytes("pieces/soak/soak.json", damaged.dump());
  expect_failure({"report", "--folder", "pieces"}, kBadInput, "a piece is not what the experiment wrote");
}

}  // namespace
}  // namespace rmsnorm::tools
