// The plan for people and for programs.
#ifndef RMSNORM_CONVERT_CHECKPOINT_REPORT_H_
#define RMSNORM_CONVERT_CHECKPOINT_REPORT_H_

#include "convert/checkpoint/plan.h"

namespace rmsnorm::convert::checkpoint {

// rmsnorm.json: what was done, and what a program needs to know. docs/recipes.md describes it.
Json provenance_of(const Model& model, const Plan& plan, const Request& request, Purpose purpose);

// Tables of streams, sites and writers, with what happens to each.
void describe(const Model& model, const Plan& plan, Purpose purpose, Report& report);

}  // namespace rmsnorm::convert::checkpoint

#endif  // RMSNORM_CONVERT_CHECKPOINT_REPORT_H_
