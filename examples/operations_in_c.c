/* Every operation once, from C. The pages in docs/ quote these pieces. */
#include <stdio.h>
#include <stdlib.h>

#include "rmsnorm/rmsnorm.h"

enum { ROWS = 2, COLS = 4 };
static float x[ROWS * COLS] = {1, 2, 3, 4, -1, 0, 1, 2};
static float residual[ROWS * COLS] = {4, 3, 2, 1, 0, 0, 0, 0};
static float weight[COLS] = {1, 1, 2, 2};
static float bias[COLS] = {0, 0, 0, 1};
static float out[ROWS * COLS], sum[ROWS * COLS];

static void require(rn_status status) {
  if (status == RN_OK) return;
  fprintf(stderr, "%s\n", rn_last_error());
  exit(1);
}

static void print(const char *name, const float *values, int count) {
  printf("%s", name);
  for (int i = 0; i < count; ++i) printf(" %.6g", (double)values[i]);
  printf("\n");
}

static void rms_norm(void) {
  /* [rms_norm] */
  const rn_view out_view = rn_matrix(out, RN_F32, ROWS, COLS);
  const rn_view x_view = rn_matrix(x, RN_F32, ROWS, COLS);
  const rn_view weight_view = rn_vector(weight, RN_F32, COLS);
  rn_rms_norm_options options = rn_rms_norm_defaults();
  options.epsilon = 1e-5;
  require(rn_rms_norm(&out_view, NULL, &x_view, &weight_view, NULL, &options, NULL));
  /* [end] */
  print("rms_norm", out, ROWS * COLS);
}

static void layer_norm(void) {
  /* [layer_norm] */
  const rn_view out_view = rn_matrix(out, RN_F32, ROWS, COLS);
  const rn_view x_view = rn_matrix(x, RN_F32, ROWS, COLS);
  const rn_view weight_view = rn_vector(weight, RN_F32, COLS);
  const rn_view bias_view = rn_vector(bias, RN_F32, COLS);
  require(rn_layer_norm(&out_view, NULL, NULL, &x_view, &weight_view, &bias_view, NULL, NULL));
  /* [end] */
  print("layer_norm", out, ROWS * COLS);
}

static void add_rms_norm(void) {
  /* [add_rms_norm] */
  const rn_view out_view = rn_matrix(out, RN_F32, ROWS, COLS);
  const rn_view sum_view = rn_matrix(sum, RN_F32, ROWS, COLS);
  const rn_view x_view = rn_matrix(x, RN_F32, ROWS, COLS);
  const rn_view residual_view = rn_matrix(residual, RN_F32, ROWS, COLS);
  const rn_view weight_view = rn_vector(weight, RN_F32, COLS);
  require(rn_add_rms_norm(&out_view, &sum_view, NULL, &x_view, &residual_view, &weight_view, NULL, NULL, NULL));
  /* [end] */
  print("add_rms_norm", out, ROWS * COLS);
  print("sum", sum, ROWS * COLS);
}

static void add_layer_norm(void) {
  /* [add_layer_norm] */
  const rn_view out_view = rn_matrix(out, RN_F32, ROWS, COLS);
  const rn_view x_view = rn_matrix(x, RN_F32, ROWS, COLS);
  const rn_view stream_view = rn_matrix(residual, RN_F32, ROWS, COLS); /* read, then overwritten with the sum */
  require(rn_add_layer_norm(&out_view, &stream_view, NULL, NULL, &x_view, &stream_view, NULL, NULL, NULL, NULL));
  /* [end] */
  print("add_layer_norm", out, ROWS * COLS);
  print("stream", residual, ROWS * COLS);
}

static void center(void) {
  /* [center] */
  const rn_view out_view = rn_matrix(out, RN_F32, ROWS, COLS);
  const rn_view x_view = rn_matrix(x, RN_F32, ROWS, COLS);
  require(rn_center(&out_view, &x_view, NULL));
  /* [end] */
  print("center", out, ROWS * COLS);
}

int main(void) {
  rms_norm();
  layer_norm();
  add_rms_norm();
  add_layer_norm();
  center();
  return 0;
}
