// How fast the norms are on this machine, at the shapes of real models.
#ifndef RMSNORM_EXAMPLES_DEMO_SPEED_H_
#define RMSNORM_EXAMPLES_DEMO_SPEED_H_

namespace rmsnorm::demo {

// Prints a table: RMSNorm, LayerNorm, a copy of the same bytes and a plain C loop, measured in turns.
void show_speed();

}  // namespace rmsnorm::demo

#endif  // RMSNORM_EXAMPLES_DEMO_SPEED_H_
