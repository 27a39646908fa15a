// The commit that this program was built from, "-dirty" behind it where files had changed; "unknown" outside git.
#ifndef RMSNORM_LAB_EXPERIMENTS_COMMIT_H_
#define RMSNORM_LAB_EXPERIMENTS_COMMIT_H_

namespace rmsnorm::lab {
extern const char* const kCommit;
}

#endif  // RMSNORM_LAB_EXPERIMENTS_COMMIT_H_
