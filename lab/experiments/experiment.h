// An experiment: a claim, a design and a rule for the verdict, stated before the code, and the code.
#ifndef RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_
#define RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "lab/report/document.h"

namespace rmsnorm::lab {

// Smoke: it runs, and its numbers are sane (all fourteen within 3 minutes on 2 cores). Quick: the smallest size at which
// the question has a meaning, 5 paired seeds (all within 15 minutes). Full: 8 seeds.
enum class Scale { kSmoke, kQuick, kFull };

std::string name_of(Scale scale);
// Throws std::invalid_argument, which lists the names, for another.
Scale scale_named(const std::string& name);

// Where a piece comes from.
struct Provenance {
  std::string key, machine, commit, command;
  double seconds = 0;  // it took
};

// Thrown by piece() when it must not work: a report is made from what is there.
class MissingPiece : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Thrown when the one piece that a process was started for is there.
struct PieceMade {};

class Context {
 public:
  // `folder`: of one experiment, at one scale. Its name is the experiment's.
  Context(Scale scale, std::filesystem::path folder, bool progress);

  Scale scale() const { return scale_; }
  // One of three values.
  template <class T>
  T choose(T smoke, T quick, T full) const {
    return scale_ == Scale::kSmoke ? smoke : scale_ == Scale::kQuick ? quick : full;
  }
  int seeds() const { return choose(2, 5, 8); }
  // Process starts of what is timed: the interval of a median reaches 95 % from six on.
  int starts() const { return choose(2, 6, 9); }

  // Runs `work` once and keeps what it returns in the folder, under `key` (a-z, 0-9, _ and -). A run that is taken up
  // again finds it there. Everything that takes more than a second is a piece, and every number in the report comes
  // from one. Numbers that are not finite are kept, too. A file that is damaged, or of another experiment, key or
  // scale, throws tools::ToolError.
  nlohmann::json piece(const std::string& key, const std::function<nlohmann::json()>& work);

  // The same for work that measures time, once for each of starts(): the pieces "<key>-1", "<key>-2" .. Each is made in
  // a process of its own, because where memory lies differs from start to start and with it the speed; no other process
  // makes a piece in the folder above meanwhile.
  std::vector<nlohmann::json> timed_pieces(const std::string& key, const std::function<nlohmann::json()>& work);

  // Starts the process of a timed piece, which calls only(key), and waits for it. Without one, this process makes it.
  void start_with(std::function<void(const std::string& key)> start) { start_ = std::move(start); }
  // Nothing is made but this piece, and PieceMade is thrown when it is there. Others that lack are MissingPieces.
  void only(const std::string& key) { only_ = key; }

  // A folder for checkpoints of the piece that runs; it goes when the piece is there.
  std::filesystem::path scratch() const;

  // From now on a piece that is not there is a MissingPiece.
  void read_only() { read_only_ = true; }
  // Of the pieces asked for so far.
  const std::vector<Provenance>& provenance() const { return provenance_; }

 private:
  nlohmann::json read(const std::string& key, const std::filesystem::path& file);
  nlohmann::json find_or_make(const std::string& key, bool alone, const std::function<nlohmann::json()>& work);
  void make(const std::string& key, const std::filesystem::path& file, bool alone,
            const std::function<nlohmann::json()>& work);

  Scale scale_;
  std::filesystem::path folder_;
  bool progress_;
  bool read_only_ = false;
  std::string only_;  // none: every piece
  std::function<void(const std::string&)> start_;
  std::string running_;  // the key of the piece that runs
  std::vector<Provenance> provenance_;
};

// The scale of the pieces in the folder of an experiment; none: there are no pieces.
std::optional<Scale> scale_of_pieces(const std::filesystem::path& folder);

// The command line that the pieces made from now on are said to come from.
void set_command(const std::string& command);

struct Experiment {
  int number;          // of the specification's table
  std::string name;    // a stem: "cost", "step_share"
  std::string title;   // of its page
  std::string claim;   // with its source
  std::string design;  // what is run
  std::string rule;    // what makes the verdict
  Page (*run)(Context& context);
};

// In the order of their numbers. Each file experiments/<name>.cc defines `const Experiment k<Name>`, which has one line
// in list.inc.
const std::vector<const Experiment*>& experiments();

#define RMSNORM_LAB_EXPERIMENT(name) extern const Experiment name;
#include "lab/experiments/list.inc"
#undef RMSNORM_LAB_EXPERIMENT

}  // namespace rmsnorm::lab

#endif  // RMSNORM_LAB_EXPERIMENTS_EXPERIMENT_H_
