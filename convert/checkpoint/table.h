// A look at a table before anything is planned.
#ifndef RMSNORM_CONVERT_CHECKPOINT_TABLE_H_
#define RMSNORM_CONVERT_CHECKPOINT_TABLE_H_

#include "convert/checkpoint/checkpoint.h"

namespace rmsnorm::convert::checkpoint {

// True if the mean of every row is 0 but for what f64 loses.
bool rows_are_centred(const StoredTensor& table, std::size_t chunk);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_TABLE_H_
