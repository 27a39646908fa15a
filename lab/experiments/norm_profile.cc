#include "lab/experiments/norm_profile.h"

#include <ATen/SequenceNumber.h>
#include <ATen/record_function.h>

#include <chrono>
#include <cstring>
#include <map>
#include <stdexcept>

#include "lab/models/norm.h"

namespace rmsnorm::lab {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

thread_local NormProfile::State* current = nullptr;

}  // namespace

struct NormProfile::State {
  double forward = 0, backward = 0;
  long calls = 0;
  int depth = 0;
  Clock::time_point start;                       // of the outermost norm scope
  std::uint64_t first_node = 0;                  // the number that the next autograd node had then
  std::map<std::uint64_t, std::uint64_t> nodes;  // first -> one past the last, of each call

  bool made_in_norm(std::int64_t node) const {
    if (node < 0) return false;
    const auto number = static_cast<std::uint64_t>(node);
    const auto after = nodes.upper_bound(number);
    return after != nodes.begin() && number < std::prev(after)->second;
  }
};

namespace {

struct BackwardStart : at::ObserverContext {
  Clock::time_point start = Clock::now();
};

bool is_norm_scope(const at::RecordFunction& function) {
  return function.scope() == at::RecordScope::USER_SCOPE && std::strcmp(function.name(), kNormScope) == 0;
}

std::unique_ptr<at::ObserverContext> enter(const at::RecordFunction& function) {
  if (is_norm_scope(function)) {
    if (current->depth++ == 0) {
      current->first_node = at::sequence_number::peek();
      current->start = Clock::now();
    }
  } else if (function.scope() == at::RecordScope::BACKWARD_FUNCTION && current->made_in_norm(function.seqNr())) {
    return std::make_unique<BackwardStart>();
  }
  return nullptr;
}

void leave(const at::RecordFunction& function, at::ObserverContext* context) {
  if (context != nullptr) {
    current->backward += seconds_since(static_cast<BackwardStart*>(context)->start);
  } else if (is_norm_scope(function) && --current->depth == 0) {
    current->forward += seconds_since(current->start);
    ++current->calls;
    current->nodes[current->first_node] = at::sequence_number::peek();
  }
}

}  // namespace

NormProfile::NormProfile() : state_(std::make_unique<State>()) {
  if (current != nullptr) throw std::logic_error("a NormProfile lives on this thread; there is one at a time");
  current = state_.get();
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&enter, &leave)
                                           .scopes({at::RecordScope::USER_SCOPE, at::RecordScope::BACKWARD_FUNCTION}));
}

NormProfile::~NormProfile() {
  at::removeCallback(handle_);
  current = nullptr;
}

double NormProfile::forward_seconds() const { return state_->forward; }
double NormProfile::backward_seconds() const { return state_->backward; }
long NormProfile::calls() const { return state_->calls; }
void NormProfile::reset() { *state_ = State(); }

}  // namespace rmsnorm::lab
