// rmsnorm: normalisation kernels for the CPU. The C++ interface, all of it: a header over rmsnorm.h.
//
// Formulas, shapes, types, aliasing and rounding are those of rmsnorm.h; read that first. Here every operation has two
// forms: `op(...)` throws rmsnorm::Error, `try_op(...)` returns a Status and never throws. Arguments stand in the order
// outputs, inputs, parameters, options, execution; a default-constructed View is an absent operand.
//
//   std::vector<float> x = ..., w = ..., out(x.size());
//   rmsnorm::rms_norm(rmsnorm::matrix(out.data(), rows, cols), {}, rmsnorm::matrix(x.data(), rows, cols),
//                     rmsnorm::vector(w.data(), cols), {}, {.epsilon = 1e-5});
#ifndef RMSNORM_RMSNORM_HPP_
#define RMSNORM_RMSNORM_HPP_

#include "rmsnorm/backward.hpp"
#include "rmsnorm/channels.hpp"
#include "rmsnorm/core.hpp"
#include "rmsnorm/gated_rms_norm.hpp"
#include "rmsnorm/norms.hpp"
#include "rmsnorm/quantize.hpp"
#include "rmsnorm/rmsnorm.h"
#include "rmsnorm/rope.hpp"
#include "rmsnorm/sharded.hpp"

#endif  // RMSNORM_RMSNORM_HPP_
