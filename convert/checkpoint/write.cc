#include "convert/checkpoint/write.h"

#include <algorithm>
#include <mutex>

#include "convert/checkpoint/apply.h"
#include "convert/checkpoint/parallel.h"
#include "tools/formats/output_directory.h"
#include "tools/formats/safetensors.h"
#include "tools/progress.h"

namespace rmsnorm::convert::checkpoint {

namespace {

using tools::OutputDirectory;

struct Job {
  const Action* action = nullptr;
  OutputDirectory::File* file = nullptr;
  std::uint64_t offset = 0;
};

tools::SafetensorsMetadata metadata_of(const Shard& shard, const Json& provenance) {
  tools::SafetensorsMetadata metadata{{"format", "pt"}};  // loaders want it where there are metadata at all
  if (shard.header.metadata) tools::merge_metadata(metadata, *shard.header.metadata);
  tools::merge_metadata(metadata, {{kProvenanceKey, "rmsnorm " + provenance["version"].get<std::string>()},
                                   {std::string(kProvenanceKey) + ".operations", provenance["operations"].dump()}});
  return metadata;
}

// One file of the output; `prefix` is the folder in it.
void add_shard(OutputDirectory& out, const Shard& shard, const std::vector<const Action*>& actions, const Plan& plan,
               const Json& provenance, const std::string& prefix, std::vector<Job>& jobs) {
  std::vector<std::pair<tools::SafetensorsEntry, const Action*>> placed;
  std::uint64_t size = 0;
  for (const Action* action : actions) {
    const std::string name = prefix.empty() ? plan.output_name(*action) : action->name;
    placed.push_back({{name, action->dtype, action->shape, 0, action->bytes()}, action});
    size += action->bytes();
  }
  std::sort(placed.begin(), placed.end(),
            [](const auto& a, const auto& b) { return tools::safetensors_before(a.first, b.first); });
  std::vector<tools::SafetensorsEntry> entries;
  for (const auto& [entry, action] : placed) entries.push_back(entry);
  const std::string head = tools::safetensors_head(entries, metadata_of(shard, provenance));
  OutputDirectory::File& file = out.add(prefix + (plan.one_file ? kSingleFile : shard.file), head.size() + size);
  file.write(0, std::as_bytes(std::span(head)));
  std::uint64_t offset = head.size();
  for (const auto& [entry, action] : placed) {
    jobs.push_back({action, &file, offset});
    offset += action->bytes();
  }
}

// The first error ends all of them.
void run_jobs(std::vector<Job>& jobs, const WriteOptions& options) {
  // Long ones first, so that none is left alone at the end.
  std::stable_sort(jobs.begin(), jobs.end(),
                   [](const Job& a, const Job& b) { return a.action->bytes() > b.action->bytes(); });
  std::uint64_t total = 0;
  for (const Job& job : jobs) total += job.action->bytes();
  const std::size_t threads = thread_count(options.threads, jobs.size());
  const ApplyOptions apply_options{options.chunk / threads, options.carry_rounding};

  tools::Progress progress("converting", total);
  std::mutex mutex;  // of the progress
  run_parallel(jobs.size(), threads, [&](std::size_t i) {
    const Job& job = jobs[i];
    apply(*job.action, apply_options, [&](std::uint64_t offset, std::span<const std::byte> bytes) {
      job.file->write(job.offset + offset, bytes);
      const std::lock_guard lock(mutex);
      progress.advance(bytes.size());
    });
  });
}

std::string index_text(const Checkpoint& checkpoint, const Plan& plan) {
  Json index = checkpoint.index();
  std::uint64_t total = 0;
  Json map = Json::object();
  auto& entries = map.get_ref<Json::object_t&>();
  for (const Action& action : plan.actions) {
    total += action.bytes();
    entries.push_back({plan.output_name(action), checkpoint.shards()[action.shard].file});
  }
  index["weight_map"] = std::move(map);
  if (!index["metadata"].is_object()) index["metadata"] = Json::object();
  index["metadata"]["total_size"] = total;
  if (index["metadata"].contains("total_parameters") && index["metadata"]["total_parameters"].is_number_integer()) {
    index["metadata"]["total_parameters"] =
        index["metadata"]["total_parameters"].get<std::int64_t>() + plan.parameters_added;
  }
  return index.dump(2) + "\n";
}

void copy_file(OutputDirectory& out, const std::string& folder, const std::string& name) {
  const tools::FileSource source(folder + "/" + name);
  OutputDirectory::File& file = out.add(name, source.size());
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  tools::Buffer buffer(static_cast<std::size_t>(std::min(source.size(), kBlock)));
  for (std::uint64_t at = 0; at < source.size(); at += kBlock) {
    const auto piece = buffer.bytes().first(static_cast<std::size_t>(std::min(source.size() - at, kBlock)));
    source.read(at, piece);
    file.write(at, piece);
  }
}

void add_adapter(OutputDirectory& out, const Checkpoint& adapter, const AdapterPlan& planned, const Plan& plan,
                 const Json& provenance, std::vector<Job>& jobs) {
  const std::string folder = std::string(kAdapterFolder) + "/";
  out.add_folder(kAdapterFolder);
  out.add(folder + kAdapterConfig, planned.config.dump(2) + "\n");
  std::vector<const Action*> actions;
  for (const Action& action : planned.actions) actions.push_back(&action);
  add_shard(out, adapter.shards().front(), actions, plan, provenance, folder, jobs);
}

}  // namespace

void write_checkpoint(const Checkpoint& checkpoint, const Plan& plan, const Json& provenance,
                      const WriteOptions& options) {
  OutputDirectory out(options.path);
  std::vector<Job> jobs;
  for (std::size_t shard = 0; shard < (plan.one_file ? 1 : checkpoint.shards().size()); ++shard) {
    std::vector<const Action*> actions;
    for (const Action& action : plan.actions) {
      if (plan.one_file || action.shard == shard) actions.push_back(&action);
    }
    add_shard(out, checkpoint.shards()[shard], actions, plan, provenance, "", jobs);
  }
  if (options.adapter != nullptr) add_adapter(out, *options.adapter, *options.adapter_plan, plan, provenance, jobs);
  std::vector<std::string> left_out;
  for (const std::string& name : extra_files(checkpoint, left_out)) {
    if (!(options.program && name == kProgramFile)) copy_file(out, checkpoint.folder(), name);
  }
  if (!checkpoint.index().is_null() && !plan.one_file) out.add(kIndexFile, index_text(checkpoint, plan));
  if (plan.config_changed) {
    out.add(kConfigFile, plan.config.dump(2) + "\n");
  } else {
    copy_file(out, checkpoint.folder(), kConfigFile);
  }
  if (options.program) out.add(kProgramFile, std::string(modeling_program()));
  out.add(kProvenanceFile, provenance.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  run_jobs(jobs, options);
  out.finish();
  out.publish();
}

}  // namespace rmsnorm::convert::checkpoint
