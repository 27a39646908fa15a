// Proves that a converted checkpoint computes what the original computes, from the definitions: the proof uses nothing
// of what planned or wrote it but the recipe laid over each of the two. Beside the proof, what lies in the folder is
// compared with the plan of the operations that rmsnorm.json declares; that can only find more.
#ifndef RMSNORM_CONVERT_CHECKPOINT_VERIFY_H_
#define RMSNORM_CONVERT_CHECKPOINT_VERIFY_H_

#include "convert/checkpoint/model.h"
#include "convert/convert.h"

namespace rmsnorm::convert::checkpoint {

// Throws ToolError with kOutsideBudget after the report is filled, when the two differ.
void verify_checkpoint(const Model& original, const Request& request, Report& report);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_VERIFY_H_
