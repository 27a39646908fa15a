// What verify does where the output is of another class. Its tensors are cut apart here by the sizes of the original's,
// and are then looked at under the original's names, as those of any other output.
#include <algorithm>
#include <set>

#include "convert/checkpoint/blocks.h"
#include "convert/checkpoint/verifier.h"

namespace rmsnorm::convert::checkpoint {

namespace {

bool is_identity(const StoredTensor& tensor) {
  if (!tensor.row_type() || tensor.shape.size() != 2 || tensor.shape[0] != tensor.shape[1]) return false;
  bool right = true;
  constexpr std::size_t kMemory = std::size_t{1} << 20;
  Blocks blocks(tensor, tensor.shape[1], kMemory);
  blocks.for_rows(0, tensor.shape[0], [&](std::int64_t r, std::span<const double> row) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      right = right && row[c] == (static_cast<std::int64_t>(c) == r ? 1.0 : 0.0);
    }
  });
  return right;
}

// Cuts the output's tensors.
class Cutter {
 public:
  Cutter(const Model& original, const std::vector<StoredTensor>& output) : original_(original) {
    for (const StoredTensor& tensor : output) by_name_[tensor.name] = &tensor;
  }

  void cut(const TargetName& target) {
    const auto found = by_name_.find(target.name);
    if (found == by_name_.end()) {
      if (!target.optional || any_in_original(target)) fault("{}: it is missing", target.name);
      return;
    }
    whole_ = found->second;
    consumed_.insert(target.name);
    at_ = 0;
    shape_.clear();
    if (!whole_->row_type() && target.of.size() > 1) return fault("{}: its type is {}", target.name, whole_->dtype);
    for (std::size_t p = 0; p < target.of.size(); ++p) {
      const TargetPiece& piece = target.rule->of[p];
      if (!piece.identity.empty()) {
        if (!is_identity(*whole_)) fault("{}: it must be the identity matrix", target.name);
        at_ = whole_->bytes;
      } else if (!piece.zeros.empty()) {
        cut_zeros(original_.config.integer(piece.zeros, "number of zeros"));
      } else {
        cut_piece(piece, target.of[p]);
      }
    }
    if (!shape_.empty() && shape_ != whole_->shape) {
      fault("{}: its shape is {}; it must be {}", target.name, tools::shape_text(whole_->shape),
            tools::shape_text(shape_));
    }
    if (at_ != whole_->bytes) {
      fault("{}: it has {} bytes; what it is made of has {}", target.name, whole_->bytes, at_);
    }
  }

  TargetView finish() {
    for (const auto& [name, tensor] : by_name_) {
      if (!consumed_.contains(name)) fault("{}: nothing asks for it", name);
    }
    for (auto& [name, tensor] : cut_) {
      std::uint64_t bytes = 0;
      for (const auto& piece : tensor.pieces) bytes += piece.second;
      if (bytes != tensor.bytes) {
        fault("{}: {} of its {} bytes are in the output", name, bytes, tensor.bytes);
        continue;
      }
      view_.tensors.push_back(std::move(tensor));
    }
    return std::move(view_);
  }

 private:
  template <class... Args>
  void fault(fmt::format_string<Args...> text, Args&&... args) {
    view_.faults.push_back(fmt::format(text, std::forward<Args>(args)...));
  }

  bool any_in_original(const TargetName& target) const {
    return std::any_of(target.of.begin(), target.of.end(),
                       [&](const std::string& name) { return !name.empty() && original_.find(name) != nullptr; });
  }

  // The original's tensor; for a bias that it lacks, what that would be.
  std::optional<StoredTensor> in_original(const std::string& name) const {
    if (const StoredTensor* found = original_.find(name)) return *found;
    constexpr std::string_view kBias = ".bias";
    constexpr std::string_view kWeight = ".weight";
    if (!name.ends_with(kBias)) return {};
    const StoredTensor* weight = original_.find(name.substr(0, name.size() - kBias.size()) + std::string(kWeight));
    if (weight == nullptr || weight->shape.empty() || !weight->name.ends_with(kWeight)) return {};
    StoredTensor bias = *weight;
    bias.name = weight->name.substr(0, weight->name.size() - kWeight.size()) + std::string(kBias);
    bias.shape = {weight->shape[0]};
    return bias;
  }

  std::uint64_t element() const {
    return whole_->elements() == 0 ? 0 : whole_->bytes / static_cast<std::uint64_t>(whole_->elements());
  }

  // The next bytes; nothing: there are fewer.
  std::optional<std::pair<std::uint64_t, std::uint64_t>> take(std::int64_t elements) {
    const std::uint64_t bytes = static_cast<std::uint64_t>(elements) * element();
    if (bytes > whole_->bytes - at_) {
      fault("{}: its shape is {}; it ends before all that it is made of", whole_->name,
            tools::shape_text(whole_->shape));
      at_ = whole_->bytes;
      return {};
    }
    const std::pair<std::uint64_t, std::uint64_t> taken{whole_->offset + at_, bytes};
    at_ += bytes;
    return taken;
  }

  // The whole is as long as its pieces together.
  void add_shape(tools::Shape piece, std::int64_t rows) {
    if (piece.empty()) return;
    const std::size_t axis = join_axis(piece);
    piece[axis] = rows;
    if (shape_.size() == piece.size()) piece[axis] += shape_[axis];
    shape_ = std::move(piece);
  }

  void cut_zeros(std::int64_t rows) {
    if (!shape_.empty()) add_shape(shape_, rows);
    StoredTensor zeros = *whole_;
    zeros.shape = {rows, whole_->shape.empty() ? 1 : whole_->shape.back()};
    const auto taken = take(rows * zeros.shape[1]);
    if (!taken) return;
    std::tie(zeros.offset, zeros.bytes) = *taken;
    const std::vector<double> values = read_values(zeros);
    if (std::any_of(values.begin(), values.end(), [](double value) { return value != 0; })) {
      fault("{}: {} of its rows must be 0", whole_->name, rows);
    }
  }

  void cut_piece(const TargetPiece& piece, const std::string& name) {
    const auto before = in_original(name);
    if (!before) return fault("{}: the original has no {}", whole_->name, name);
    const std::size_t axis = join_axis(before->shape);
    const std::int64_t rows = before->shape.empty() ? 1 : before->shape[axis];
    const std::int64_t to = std::min(piece.to.value_or(rows), rows);
    if (rows == 0 || piece.from > to) return fault("{}: {} has {} rows", whole_->name, name, rows);
    add_shape(before->shape, to - piece.from);
    const auto taken = take(before->elements() / rows * (to - piece.from));
    if (!taken) return;
    const auto [at, fresh] = cut_.try_emplace(before->name, *whole_);
    StoredTensor& tensor = at->second;
    if (fresh) {
      tensor.name = before->name;
      tensor.shape = before->shape;
      tensor.bytes = static_cast<std::uint64_t>(before->elements()) * element();
    }
    const std::int64_t seen = fresh ? 0 : rows_of_[before->name];
    if (seen != piece.from || tensor.dtype != whole_->dtype || tensor.shard != whole_->shard) {
      return fault("{}: rows {} to {} of {} do not follow what came before", whole_->name, piece.from, to, name);
    }
    rows_of_[before->name] = to;
    tensor.pieces.push_back(*taken);
  }

  const Model& original_;
  std::map<std::string, const StoredTensor*> by_name_;
  std::set<std::string> consumed_;
  std::map<std::string, StoredTensor> cut_;      // by the original's name
  std::map<std::string, std::int64_t> rows_of_;  // how many are there
  TargetView view_;
  const StoredTensor* whole_ = nullptr;
  tools::Shape shape_;  // of what was cut off
  std::uint64_t at_ = 0;
};

}  // namespace

TargetView view_of_target(const TargetRule& rule, const Model& original, const std::vector<StoredTensor>& output) {
  Cutter cutter(original, output);
  for (const TargetName& target : target_tensors(rule, original)) cutter.cut(target);
  return cutter.finish();
}

std::vector<StoredTensor> Verifier::view(const std::vector<StoredTensor>& output) {
  if (target_ == nullptr || target_->tensors.empty()) return output;
  TargetView seen = view_of_target(*target_, original_, output);
  view_faults_ = std::move(seen.faults);
  return std::move(seen.tensors);
}

// Without those that the target leaves out.
std::vector<const Part*> Verifier::kept(const std::vector<Part>& parts) const {
  std::vector<const Part*> result;
  for (const Part& part : parts) {
    if (target_ == nullptr || !is_left_out(*target_, original_, part.weight->name)) result.push_back(&part);
  }
  return result;
}

// A norm's bias may be gone: check_site wants its readers to make up for it.
bool Verifier::may_be_missing(const StoredTensor& tensor) const {
  if (target_ == nullptr || target_->tensors.empty()) return false;
  const auto has_bias = [&](const NormSite& site) { return site.bias != nullptr && site.bias->name == tensor.name; };
  return is_left_out(*target_, original_, tensor.name) ||
         std::any_of(original_.sites.begin(), original_.sites.end(), has_bias);
}

// Norm weights that a class of the target wants: ones, and nothing else.
bool Verifier::is_one_of_ones(const StoredTensor& tensor) const {
  if (target_ == nullptr || !tensor.row_type()) return false;
  for (const std::string& pattern : target_->ones) {
    if (!matches(pattern, tensor.name)) continue;
    const std::vector<double> values = read_values(tensor);
    return std::all_of(values.begin(), values.end(), [](double value) { return value == 1; });
  }
  return false;
}

}  // namespace rmsnorm::convert::checkpoint
