// Writes the converted checkpoint: a folder that appears whole or not at all.
#ifndef RMSNORM_CONVERT_CHECKPOINT_WRITE_H_
#define RMSNORM_CONVERT_CHECKPOINT_WRITE_H_

#include <string>

#include "convert/checkpoint/adapter.h"

namespace rmsnorm::convert::checkpoint {

struct WriteOptions {
  std::string path;
  std::size_t chunk = kDefaultChunkBytes;
  int threads = 0;
  bool carry_rounding = false;
  bool program = false;  // modeling_rmsnorm.py goes along
  const Checkpoint* adapter = nullptr;
  const AdapterPlan* adapter_plan = nullptr;
};

// `provenance` becomes rmsnorm.json; its "operations" go into the metadata of the tensors, too.
void write_checkpoint(const Checkpoint& checkpoint, const Plan& plan, const Json& provenance,
                      const WriteOptions& options);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_WRITE_H_
