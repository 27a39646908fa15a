// Checkpoints: taken up to the same bits, refused when they are not this run's or damaged.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "lab/train/checkpoint.h"
#include "lab/train/exchange.h"
#include "lab/train/generate.h"
#include "test/lab/train_runs.h"
#include "tools/error.h"

namespace rmsnorm::lab {
namespace {

struct Threads : ::testing::Environment {
  void SetUp() override { torch::set_num_threads(2); }
};
const auto* const threads = ::testing::AddGlobalTestEnvironment(new Threads);

constexpr const char* kName = "checkpoint.safetensors";
struct Killed {};

// Trains until `last`, where it is ended as if by a signal; the last checkpoint is then of a step before.
void train_until(std::int64_t last, const TrainOptions& options, const Data& data) {
  const Model model = make_tiny();
  const auto on_step = [last](const Step& step) {
    if (step.step == last) throw Killed();
  };
  EXPECT_THROW(train(*model, data, options, on_step), Killed);
}

TrainOptions kept_run(const Folder& folder) {
  TrainOptions options = tiny_run(14);
  options.checkpoint = folder / "run";
  options.checkpoint_every = 3;
  options.evaluate_every = 5;
  options.log = folder / "log";
  options.identity = "tiny";
  return options;
}

// All but the times.
std::string without_seconds(const std::filesystem::path& log) {
  std::ifstream in(log);
  std::string text;
  for (std::string line; std::getline(in, line);) {
    nlohmann::json json = nlohmann::json::parse(line);
    json.erase("seconds");
    text += json.dump() + "\n";
  }
  return text;
}

TEST(Checkpoint, AResumedRunHasTheBitsOfAPlainOne) {
  const auto data = text_data(moby_dick(), kTime);
  const Folder plain_folder;
  const Model plain = make_tiny();
  const TrainResult expected = train(*plain, *data, kept_run(plain_folder));
  for (const std::int64_t last : {2, 3, 9, 13}) {  // without a checkpoint, while the first is due, later
    const Folder folder;
    const TrainOptions options = kept_run(folder);
    train_until(last, options, *data);
    const Model model = make_tiny();
    std::int64_t first_taken = 0;
    const TrainResult result = train(*model, *data, options, [&](const Step& step) {
      if (first_taken == 0) first_taken = step.step;
    });
    // A step that throws in on_step is not kept; the checkpoint of step 3, 6, .. is.
    EXPECT_EQ(first_taken, (last - 1) / 3 * 3 + 1);
    EXPECT_TRUE(same_bits(*plain, *model)) << last;
    ASSERT_EQ(result.steps.size(), expected.steps.size());
    for (std::size_t i = 0; i < result.steps.size(); ++i) {
      EXPECT_EQ(result.steps[i].loss, expected.steps[i].loss);
      EXPECT_EQ(result.steps[i].gradient_norm, expected.steps[i].gradient_norm);
    }
    ASSERT_EQ(result.evaluations.size(), 3u);
    EXPECT_EQ(result.evaluations.back().loss, expected.evaluations.back().loss);
    EXPECT_EQ(without_seconds(folder / "log"), without_seconds(plain_folder / "log"));
    // A run that is complete takes no step more.
    const Model again = make_tiny();
    const TrainResult kept = train(*again, *data, options, [](const Step&) { FAIL(); });
    EXPECT_TRUE(same_bits(*plain, *again));
    EXPECT_EQ(kept.evaluations.size(), 3u);
  }
}

TEST(Checkpoint, KeepsPyTorchsRandomNumbers) {
  const auto data = text_data(moby_dick(), kTime);
  const Folder folder;
  const TrainOptions options = kept_run(folder);
  train_until(4, options, *data);
  const torch::Tensor expected = torch::randn({5});
  const Model model = make_tiny();
  torch::manual_seed(99);  // behind the model, whose own seed would hide a state that is not restored
  torch::Tensor after;
  train(*model, *data, options, [&](const Step& step) {
    if (step.step == 4) after = torch::randn({5});
  });
  EXPECT_TRUE(torch::equal(after, expected));
}

TEST(Checkpoint, LeavesNothingHalfWritten) {
  const auto data = text_data(moby_dick(), kTime);
  const Folder folder;
  const TrainOptions options = kept_run(folder);
  std::filesystem::create_directories(options.checkpoint);
  write_text(options.checkpoint / ".checkpoint.safetensors.rmsnorm-a1b2c3", "half");
  const Model model = make_tiny();
  train(*model, *data, options);
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(options.checkpoint)) {
    names.push_back(entry.path().filename().string());
  }
  EXPECT_EQ(names, std::vector<std::string>{kName});
}

class Refused : public ::testing::Test {
 protected:
  void SetUp() override {
    train_until(4, options_, *data_);
    file_ = options_.checkpoint / kName;
    whole_ = text_of(file_);
  }

  // The message, in which `part` must stand; the model must stay as it was.
  void expect_refused(const std::string& part, const TrainOptions& options, const LlamaOptions& llama = tiny_llama()) {
    const Model model = make_tiny(llama), before = make_tiny(llama);
    try {
      train(*model, *data_, options, [](const Step&) { FAIL() << "a step was taken"; });
      FAIL() << "not refused: " << part;
    } catch (const tools::ToolError& error) {
      EXPECT_EQ(error.code(), tools::ExitCode::kBadInput);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find(kName), std::string::npos) << error.what();
    }
    EXPECT_TRUE(same_bits(*model, *before)) << part;
  }

  // The file with its metadata changed.
  void write_changed(const std::function<void(nlohmann::json&)>& change) {
    const std::uint64_t length = *reinterpret_cast<const std::uint64_t*>(whole_.data());
    nlohmann::json header = nlohmann::json::parse(whole_.substr(8, length));
    nlohmann::json run = nlohmann::json::parse(header["__metadata__"]["rmsnorm_lab.run"].get<std::string>());
    change(run);
    header["__metadata__"]["rmsnorm_lab.run"] = run.dump();
    const std::string text = header.dump();
    const std::uint64_t size = text.size();
    write_text(file_, std::string(reinterpret_cast<const char*>(&size), 8) + text + whole_.substr(8 + length));
  }

  Folder folder_;
  TrainOptions options_ = kept_run(folder_);
  std::unique_ptr<Data> data_ = text_data(moby_dick(), kTime);
  std::filesystem::path file_;
  std::string whole_;
};

TEST_F(Refused, OtherRuns) {
  TrainOptions other = options_;
  other.batch = 9;
  expect_refused("batch of the checkpoint is 8; it must be 9", other);
  other = options_;
  other.seed = 2;
  expect_refused("seed of the checkpoint is 1; it must be 2", other);
  other = options_;
  other.identity = "another";
  expect_refused("identity of the checkpoint is \"tiny\"", other);
  LlamaOptions llama = tiny_llama();
  llama.width = 40;
  expect_refused("as the model has it", options_, llama);
  llama = tiny_llama();
  llama.layers = 3;
  expect_refused("is missing", options_, llama);
  llama.layers = 1;
  expect_refused("none that the model lacks", options_, llama);
}

TEST_F(Refused, DamagedFiles) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{7}, std::size_t{100}, whole_.size() - 1}) {
    write_text(file_, whole_.substr(0, size));
    expect_refused("", options_);
  }
  write_text(file_, whole_ + "x");
  expect_refused("", options_);
  write_text(file_, "no safetensors file at all");
  expect_refused("", options_);
}

TEST_F(Refused, MetadataThatLie) {
  const auto changed = [&](const std::string& part, const std::function<void(nlohmann::json&)>& change) {
    write_changed(change);
    expect_refused(part, options_);
  };
  changed("version", [](auto& run) { run["version"] = 2; });
  changed("not what a run writes", [](auto& run) { run.erase("steps"); });
  changed("not what a run writes", [](auto& run) { run["steps"][0]["loss"] = "low"; });
  changed("not what a run writes", [](auto& run) { run = nlohmann::json::array(); });
  changed("must be from 0 to 14", [](auto& run) { run["step"] = 15; });
  changed("must be from 0 to 14", [](auto& run) { run["step"] = -1; });
  changed("must hold 2", [](auto& run) { run["step"] = 2; });
  changed("it must be 2", [](auto& run) { run["steps"][1]["step"] = 7; });
  changed("must be from 1 to 3", [](auto& run) { run["updates"]["model.norm.weight"] = 4; });
  changed("none that the model lacks", [](auto& run) { run["updates"].erase("model.norm.weight"); });
  changed("random generator", [](auto& run) { run["generator"] = "0g"; });
  changed("random generator", [](auto& run) { run["generator"] = "00"; });
  // The file as it was is taken up still.
  write_changed([](auto&) {});
  EXPECT_NO_THROW(train(*make_tiny(), *data_, options_));
}

// ---- Hugging Face's form, without transformers (python/tests/with_torch/lab has it)

TEST(Exchange, SavedModelsComeBack) {
  const Folder folder;
  LlamaOptions llama = tiny_llama();
  llama.rope_theta = 500;
  llama.tied = false;
  llama.norm.epsilon = 1e-3;
  const torch::Tensor tokens = torch::arange(2 * kTime).view({2, kTime});
  for (const torch::ScalarType type : {torch::kFloat32, torch::kFloat64}) {
    const Model model = make_tiny(llama, type);
    const auto path = folder / c10::toString(type);
    save_model(path, *model, llama);
    const LoadedModel loaded = load_model(path);
    EXPECT_TRUE(torch::equal(model->forward(tokens), loaded.model->forward(tokens)));
    EXPECT_EQ(context_of(loaded.options), kTime);
    EXPECT_THROW(save_model(path, *model, llama), tools::ToolError);  // is there
  }
  llama.placement = Placement::kPost;
  EXPECT_THROW(save_model(folder / "post", *make_tiny(llama), llama), tools::ToolError);
  EXPECT_FALSE(std::filesystem::exists(folder / "post"));
}

TEST(Exchange, ForeignConfigurationsAreRefused) {
  const Folder folder;
  save_model(folder / "llama", *make_tiny(), tiny_llama());
  const std::filesystem::path file = folder / "llama" / "config.json";
  const nlohmann::json config = nlohmann::json::parse(text_of(file));
  const auto refused = [&](const char* name, const nlohmann::json& value) {
    nlohmann::json changed = config;
    changed[name] = value;
    write_text(file, changed.dump());
    EXPECT_THROW(load_model(folder / "llama"), tools::ToolError) << name << " " << value;
  };
  refused("model_type", "bert");
  refused("model_type", 7);
  refused("hidden_size", 64);
  refused("hidden_size", -1);
  refused("hidden_size", 1e300);
  refused("num_hidden_layers", 3);
  refused("num_hidden_layers", 1);
  refused("num_attention_heads", 3);
  refused("num_key_value_heads", "2");
  refused("vocab_size", 16777216);
  refused("hidden_act", "gelu");
  refused("attention_bias", true);
  refused("tie_word_embeddings", false);  // the output matrix is missing
  refused("rms_norm_eps", 0);
  refused("rope_scaling", {{"type", "linear"}});
  write_text(file, "[]");
  EXPECT_THROW(load_model(folder / "llama"), tools::ToolError);
  write_text(file, config.dump());
  EXPECT_NO_THROW(load_model(folder / "llama"));
}

// ---- Generation

TEST(Generate, GreedyTakesTheLikeliestByte) {
  const Model model = make_tiny();
  GenerateOptions options;
  options.tokens = 40;
  options.context = kTime;
  const std::string prompt = "Call me ";
  std::string text = prompt;
  while (text.size() < prompt.size() + 40) {
    std::vector<std::int64_t> seen;
    const std::size_t first = text.size() < kTime ? 0 : text.size() - kTime;
    for (std::size_t i = first; i < text.size(); ++i) seen.push_back(static_cast<unsigned char>(text[i]));
    text += static_cast<char>(model->forward(torch::tensor(seen).unsqueeze(0))[0][-1].argmax().item<std::int64_t>());
  }
  EXPECT_EQ(prompt + generate(*model, prompt, options), text);
}

TEST(Generate, DrawsByProbability) {
  // Logits that are always the same: log 1, 2, 4 for three bytes.
  class Fixed : public ModelImpl {
   public:
    torch::Tensor forward(const torch::Tensor& tokens) override {
      torch::Tensor logits = torch::full({tokens.size(0), tokens.size(1), 256}, -1e9);
      for (int i = 0; i < 3; ++i) logits.select(-1, 'a' + i).fill_(i * std::log(2.0));
      return logits;
    }
    torch::Tensor forward_cached(const torch::Tensor& tokens, KeyValueCache& cache) override {
      cache.length += tokens.size(1);
      return forward(tokens);
    }
  };
  Fixed model;
  GenerateOptions options;
  options.tokens = 3000;
  options.temperature = 1;
  const auto share = [](const std::string& text, char byte) {
    return static_cast<double>(std::count(text.begin(), text.end(), byte)) / static_cast<double>(text.size());
  };
  const std::string text = generate(model, "x", options);
  // Standard deviations below 0.01.
  EXPECT_NEAR(share(text, 'a'), 1.0 / 7, 0.04);
  EXPECT_NEAR(share(text, 'c'), 4.0 / 7, 0.04);
  EXPECT_EQ(generate(model, "x", options), text);
  options.seed = 2;
  EXPECT_NE(generate(model, "x", options), text);
  options.temperature = 0.5;  // 1 : 4 : 16
  EXPECT_NEAR(share(generate(model, "x", options), 'c'), 16.0 / 21, 0.04);
  options.temperature = 1;
  options.top = 2;
  const std::string of_two = generate(model, "x", options);
  EXPECT_EQ(share(of_two, 'a'), 0);
  EXPECT_NEAR(share(of_two, 'c'), 2.0 / 3, 0.04);
  EXPECT_THROW(generate(model, "", options), tools::ToolError);
}

}  // namespace
}  // namespace rmsnorm::lab
