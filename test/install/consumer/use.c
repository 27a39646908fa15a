/* Exits with 0 if the installed library can be called from C and says the right thing. */
#include <rmsnorm/rmsnorm.h>
#include <stdio.h>
#include <string.h>

int main(void) {
  float x[4] = {3, 3, 3, 3};
  float out[4] = {0, 0, 0, 0};
  rn_view x_view = rn_matrix(x, RN_F32, 2, 2);
  rn_view out_view = rn_matrix(out, RN_F32, 2, 2);
  rn_rms_norm_options options = rn_rms_norm_defaults();
  options.epsilon = 0;
  if (rn_rms_norm(&out_view, NULL, &x_view, NULL, NULL, &options, NULL) != RN_OK) {
    fprintf(stderr, "%s\n", rn_last_error());
    return 1;
  }
  return out[0] == 1 && out[3] == 1 && strcmp(rn_version(), RMSNORM_VERSION) == 0 ? 0 : 2;
}
