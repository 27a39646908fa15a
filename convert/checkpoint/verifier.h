// The steps of verify. Only verify*.cc include this.
#ifndef RMSNORM_CONVERT_CHECKPOINT_VERIFIER_H_
#define RMSNORM_CONVERT_CHECKPOINT_VERIFIER_H_

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "convert/checkpoint/elements.h"
#include "convert/checkpoint/model.h"
#include "convert/checkpoint/plan.h"
#include "convert/checkpoint/target.h"
#include "convert/convert.h"

namespace rmsnorm::convert::checkpoint {

class Verifier {
 public:
  Verifier(const Model& original, const Request& request);
  void run(Report& report);

 private:
  void fail(const std::string& text);
  const StoredTensor* counterpart(const std::string& name) const;
  bool same(const StoredTensor* before, const StoredTensor* after) const;
  bool comparable(const Part& before, const Part& after);
  Comparison comparison(const Part& before, const Part& after) const;
  bool entry_by_op(const Stream& stream) const;
  bool folded_into(const std::string& weight) const;
  bool is_one_of_ones(const StoredTensor& tensor) const;

  // verify_target.cc
  std::vector<StoredTensor> view(const std::vector<StoredTensor>& output);
  std::vector<const Part*> kept(const std::vector<Part>& parts) const;
  bool may_be_missing(const StoredTensor& tensor) const;

  // verify_document.cc
  bool read_operations(Request& declared);
  void check_document();
  void check_program();
  void check_stored(std::vector<std::function<void()>>& jobs);

  void check_provenance();
  void check_names();
  void check_ties();
  void collect();
  void collect_tabulated();
  bool is_moved(const Part& reader) const;
  Folding moved_into(const Part& writer) const;
  void add_writers(const std::vector<Part>& before, const std::vector<Part>& after);
  void check_writer(const Part& before, const Part& after);
  void check_site(const NormSite& before, const NormSite& after);
  void check_reader(const NormSite& before, const NormSite& after, const Part& reader, const Part& new_reader);
  Folding folding(const NormSite& before, const NormSite& after, const Part& reader) const;
  void norm_outputs(const NormSite& before, const NormSite& after, const Part& reader, bool bias, Vectors& x,
                    Vectors& converted_x) const;
  void settle(const char* what, const std::string& name, const Worst& exact, const Worst& centred);
  void finish(Report& report);

  const Model& original_;
  const Request& request_;
  const Json provenance_;
  const bool fold_;           // nothing is centred
  const TargetRule* target_;  // the output is of another class; null: of the original's
  const Json config_;
  const Json seen_config_;
  std::vector<std::string> view_faults_;  // of the target's tensors
  const Checkpoint checkpoint_;
  std::unique_ptr<const Model> converted_;
  std::optional<Plan> plan_;  // what the declared operations come to
  std::size_t memory_ = kDefaultChunkBytes;
  bool carried_ = false;  // rounding errors

  std::map<std::string, std::pair<Part, Part>> writers_;  // by the weight's name in the original
  std::map<std::string, std::vector<Range>> local_;       // what is centred of each
  std::map<std::string, const NormSite*> tabulated_;      // by the table's name in the original
  std::set<std::string> tabulated_tensors_;               // of those norms
  std::unordered_set<std::string> looked_at_;
  std::mutex mutex_;  // of what follows
  std::vector<std::string> failures_;
  int checked_ = 0;
  Worst worst_;
  Worst worst_mean_;
};

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_VERIFIER_H_
