#include "support/allocations.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace {

std::atomic<std::int64_t> count{0};
std::atomic<std::int64_t> bytes{0};

void add(std::size_t size) {
  ++count;
  bytes += static_cast<std::int64_t>(size);
}

}  // namespace

// All of glibc's ways to memory; operator new comes here, too.
extern "C" {
void* __libc_malloc(std::size_t);
void* __libc_calloc(std::size_t, std::size_t);
void* __libc_realloc(void*, std::size_t);
void* __libc_memalign(std::size_t, std::size_t);

void* malloc(std::size_t size) {
  add(size);
  return __libc_malloc(size);
}
void* calloc(std::size_t items, std::size_t size) {
  add(items * size);
  return __libc_calloc(items, size);
}
void* realloc(void* old, std::size_t size) {
  add(size);
  return __libc_realloc(old, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  add(size);
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** result, std::size_t alignment, std::size_t size) {
  add(size);
  *result = __libc_memalign(alignment, size);
  return *result == nullptr ? ENOMEM : 0;
}
}

namespace rmsnorm::test {

Allocations allocations() { return {count, bytes}; }

}  // namespace rmsnorm::test
