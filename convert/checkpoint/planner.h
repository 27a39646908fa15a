// The parts of make_plan: entry and ties, folding, targets. Only plan*.cc include this.
#ifndef RMSNORM_CONVERT_CHECKPOINT_PLANNER_H_
#define RMSNORM_CONVERT_CHECKPOINT_PLANNER_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "convert/checkpoint/plan.h"
#include "convert/checkpoint/target.h"

namespace rmsnorm::convert::checkpoint {

class Planner {
 public:
  Planner(const Model& model, const Request& request, Purpose purpose);
  Plan make();

 private:
  struct Obstacle {  // why a site is not folded
    RefusalCode code;
    std::string site;
    std::string text;
  };

  // plan.cc
  Action& action(const std::string& name);
  Action& add_action(const std::string& name, const StoredTensor* source, const StoredTensor& like, tools::Shape shape);
  void begin_with_copies();
  void set_config(const std::string& path, const Json& value);
  void check_float(const StoredTensor& tensor, const char* what) const;
  void settle_type(Action& action);
  void count_sizes();
  void mark_finite();
  void warn_by_rules();

  // plan_centre.cc
  void plan_entry(StreamPlan& stream);
  bool entry_by_op(const StreamParts& stream);
  bool is_tabulated(const StreamParts& stream) const;
  void tabulate(StreamPlan& stream);
  void remove_actions(const std::set<std::string>& names);
  int tie_of_entry(const StreamParts& stream) const;
  bool tie_may_stay(int tie) const;
  void untie(int tie);
  void name_with_prefix(int tie);
  void centre(const StoredTensor& tensor, const Matrix& matrix, const std::vector<Range>& outputs);
  void centre_table(int tie, const Part& part);
  void centre_writer(const Part& part);
  void apply_scale(const Part& part);

  // plan_fold.cc
  void plan_site(SitePlan& site);
  std::optional<Obstacle> obstacle(const NormSite& site, bool full) const;
  std::optional<Obstacle> bias_obstacle(const Part& reader) const;
  int bias_key_of(const Part& reader) const;
  const Part* projection_of(const Part& reader) const;
  bool returns_norm(const Part& reader) const;
  void fold_bias(const NormSite& site);
  void fold_weight(const NormSite& site);
  Action& reader_bias(const Part& reader);
  void give_biases(int key);
  std::string weight_target(const Part& reader) const;

  // plan_target.cc
  void plan_target();
  void plan_class(const TargetRule& rule);
  void add_ones(const TargetRule& rule);
  void rearrange(const TargetRule& rule);
  bool join(const TargetName& target, Action& whole, std::set<std::size_t>& used);
  const StoredTensor& first_writer() const;
  Action constant_part(const TargetPiece& piece, const Action* like) const;
  void refuse_leftovers(const TargetRule& rule, const std::set<std::size_t>& used);
  std::optional<std::size_t> find_action(const std::string& name) const;

  const Model& model_;
  const Request& request_;
  const Purpose purpose_;
  Affine affine_;
  const TargetRule* target_ = nullptr;  // another class; null: the original's
  Plan plan_;
  std::unordered_map<std::string, std::size_t> by_name_;
  std::vector<bool> untied_;                                     // by tie
  std::set<std::string> tabulated_;                              // tensors of norms that become tables
  std::set<std::string> centred_by_;                             // tensor and first output: what is centred already
  std::map<std::string, std::vector<const NormSite*>> read_by_;  // weight -> norms before it
};

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_PLANNER_H_
