// How long the norms of a model take inside its real steps, by PyTorch's own record functions.
#ifndef RMSNORM_LAB_EXPERIMENTS_NORM_PROFILE_H_
#define RMSNORM_LAB_EXPERIMENTS_NORM_PROFILE_H_

#include <memory>

namespace rmsnorm::lab {

// Watches the calling thread while it lives. Forward: the time inside NormImpl::forward, which opens the scope
// kNormScope. Backward: the time of the autograd nodes that were made inside it, found by their sequence numbers; the
// sum of a weight's gradient into .grad is not among them. One at a time on a thread.
class NormProfile {
 public:
  NormProfile();
  ~NormProfile();
  NormProfile(const NormProfile&) = delete;
  NormProfile& operator=(const NormProfile&) = delete;

  double forward_seconds() const;
  double backward_seconds() const;
  double seconds() const { return forward_seconds() + backward_seconds(); }
  long calls() const;  // of a norm's forward
  void reset();        // before each step

  struct State;

 private:
  std::unique_ptr<State> state_;
  unsigned long handle_;
};

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_NORM_PROFILE_H_
