// unload_test LIBRARY: the library leaves a process as it came: no thread and no fork handler stays behind when it is
// unloaded.
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "rmsnorm/rmsnorm.h"

namespace {

const char* library_path = nullptr;

int threads_of_this_process() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("Threads:", 0) == 0) return std::stoi(line.substr(8));
  }
  return -1;
}

TEST(Unload, EndsTheWorkers) {
  for (int round = 0; round < 3; ++round) {
    void* library = dlopen(library_path, RTLD_NOW | RTLD_LOCAL);
    ASSERT_NE(library, nullptr) << dlerror();
    const auto center = reinterpret_cast<decltype(&rn_center)>(dlsym(library, "rn_center"));
    const auto matrix = reinterpret_cast<decltype(&rn_matrix)>(dlsym(library, "rn_matrix"));
    ASSERT_TRUE(center != nullptr && matrix != nullptr);
    std::vector<float> x(2048 * 1024, 1.0f), out(x.size());
    const rn_view x_view = matrix(x.data(), RN_F32, 2048, 1024);
    const rn_view out_view = matrix(out.data(), RN_F32, 2048, 1024);
    EXPECT_EQ(center(&out_view, &x_view, nullptr), RN_OK);
    cpu_set_t cpus;
    ASSERT_EQ(sched_getaffinity(0, sizeof cpus, &cpus), 0);
    if (CPU_COUNT(&cpus) > 1 && std::getenv("RMSNORM_THREADS") == nullptr) {
      EXPECT_GT(threads_of_this_process(), 1);
    }
    EXPECT_EQ(dlclose(library), 0);
    EXPECT_EQ(dlopen(library_path, RTLD_NOW | RTLD_NOLOAD), nullptr) << "the library is still there";
    // A joined thread is counted until the kernel has put it away.
    for (int i = 0; i < 1000 && threads_of_this_process() > 1; ++i) usleep(1000);
    EXPECT_EQ(threads_of_this_process(), 1);
    const pid_t child = fork();
    if (child == 0) _exit(0);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  library_path = argc > 1 ? argv[1] : "";
  return RUN_ALL_TESTS();
}
