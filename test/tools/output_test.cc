// Output files appear whole or not at all.
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <thread>

#include "cli.h"
#include "tools/formats/npy.h"

namespace rmsnorm::tools {
namespace {

class OutputFiles : public Cli {
 protected:
  // 256 MiB of zeros that take no room on the disk: an output that takes a while.
  void write_long_input() const {
    const std::int64_t rows = 65536;
    const std::string header = npy_header(RN_F32, {rows, 1024});
    write_bytes("long.npy", header);
    ASSERT_EQ(::truncate(path("long.npy").c_str(), static_cast<off_t>(header.size()) + rows * 1024 * 4), 0);
  }

  void wait_for_temporary() const {
    for (int i = 0; i < 60000; ++i) {
      for (const std::string& name : files()) {
        if (name.find(".rmsnorm-") != std::string::npos) return;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    ADD_FAILURE() << "no temporary file appeared";
  }
};

TEST_F(OutputFiles, a_signal_in_the_middle_leaves_nothing) {
  write_long_input();
  write_npy("y.npy", {1}, {7});
  const std::string before = read_bytes("y.npy");
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    RunOptions options;
    options.while_running = [&](int child) {
      wait_for_temporary();
      ::kill(child, number);
    };
    const Outcome outcome = run({"norm", "rms_norm", "long.npy", "-o", "y.npy"}, options);
    EXPECT_EQ(outcome.signal, number) << outcome.err;
    EXPECT_EQ(read_bytes("y.npy"), before);
    EXPECT_EQ(files(), (std::vector<std::string>{"long.npy", "y.npy"}));
  }
}

TEST_F(OutputFiles, kill_in_the_middle_keeps_the_old_file) {
  write_long_input();
  write_npy("y.npy", {1}, {7});
  const std::string before = read_bytes("y.npy");
  RunOptions options;
  options.while_running = [&](int child) {
    wait_for_temporary();
    ::kill(child, SIGKILL);
  };
  EXPECT_EQ(run({"norm", "rms_norm", "long.npy", "-o", "y.npy"}, options).signal, SIGKILL);
  EXPECT_EQ(read_bytes("y.npy"), before);
}

TEST_F(OutputFiles, a_full_disk_is_an_error_and_leaves_nothing) {
  write_npy("x.npy", {64, 64}, std::vector<float>(4096, 1));
  write_npy("y.npy", {1}, {7});
  const std::string before = read_bytes("y.npy");
  RunOptions options;
  options.in_child = [] {
    const rlimit limit{8192, 8192};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  };
  for (const char* out : {"y.npy", "new.npy", "new.safetensors:t"}) {
    const Outcome outcome = run({"norm", "rms_norm", "x.npy", "-o", out}, options);
    EXPECT_EQ(outcome.code, 4);
    EXPECT_NE(outcome.err.find("cannot write: File too large"), std::string::npos) << outcome.err;
    EXPECT_EQ(read_bytes("y.npy"), before);
    EXPECT_EQ(files(), (std::vector<std::string>{"x.npy", "y.npy"}));
  }
}

TEST_F(OutputFiles, one_of_two_outputs_that_fails_stops_both) {
  write_npy("x.npy", {4, 4}, std::vector<float>(16, 1));
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.npy", "--stats", "no/such/folder/s.npy"}, 4,
                 "no/such/folder/s.npy: cannot write: No such file or directory");
}

TEST_F(OutputFiles, inputs_are_not_written_over_without_in_place) {
  write_npy("x.npy", {4, 4}, std::vector<float>(16, 1));
  write_npy("w.npy", {4}, {1, 2, 3, 4});
  std::filesystem::create_symlink("x.npy", path("link.npy"));
  std::filesystem::create_hard_link(path("x.npy"), path("hard.npy"));
  const std::string before = read_bytes("x.npy");
  for (const char* out : {"x.npy", "./x.npy", "link.npy", "hard.npy", "w.npy"}) {
    expect_failure({"norm", "rms_norm", "x.npy", "--weight", "w.npy", "-o", out}, 2, "the file of an input");
  }
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.npy", "--stats", "x.npy"}, 2, "the file of an input");
  EXPECT_EQ(run({"norm", "center", "x.npy", "-o", "m.safetensors:a"}).code, 0);
  expect_failure({"norm", "center", "m.safetensors:a", "-o", "m.safetensors:b"}, 2, "the file of an input");
  EXPECT_EQ(run({"norm", "center", "m.safetensors:a", "-o", "m.safetensors:b", "--in-place"}).code, 0);
  expect_failure({"norm", "rms_norm", "x.npy", "--in-place", "-o", "y.npy"}, 2, "must be the file of x.npy");
  expect_failure({"norm", "rms_norm", "x.npy", "--in-place", "--out-type", "bf16"}, 2, "the type of x.npy, f32");
  EXPECT_EQ(read_bytes("x.npy"), before);
}

TEST_F(OutputFiles, two_outputs_need_two_names) {
  write_npy("x.npy", {4, 4}, std::vector<float>(16, 1));
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "y.npy", "--stats", "y.npy"}, 2, "two outputs");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "m.safetensors:a", "--stats", "m.safetensors:a"}, 2,
                 "two outputs");
}

TEST_F(OutputFiles, links_are_followed_and_rights_kept) {
  write_npy("x.npy", {2}, {1, 1});
  write_npy("real.npy", {1}, {7});
  ASSERT_EQ(::chmod(path("real.npy").c_str(), 0640), 0);
  std::filesystem::create_symlink("real.npy", path("link.npy"));
  EXPECT_EQ(run({"norm", "rms_norm", "x.npy", "-o", "link.npy"}).code, 0);
  EXPECT_TRUE(std::filesystem::is_symlink(path("link.npy")));
  EXPECT_EQ(read_floats("real.npy").size(), 2u);
  struct stat status;
  ASSERT_EQ(::stat(path("real.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  RunOptions options;
  options.in_child = [] { ::umask(027); };
  EXPECT_EQ(run({"norm", "rms_norm", "x.npy", "-o", "new.npy"}, options).code, 0);
  ASSERT_EQ(::stat(path("new.npy").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
}

TEST_F(OutputFiles, what_is_no_regular_file_is_refused) {
  write_npy("x.npy", {2}, {1, 1});
  std::filesystem::create_directory(path("folder.npy"));
  std::filesystem::create_symlink("nowhere.npy", path("dangling.npy"));
  ASSERT_EQ(::mkfifo(path("fifo.npy").c_str(), 0600), 0);
  std::filesystem::create_symlink("/dev/full", path("full.npy"));
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "folder.npy"}, 4, "output is a directory");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "dangling.npy"}, 4, "link to nothing");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "full.npy"}, 4, "output is a device");
  expect_failure({"norm", "rms_norm", "fifo.npy", "-o", "y.npy"}, 4, "it must be a regular file");
  expect_failure({"norm", "rms_norm", "folder.npy", "-o", "y.npy"}, 4, "this is a directory");
}

TEST_F(OutputFiles, a_broken_safetensors_output_is_not_replaced) {
  write_npy("x.npy", {2}, {1, 1});
  write_bytes("m.safetensors", "this is something else");
  expect_failure({"norm", "rms_norm", "x.npy", "-o", "m.safetensors:a"}, 3, "m.safetensors: header length is");
  EXPECT_EQ(read_bytes("m.safetensors"), "this is something else");
}

}  // namespace
}  // namespace rmsnorm::tools
