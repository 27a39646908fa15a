// Memory whose first or last byte borders on a page that may not be touched.
#ifndef RMSNORM_TEST_SUPPORT_GUARDED_H_
#define RMSNORM_TEST_SUPPORT_GUARDED_H_

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>

namespace rmsnorm::test {

enum class Guard { kBefore, kBehind };

class GuardedBuffer {
 public:
  GuardedBuffer(std::size_t bytes, Guard side) {
    const std::size_t page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t inner = (bytes + page - 1) / page * page;
    size_ = inner + 2 * page;
    memory_ = mmap(nullptr, size_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char* first = static_cast<char*>(memory_) + page;
    if (memory_ == MAP_FAILED || (inner > 0 && mprotect(first, inner, PROT_READ | PROT_WRITE) != 0)) {
      std::perror("GuardedBuffer");
      std::abort();
    }
    data_ = side == Guard::kBefore ? first : first + inner - bytes;
  }
  ~GuardedBuffer() { munmap(memory_, size_); }
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;

  char* data() const { return data_; }

 private:
  void* memory_;
  std::size_t size_;
  char* data_;
};

}  // namespace rmsnorm::test

#endif  // RMSNORM_TEST_SUPPORT_GUARDED_H_
