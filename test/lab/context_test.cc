// Pieces: made once, found again to the bit, never mixed up.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>

#include "lab/experiments/experiment.h"
#include "lab/experiments/turn.h"
#include "tools/error.h"

namespace rmsnorm::lab {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

class Pieces : public testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder()); }
  void TearDown() override { fs::remove_all(folder()); }
  static fs::path folder() {
    return fs::path(testing::TempDir()) / testing::UnitTest::GetInstance()->current_test_info()->name() / "cost";
  }
  static fs::path file() { return folder() / "a-1.json"; }
  static void write(const std::string& text) { std::ofstream(file()) << text; }
  static std::string refused() {
    try {
      Context(Scale::kSmoke, folder(), false).piece("a-1", [] { return json(1); });
    } catch (const tools::ToolError& error) {
      EXPECT_EQ(error.code(), tools::ExitCode::kBadInput);
      return error.what();
    }
    return "accepted";
  }
};

TEST_F(Pieces, work_is_done_once) {
  int calls = 0;
  const auto work = [&] {
    ++calls;
    return json{{"third", 1.0 / 3}, {"list", {1, 2}}};
  };
  const json first = Context(Scale::kSmoke, folder(), false).piece("a-1", work);
  Context again(Scale::kSmoke, folder() / "", false);
  EXPECT_EQ(again.piece("a-1", work), first);
  EXPECT_EQ(first["third"].get<double>(), 1.0 / 3);
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(again.provenance().size(), 1u);
  EXPECT_EQ(again.provenance()[0].key, "a-1");
  EXPECT_NE(again.provenance()[0].machine.find("CPUs"), std::string::npos);
  EXPECT_FALSE(again.provenance()[0].commit.empty());
  EXPECT_EQ(scale_of_pieces(folder()), Scale::kSmoke);
}

TEST_F(Pieces, numbers_that_are_not_finite_are_kept) {
  constexpr double kInfinite = std::numeric_limits<double>::infinity();
  const json value = {{"loss", {1.5, std::nan(""), -kInfinite}}, {"best", kInfinite}};
  for (int turn = 0; turn < 2; ++turn) {
    const json found = Context(Scale::kSmoke, folder(), false).piece("a-1", [&] { return value; });
    EXPECT_TRUE(std::isnan(found["loss"][1].get<double>()));
    EXPECT_EQ(found["loss"][2].get<double>(), -kInfinite);
    EXPECT_EQ(found["best"].get<double>(), kInfinite);
    EXPECT_EQ(found["loss"][0].get<double>(), 1.5);
  }
}

TEST_F(Pieces, work_that_fails_leaves_nothing) {
  Context context(Scale::kSmoke, folder(), false);
  EXPECT_THROW(context.piece("a-1", []() -> json { throw std::runtime_error("no"); }), std::runtime_error);
  EXPECT_FALSE(fs::exists(file()));
  EXPECT_EQ(context.piece("a-1", [] { return json(7); }), json(7));
}

TEST_F(Pieces, scratch_is_there_while_the_piece_runs) {
  Context context(Scale::kSmoke, folder(), false);
  fs::path scratch;
  context.piece("a-1", [&] {
    scratch = context.scratch();
    std::ofstream(scratch / "checkpoint") << "x";
    EXPECT_TRUE(fs::exists(scratch / "checkpoint"));
    return json(1);
  });
  EXPECT_FALSE(fs::exists(scratch));
}

TEST_F(Pieces, a_report_works_nothing) {
  Context context(Scale::kSmoke, folder(), false);
  context.read_only();
  EXPECT_THROW(context.piece("a-1", [] { return json(1); }), MissingPiece);
  EXPECT_FALSE(fs::exists(file()));
}

TEST_F(Pieces, keys_are_plain_names) {
  Context context(Scale::kSmoke, folder(), false);
  for (const char* key : {"", "A", "a/b", "..", "a b", "a.json"}) {
    EXPECT_THROW(context.piece(key, [] { return json(1); }), std::invalid_argument) << key;
  }
}

TEST_F(Pieces, foreign_and_damaged_files_are_refused) {
  Context(Scale::kSmoke, folder(), false).piece("a-1", [] { return json(1); });
  json good = json::parse(std::ifstream(file()));
  const auto with = [&](const char* name, const json& value) {
    json changed = good;
    changed[name] = value;
    write(changed.dump());
    return refused();
  };
  EXPECT_NE(with("scale", "full").find("scale is 'full'; it must be 'smoke'"), std::string::npos);
  EXPECT_NE(with("experiment", "soak").find("experiment is 'soak'; it must be 'cost'"), std::string::npos);
  EXPECT_NE(with("key", "b").find("key is 'b'; it must be 'a-1'"), std::string::npos);
  EXPECT_NE(with("seconds", "long").find("\"seconds\" is missing or of the wrong type"), std::string::npos);
  EXPECT_NE(with("machine", nullptr).find("\"machine\" is missing"), std::string::npos);
  for (const char* text : {"", "{", "[1]", "null", "\xff\xfe", "{\"key\": \"a-1\""}) {
    write(text);
    EXPECT_NE(refused().find("the file is no JSON object"), std::string::npos) << text;
  }
  write(std::string(200000, '['));
  EXPECT_NE(refused().find("the file is no JSON object"), std::string::npos);
  write(good.dump());
  EXPECT_EQ(refused(), "accepted");
}

TEST_F(Pieces, names_of_scales) {
  for (const Scale scale : {Scale::kSmoke, Scale::kQuick, Scale::kFull}) EXPECT_EQ(scale_named(name_of(scale)), scale);
  EXPECT_THROW(scale_named("huge"), std::invalid_argument);
  EXPECT_EQ(scale_of_pieces(folder()), std::nullopt);
}

// Another process that has a turn for `hold` microseconds; it has it when the constructor returns.
class OtherProcess {
 public:
  OtherProcess(const fs::path& folder, bool alone, useconds_t hold) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("no pipe");
    child_ = ::fork();
    if (child_ == 0) {
      const Turn turn(folder, alone);
      if (::write(ends[1], "x", 1) == 1) ::usleep(hold);
      ::_exit(0);
    }
    char byte = 0;
    if (::read(ends[0], &byte, 1) != 1) throw std::runtime_error("the other process has no turn");
    ::close(ends[0]);
    ::close(ends[1]);
  }
  ~OtherProcess() { end(); }
  void end() {
    if (child_ <= 0) return;
    ::kill(child_, SIGKILL);
    ::waitpid(child_, nullptr, 0);
    child_ = 0;
  }

 private:
  pid_t child_ = 0;
};

double seconds_until_turn(const fs::path& folder, bool alone) {
  const auto start = std::chrono::steady_clock::now();
  const Turn turn(folder, alone);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

constexpr useconds_t kBriefly = 400'000, kLong = 60'000'000;

TEST_F(Pieces, what_is_timed_is_made_alone) {
  fs::create_directories(folder());
  for (const auto& [theirs, ours] : {std::pair{true, false}, {false, true}, {true, true}}) {
    const OtherProcess other(folder(), theirs, kBriefly);
    EXPECT_GT(seconds_until_turn(folder(), ours), 0.2) << theirs << ours;
  }
}

TEST_F(Pieces, what_is_not_timed_is_made_side_by_side) {
  fs::create_directories(folder());
  OtherProcess other(folder(), false, kLong);
  EXPECT_LT(seconds_until_turn(folder(), false), 30);
  other.end();
}

TEST_F(Pieces, a_process_that_dies_gives_its_turn_back) {
  fs::create_directories(folder());
  OtherProcess other(folder(), true, kLong);
  other.end();
  EXPECT_LT(seconds_until_turn(folder(), true), 30);
}

TEST_F(Pieces, one_at_a_time) {
  Context context(Scale::kSmoke, folder(), false);
  EXPECT_THROW(context.piece("a-1", [&] { return context.piece("a-2", [] { return json(1); }); }), std::logic_error);
  EXPECT_EQ(context.timed_pieces("a", [] { return json(7); }).front(), json(7));
}

// What the program does, without another process.
TEST_F(Pieces, each_timed_piece_is_made_by_its_own_start) {
  int started = 0;
  const auto experiment = [&](Context& context) {
    context.piece("first", [] { return json(1); });
    const std::vector<json> times = context.timed_pieces("a", [&] { return json(started); });
    context.piece("last", [] { return json(2); });
    return times;
  };
  std::vector<std::string> keys;
  Context context(Scale::kSmoke, folder(), false);
  context.start_with([&](const std::string& key) {
    keys.push_back(key);
    ++started;
    Context started_one(Scale::kSmoke, folder(), false);
    started_one.only(key);
    EXPECT_THROW(experiment(started_one), PieceMade);
    EXPECT_FALSE(fs::exists(folder() / "last.json"));
  });
  EXPECT_EQ(experiment(context), (std::vector<json>{1, 2}));
  EXPECT_EQ(keys, (std::vector<std::string>{"a-1", "a-2"}));
  EXPECT_EQ(experiment(context), (std::vector<json>{1, 2}));  // read
  EXPECT_EQ(keys.size(), 2u);
}

TEST_F(Pieces, a_start_that_makes_nothing_is_noticed) {
  Context context(Scale::kSmoke, folder(), false);
  context.start_with([](const std::string&) {});
  EXPECT_THROW(context.timed_pieces("a", [] { return json(1); }), tools::ToolError);
}

TEST_F(Pieces, the_process_of_one_piece_makes_no_other) {
  Context context(Scale::kSmoke, folder(), false);
  context.only("a-2");
  EXPECT_THROW(context.timed_pieces("a", [] { return json(1); }), MissingPiece);
  EXPECT_FALSE(fs::exists(file()));
}

}  // namespace
}  // namespace rmsnorm::lab
